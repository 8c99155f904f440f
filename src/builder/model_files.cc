// SPDX-License-Identifier: Apache-2.0
#include "builder/model_files.h"

#include <fmt/format.h>

#include <system_error>

#include "base/file.h"
#include "builder/engine_memory.h"

namespace inflight::builder {
namespace {

constexpr const char* kModelFiles[] = {"tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "tokenizer.model",
                                       "spiece.model",
                                       "generation_config.json",
                                       "chat_template.jinja"};

}  // namespace

Status CopyModelFiles(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name : kModelFiles) {
    if (!FileExists(from / name)) continue;
    std::error_code error;
    std::filesystem::copy_file(from / name, to / name,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error)
      return Internal(fmt::format("{}: cannot copy to {}: {}", (from / name).string(), to.string(),
                                  error.message()));
  }
  return Status::Ok();
}

Status CheckDistinct(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (!std::filesystem::equivalent(from, to, error)) return Status::Ok();
  return InvalidArgument(
      fmt::format("output_dir: got {}, the input itself; choose another directory", to.string()));
}

std::filesystem::path TokenizerDir(const std::filesystem::path& dir) {
  for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model", "spiece.model"}) {
    if (FileExists(dir / name)) return dir;
  }
  return {};
}

}  // namespace inflight::builder
