// SPDX-License-Identifier: Apache-2.0
#include "hub/listing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "artifact/hub_cache.h"
#include "artifact/printable.h"
#include "object_store/local_tree.h"

namespace inflight::hub {
namespace {

using nlohmann::json;

constexpr std::string_view kDefaultQuant = "Q4_K_M";
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 44;

std::string TextOf(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<HubFile> ReadSibling(const json& sibling) {
  HubFile file;
  if (sibling.is_object()) file.path = TextOf(sibling, "rfilename");
  if (!object_store::IsRelativePath(file.path))
    return InvalidArgument("a file has a name that is no path: " + artifact::Printable(file.path));
  const auto size = sibling.find("size");
  if (size != sibling.end() && size->is_number_unsigned()) file.size = size->get<uint64_t>();
  const auto lfs = sibling.find("lfs");
  file.digest =
      lfs != sibling.end() && lfs->is_object() ? TextOf(*lfs, "sha256") : TextOf(sibling, "blobId");
  if (!IsDigest(file.digest)) file.digest.clear();
  if (file.size > kMaxFileBytes)
    return InvalidArgument(fmt::format("{}: {} bytes are more than 16 TiB",
                                       artifact::Printable(file.path), file.size));
  return file;
}

bool IsInFolder(std::string_view path) { return path.find('/') != std::string_view::npos; }

bool HasEnding(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view end) { return path.ends_with(end); });
}

// Beside the weights.
bool IsNeededText(std::string_view path) {
  if (path.starts_with("additional_chat_templates/")) return path.ends_with(".jinja");
  return !IsInFolder(path) &&
         (HasEnding(path, {".json", ".jinja", ".txt", ".model", ".tiktoken"}) ||
          path.starts_with("LICENSE"));
}

// Of the folder itself, or of one in it that is read where it has none.
bool IsTokenizer(std::string_view path) {
  return path == "tokenizer.json" || path == "vocab.json" || path == "tokenizer.model" ||
         path == "spiece.model" || (!IsInFolder(path) && path.ends_with(".tiktoken"));
}
bool IsTokenizerInFolder(std::string_view path) {
  return path == "tiktoken/tokenizer.model" || path == "original/tokenizer.model";
}

bool IsTorchFile(std::string_view path) {
  return path.starts_with("pytorch_model") && path.ends_with(".bin");
}

Result<HubFile> ChooseGguf(const HubListing& listing, std::string_view quant) {
  std::vector<const HubFile*> all;
  std::vector<std::string> names;
  for (const HubFile& file : listing.files) {
    const std::string_view name = std::string_view(file.path).substr(file.path.rfind('/') + 1);
    if (!artifact::IsGgufOf(file.path, name)) continue;
    all.push_back(&file);
    names.emplace_back(name);
  }
  const auto meant = [&](std::string_view wanted) {
    std::vector<const HubFile*> found;
    std::ranges::copy_if(all, std::back_inserter(found), [&](const HubFile* file) {
      return artifact::IsGgufOf(file->path, wanted);
    });
    return found;
  };
  std::vector<const HubFile*> found = !quant.empty()    ? meant(quant)
                                      : all.size() == 1 ? all
                                                        : meant(kDefaultQuant);
  if (!found.empty() && artifact::IsGgufPart(found[0]->path))
    return Unimplemented(
        fmt::format("{} is one part of several, which are not pulled; fetch them by another "
                    "program, or choose a quantisation that is one file",
                    found[0]->path));
  if (found.size() == 1) return *found[0];
  constexpr size_t kMostNamed = 40;
  if (names.size() > kMostNamed) names.resize(kMostNamed);
  return NotFound(
      fmt::format("{} GGUF file is '{}': say one of them by :QUANT behind the name; "
                  "there are {}",
                  found.empty() ? "no" : "more than one", quant.empty() ? kDefaultQuant : quant,
                  names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

}  // namespace

bool IsDigest(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<HubListing> ParseListing(std::string_view body) {
  const json root = json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto siblings = root.is_object() ? root.find("siblings") : root.end();
  if (siblings == root.end() || !siblings->is_array())
    return InvalidArgument("the hub's answer has no list of files");
  HubListing listing;
  listing.commit = TextOf(root, "sha");
  if (listing.commit.size() != 40 || !IsDigest(listing.commit))
    return InvalidArgument("the hub's answer names no commit");
  if (siblings->size() > kMaxFiles)
    return InvalidArgument(
        fmt::format("the model has {} files, more than {}", siblings->size(), kMaxFiles));
  for (const json& sibling : *siblings) {
    auto file = ReadSibling(sibling);
    if (!file.ok()) return file.status();
    listing.files.push_back(*std::move(file));
  }
  std::ranges::sort(listing.files, {}, &HubFile::path);
  const auto twice = std::ranges::adjacent_find(listing.files, {}, &HubFile::path);
  if (twice != listing.files.end())
    return InvalidArgument("the hub lists a file twice: " + artifact::Printable(twice->path));
  return listing;
}

Result<std::vector<HubFile>> ChooseFiles(const HubListing& listing, std::string_view quant) {
  const auto has = [&](const auto& is_it) {
    return std::ranges::any_of(listing.files, is_it, &HubFile::path);
  };
  const auto is_safetensors = [](std::string_view path) {
    return !IsInFolder(path) && path.ends_with(".safetensors");
  };
  const bool has_safetensors = has(is_safetensors);
  // Mistral's models have all their weights twice, once in a form of its own, which is not read.
  const bool has_model = has([](std::string_view path) {
    return path == "model.safetensors" || path == "model.safetensors.index.json";
  });
  const auto is_double = [&](std::string_view path) {
    return has_model && path.starts_with("consolidated");
  };
  const bool has_tokenizer = has(IsTokenizer);
  std::vector<HubFile> chosen;
  if (!quant.empty() || (!has_safetensors && !has(IsTorchFile))) {
    auto gguf = ChooseGguf(listing, quant);
    if (!gguf.ok()) return gguf.status();
    chosen.push_back(*std::move(gguf));
    return chosen;
  }
  for (const HubFile& file : listing.files) {
    const bool is_weight = has_safetensors ? is_safetensors(file.path) : IsTorchFile(file.path);
    if (is_double(file.path)) continue;
    const bool is_tokenizer = !has_tokenizer && IsTokenizerInFolder(file.path);
    if (is_weight || is_tokenizer || IsNeededText(file.path)) chosen.push_back(file);
  }
  return chosen;
}

}  // namespace inflight::hub
