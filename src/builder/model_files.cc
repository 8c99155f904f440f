// SPDX-License-Identifier: Apache-2.0
#include "builder/model_files.h"

#include <fmt/format.h>

#include <system_error>

#include "base/file.h"
#include "base/status_macros.h"

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
                                           "chat_template.json"};
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

}  // namespace

Status CopyModelFiles(const std::filesystem::path& from, const std::filesystem::path& to) {
  RETURN_IF_ERROR(CopyFile(from / kGenerationConfig, to / kGenerationConfig));
  for (const char* name : kTokenizerFiles) RETURN_IF_ERROR(CopyFile(from / name, to / name));
  if (FileExists(from / kMoreTemplates))
    RETURN_IF_ERROR(CopyTemplates(from / kMoreTemplates, to / kMoreTemplates));
  return Status::Ok();
}

Status CopyModelFiles(const std::filesystem::path& from, const std::filesystem::path& tokenizer,
                      const std::filesystem::path& to) {
  RETURN_IF_ERROR(CopyFile(from / kGenerationConfig, to / kGenerationConfig));
  for (const char* name : kTokenizerFiles) {
    std::error_code error;
    if (!FileExists(tokenizer / name)) std::filesystem::remove(to / name, error);
    if (error)
      return Internal(fmt::format("{}: cannot remove: {}", (to / name).string(), error.message()));
  }
  return CopyModelFiles(tokenizer, to);
}

Status CheckDistinct(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (!std::filesystem::equivalent(from, to, error)) return Status::Ok();
  return InvalidArgument(
      fmt::format("output_dir: got {}, the input itself; choose another directory", to.string()));
}

std::filesystem::path TokenizerDir(const std::filesystem::path& dir) {
  for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model", "spiece.model"})
    if (FileExists(dir / name)) return dir;
  return {};
}

}  // namespace inflight::builder
