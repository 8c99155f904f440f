// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/prompt_table_dir.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "artifact/npy.h"
#include "artifact/safetensors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "serving/core/prompt_task.h"
#include "tensor/element.h"

namespace inflight::serving {
namespace {

constexpr size_t kMaxTableNameBytes = 128;
// While a file is read: itself, and its numbers, of 16 bits or 32, as float32.
constexpr uint64_t kHeldPerFileByte = 3;
constexpr char kPeftName[] = "prompt_embeddings";  // peft/src/peft/utils/save_and_load.py

Status BadTask(const std::string& what) { return InvalidArgument(kPromptTask, what); }

bool IsTableName(const std::string& name) {
  const auto may_stand = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxTableNameBytes && name.front() != '.' &&
         std::ranges::all_of(name, may_stand);
}

Result<artifact::StoredTensor> TensorOf(const std::string& content, const std::string& file) {
  const auto bytes = std::as_bytes(std::span(content));
  if (file.ends_with(".npy")) return artifact::ParseNpy(bytes, file);
  ASSIGN_OR_RETURN(const auto tensors, artifact::ParseSafetensors(bytes, file));
  const auto found = std::ranges::find(tensors, kPeftName, &artifact::StoredTensor::name);
  if (found != tensors.end()) return *found;
  if (tensors.size() == 1) return tensors.front();
  return InvalidArgument(file + ": has " + std::to_string(tensors.size()) + " tensors, none is '" +
                         kPeftName + "'");
}

Result<std::shared_ptr<const PromptTable>> TableOf(const artifact::StoredTensor& tensor,
                                                   const std::string& file) {
  const bool is_float =
      tensor.dtype == DType::kF32 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16;
  if (!is_float || tensor.shape.rank() != 2 || tensor.shape.num_elements() == 0)
    return InvalidArgument(file + ": got " + std::string(DTypeName(tensor.dtype)) + " " +
                           tensor.shape.ToString() +
                           ", must be float16, bfloat16 or float32 [rows, hidden size]");
  auto table = std::make_shared<PromptTable>();
  table->num_rows = static_cast<int>(tensor.shape[0]);
  table->hidden_size = static_cast<int>(tensor.shape[1]);
  const int64_t num_values = tensor.shape.num_elements();
  table->values.resize(static_cast<size_t>(num_values));
  for (int64_t i = 0; i < num_values; ++i)
    table->values[static_cast<size_t>(i)] = LoadFloat(tensor.data.data(), tensor.dtype, i);
  return std::shared_ptr<const PromptTable>(std::move(table));
}

}  // namespace

Result<std::shared_ptr<PromptTableDir>> PromptTableDir::Open(const std::filesystem::path& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error))
    return NotFound("--prompt-table-dir " + dir.string() + ": is no directory");
  return std::make_shared<PromptTableDir>(dir);
}

Result<PromptTableDir::Located> PromptTableDir::Locate(const std::string& name) const {
  if (!IsTableName(name))
    return BadTask(
        "got a name of other characters than letters, digits, '-', '_' and '.', or of more "
        "than " +
        std::to_string(kMaxTableNameBytes));
  for (const char* extension : {".npy", ".safetensors"}) {
    std::filesystem::path path = dir_ / (name + extension);
    struct stat found {};
    if (stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    constexpr int64_t kNsPerSecond = 1'000'000'000;
    return Located{
        .path = std::move(path),
        .version = {.device = found.st_dev,
                    .inode = found.st_ino,
                    .size = static_cast<uint64_t>(found.st_size),
                    .mtime_ns = found.st_mtim.tv_sec * kNsPerSecond + found.st_mtim.tv_nsec}};
  }
  return BadTask("got '" + name + "', the server has neither " + name + ".npy nor " + name +
                 ".safetensors");
}

bool PromptTableDir::HasToRead(const std::string& name) const {
  const auto located = Locate(name);
  if (!located.ok()) return false;
  const std::lock_guard lock(mutex_);
  const auto kept = std::ranges::find(entries_, name, &Entry::name);
  return kept == entries_.end() || kept->version != located->version;
}

Result<contract::KnownTable> PromptTableDir::Get(const std::string& name,
                                                 const std::shared_ptr<AccountShare>& memory) {
  ASSIGN_OR_RETURN(const Located located, Locate(name));
  {
    const std::lock_guard lock(mutex_);
    const auto kept = std::ranges::find(entries_, name, &Entry::name);
    if (kept != entries_.end() && kept->version == located.version) {
      entries_.splice(entries_.begin(), entries_, kept);
      return kept->known;
    }
  }
  MemoryCharge charge(memory);
  RETURN_IF_ERROR(charge.Resize(located.version.size * kHeldPerFileByte));
  Result<contract::KnownTable> read = Read(located.path);
  if (!read.ok()) return read.status().WithPrefix(kPromptTask);
  Keep({.name = name,
        .version = located.version,
        .known = *read,
        .bytes = read->table->values.size() * sizeof(float)});
  return read;
}

Result<contract::KnownTable> PromptTableDir::Read(const std::filesystem::path& path) const {
  const std::string file = path.filename().string();
  Result<std::string> content = ReadFile(path, kMaxFileBytes);
  if (!content.ok()) {
    return InvalidArgument(file + ": cannot be read, or is larger than " +
                           std::to_string(kMaxFileBytes) + " bytes");
  }
  ASSIGN_OR_RETURN(const artifact::StoredTensor tensor, TensorOf(*content, file));
  ASSIGN_OR_RETURN(auto table, TableOf(tensor, file));
  return contract::KnownTableOf(std::move(table));
}

void PromptTableDir::Keep(Entry entry) {
  const std::lock_guard lock(mutex_);
  const auto drop = [this](std::list<Entry>::iterator dropped) {
    kept_bytes_ -= dropped->bytes;
    entries_.erase(dropped);
  };
  const auto old = std::ranges::find(entries_, entry.name, &Entry::name);
  if (old != entries_.end()) drop(old);
  while (!entries_.empty() && kept_bytes_ + entry.bytes > kMaxBytes)
    drop(std::prev(entries_.end()));
  kept_bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
}

uint64_t PromptTableDir::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace inflight::serving
