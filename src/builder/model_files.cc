// SPDX-License-Identifier: Apache-2.0
#include "builder/model_files.h"

#include <fmt/format.h>

#include <string_view>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/status_macros.h"
#include "gguf/file.h"

namespace inflight::builder {
namespace {

// Of every kind of tokenizer, its settings, and chat templates in each place where they are kept.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "tokenizer.model",
                                           "spiece.model",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           gguf::kTokenizerFile};
// Of the `tiktoken` package, whatever stands before it.
constexpr std::string_view kRanksExtension = ".tiktoken";
// Read where there is no other tokenizer, and copied as tokenizer.model.
constexpr const char* kTokenizersInFolders[] = {"tiktoken/tokenizer.model",
                                                "original/tokenizer.model"};
constexpr char kGenerationConfig[] = "generation_config.json";
constexpr char kMoreTemplates[] = "additional_chat_templates";  // a folder of NAME.jinja

// Does nothing where `from` is not there or is `to`.
Status CopyFile(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (!FileExists(from) || std::filesystem::equivalent(from, to, error)) return Status::Ok();
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error);
  if (error)
    return Internal(
        fmt::format("{}: cannot copy to {}: {}", from.string(), to.string(), error.message()));
  return Status::Ok();
}

std::vector<std::filesystem::path> RankFilesIn(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  std::filesystem::directory_iterator entry(dir, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (entry->path().extension() == kRanksExtension) files.push_back(entry->path());
  return files;
}

// Whether a tokenizer's files are in `dir` itself.
bool HasTokenizerFiles(const std::filesystem::path& dir) {
  for (const char* name :
       {"tokenizer.json", "vocab.json", "tokenizer.model", "spiece.model", gguf::kTokenizerFile})
    if (FileExists(dir / name)) return true;
  return !RankFilesIn(dir).empty();
}

// The tokenizer.model in a folder of `dir` that is read where `dir` itself has none; else empty.
std::filesystem::path TokenizerInFolder(const std::filesystem::path& dir) {
  if (HasTokenizerFiles(dir)) return {};
  for (const char* name : kTokenizersInFolders)
    if (FileExists(dir / name)) return dir / name;
  return {};
}

Status CopyTemplates(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::create_directories(to, error);
  std::filesystem::directory_iterator entry(from, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (entry->path().extension() == ".jinja")
      RETURN_IF_ERROR(CopyFile(entry->path(), to / entry->path().filename()));
  if (error)
    return Internal(
        fmt::format("{}: cannot copy to {}: {}", from.string(), to.string(), error.message()));
  return Status::Ok();
}

bool HasTokenizer(const gguf::Metadata& metadata) {
  return metadata.Find("tokenizer.ggml.model") != nullptr;
}

// The metadata of a GGUF file, where a tokenizer is in it.
Status CopyMetadata(const std::filesystem::path& from, const std::filesystem::path& to) {
  ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(from));
  ASSIGN_OR_RETURN(const gguf::File file, gguf::Parse(mapped.bytes(), from.string()));
  RETURN_IF_ERROR(RemoveTokenizerFiles(to));
  if (!HasTokenizer(file.metadata)) return Status::Ok();
  return WriteFile(to / gguf::kTokenizerFile, gguf::WithoutTensors(file));
}

}  // namespace

Status RemoveTokenizerFiles(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> files = RankFilesIn(dir);
  for (const char* name : kTokenizerFiles) files.push_back(dir / name);
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    std::filesystem::remove(file, error);
    if (error)
      return Internal(fmt::format("{}: cannot remove: {}", file.string(), error.message()));
  }
  return Status::Ok();
}

Status CopyModelFiles(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (gguf::IsGgufFile(from)) return CopyMetadata(from, to);
  RETURN_IF_ERROR(CopyFile(from / kGenerationConfig, to / kGenerationConfig));
  for (const char* name : kTokenizerFiles) RETURN_IF_ERROR(CopyFile(from / name, to / name));
  for (const std::filesystem::path& file : RankFilesIn(from))
    RETURN_IF_ERROR(CopyFile(file, to / file.filename()));
  if (const std::filesystem::path file = TokenizerInFolder(from); !file.empty())
    RETURN_IF_ERROR(CopyFile(file, to / file.filename()));
  if (FileExists(from / kMoreTemplates))
    RETURN_IF_ERROR(CopyTemplates(from / kMoreTemplates, to / kMoreTemplates));
  return Status::Ok();
}

Status CopyModelFiles(const std::filesystem::path& from, const std::filesystem::path& tokenizer,
                      const std::filesystem::path& to) {
  RETURN_IF_ERROR(CopyFile(from / kGenerationConfig, to / kGenerationConfig));
  std::error_code error;
  if (!std::filesystem::equivalent(tokenizer, to, error)) RETURN_IF_ERROR(RemoveTokenizerFiles(to));
  return CopyModelFiles(tokenizer, to);
}

Status CheckDistinct(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (!std::filesystem::equivalent(from, to, error)) return Status::Ok();
  return InvalidArgument(
      fmt::format("output_dir: got {}, the input itself; choose another directory", to.string()));
}

std::filesystem::path TokenizerDir(const std::filesystem::path& dir) {
  if (gguf::IsGgufFile(dir)) {
    const Result<MappedFile> mapped = MappedFile::Open(dir);
    if (!mapped.ok()) return {};
    const Result<gguf::File> file = gguf::Parse(mapped->bytes(), dir.string());
    return file.ok() && HasTokenizer(file->metadata) ? dir : std::filesystem::path();
  }
  const bool has_one = HasTokenizerFiles(dir) || !TokenizerInFolder(dir).empty();
  return has_one ? dir : std::filesystem::path();
}

}  // namespace inflight::builder
