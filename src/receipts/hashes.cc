// SPDX-License-Identifier: Apache-2.0
#include "receipts/hashes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/thread_boundary.h"
#include "json/json_reader.h"

namespace inflight::receipts {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little);

constexpr size_t kPieceBytes = size_t{16} << 20;
constexpr size_t kReadBytes = size_t{1} << 20;
constexpr unsigned kMostThreads = 8;

template <typename T>
void AddValues(std::span<const T> values, Sha256& hash) {
  hash.Add(std::as_bytes(values));
}
void AddNumber(uint64_t number, Sha256& hash) {
  AddValues(std::span<const uint64_t>(&number, 1), hash);
}

struct Piece {
  size_t file = 0;
  std::span<const std::byte> bytes;
  std::string hash;
};

Status HashPiece(const MappedFile& file, Piece& piece) {
  std::vector<std::byte> buffer(std::min(kReadBytes, piece.bytes.size()));
  Sha256 hash;
  for (size_t at = 0; at < piece.bytes.size(); at += kReadBytes) {
    const auto part = piece.bytes.subspan(at, std::min(kReadBytes, piece.bytes.size() - at));
    RETURN_IF_ERROR(file.Read(part, buffer.data()));
    hash.Add(std::span<const std::byte>(buffer.data(), part.size()));
  }
  piece.hash = hash.End();
  return Status::Ok();
}

Status HashPieces(const std::vector<MappedFile>& files, std::vector<Piece>& pieces) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status failed;
  const auto work = [&] {
    for (size_t i = next++; i < pieces.size(); i = next++) {
      Status status = StatusOf([&] { return HashPiece(files[pieces[i].file], pieces[i]); });
      const std::lock_guard lock(mutex);
      if (!status.ok() && failed.ok()) failed = std::move(status);
    }
  };
  const size_t most = std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads);
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < std::min(most, pieces.size()); ++i) threads.emplace_back(work);
  work();
  threads.clear();
  return failed;
}

// The shards that an index names: of it they may end in anything.
Status AddShards(const fs::path& index, std::set<fs::path>& paths) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(index));
  const auto parsed = json::Value::Parse(text);
  if (!parsed.ok()) return Status::Ok();  // it is nobody's
  const auto [map] = parsed->Pick(std::array<std::string_view, 1>{"weight_map"});
  if (!map || map->kind() != json::Value::Kind::kObject) return Status::Ok();
  std::set<std::string> names;
  RETURN_IF_ERROR(map->ForEachMember([&names](std::string_view, const json::Value& shard) {
    auto name = shard.AsString();
    if (name.ok()) names.insert(*std::move(name));
    return Status::Ok();
  }));
  std::error_code is_no_file;
  for (const std::string& name : names) {
    const fs::path shard = index.parent_path() / name;
    if (fs::path(name).filename() == name && fs::is_regular_file(shard, is_no_file))
      paths.insert(shard);
  }
  return Status::Ok();
}

Result<std::vector<fs::path>> FilesOf(const fs::path& model) {
  std::error_code error;
  if (fs::is_regular_file(model, error)) return std::vector<fs::path>{model};
  std::set<fs::path> paths;
  std::error_code is_no_file;  // such as a link to what a cache has deleted
  for (const auto& entry : fs::directory_iterator(model, error)) {
    if (!DecidesNumbers(entry.path()) || !entry.is_regular_file(is_no_file)) continue;
    paths.insert(entry.path());
    if (entry.path().filename().string().ends_with(".index.json"))
      RETURN_IF_ERROR(AddShards(entry.path(), paths));
  }
  if (error) return SystemError(model, "list", error.value());
  if (paths.empty()) return NotFound(model.string() + ": has no files of a model to hash");
  return std::vector<fs::path>(paths.begin(), paths.end());
}

}  // namespace

std::string HashOfText(std::string_view text) {
  Sha256 hash;
  hash.Add(text);
  return ToHex(hash.End());
}

std::string HashOfIds(std::span<const TokenId> ids) {
  Sha256 hash;
  AddValues(ids, hash);
  return ToHex(hash.End());
}

std::string HashOfNumbers(std::span<const float> numbers) {
  Sha256 hash;
  AddValues(numbers, hash);
  return ToHex(hash.End());
}

std::string HashOfAdapter(const LoraTensors& adapter) {
  Sha256 hash;
  const auto place = [&hash](int module, int layer, int third) {
    const std::array<int32_t, 3> numbers = {module, layer, third};
    AddValues(std::span<const int32_t>(numbers), hash);
  };
  AddNumber(static_cast<uint64_t>(adapter.dtype), hash);
  AddNumber(static_cast<uint64_t>(adapter.width), hash);
  AddNumber(adapter.rows.size(), hash);
  for (const LoraTensors::Row& row : adapter.rows) place(row.module, row.layer, row.rank);
  AddNumber(adapter.weights.size(), hash);
  hash.Add(std::span<const std::byte>(adapter.weights));
  for (const LoraTensors::Bias& bias : adapter.biases) {
    place(bias.module, bias.layer, bias.replaces ? 1 : 0);
    AddNumber(bias.values.size(), hash);
    AddValues(std::span<const float>(bias.values), hash);
  }
  return ToHex(hash.End());
}

bool DecidesNumbers(const fs::path& file) {
  constexpr std::array<std::string_view, 7> kWeights = {".safetensors", ".bin",  ".pt", ".pth",
                                                        ".engine",      ".gguf", ".npz"};
  constexpr std::array<std::string_view, 8> kOthers = {
      "tokenizer",     "special_tokens_map", "added_tokens", "vocab",
      "chat_template", "generation_config",  "preprocessor", "processor_config"};
  const std::string type = file.extension().string();
  if (std::ranges::find(kWeights, type) != kWeights.end()) return true;
  const std::string name = file.filename().string();
  return type == ".json" && std::ranges::none_of(kOthers, [&name](std::string_view other) {
           return name.starts_with(other);
         });
}

Result<std::string> HashOfModel(const fs::path& model) {
  ASSIGN_OR_RETURN(const std::vector<fs::path> paths, FilesOf(model));
  std::vector<MappedFile> files;
  std::vector<Piece> pieces;
  for (const fs::path& path : paths) {
    ASSIGN_OR_RETURN(files.emplace_back(), MappedFile::Open(path));
    const auto bytes = files.back().bytes();
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes)
      pieces.push_back({.file = files.size() - 1,
                        .bytes = bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at))});
  }
  RETURN_IF_ERROR(HashPieces(files, pieces));
  Sha256 hash;
  size_t next = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = paths[i].filename().string();
    hash.Add(std::string_view(name.c_str(), name.size() + 1));
    AddNumber(files[i].bytes().size(), hash);
    for (; next < pieces.size() && pieces[next].file == i; ++next) hash.Add(pieces[next].hash);
  }
  return ToHex(hash.End());
}

}  // namespace inflight::receipts
