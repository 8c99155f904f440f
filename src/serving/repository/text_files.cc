// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/text_files.h"

#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace inflight::serving {

Result<TextFiles> ReadTextFiles(const std::filesystem::path& dir,
                                const std::string& template_file) {
  TextFiles files;
  auto loaded = ChatTemplate::Load(dir, template_file);
  if (!loaded.ok() && !template_file.empty()) return loaded.status().WithPrefix("--chat-template");
  if (loaded.ok()) {
    files.chat_template = *std::move(loaded);
  } else {
    files.no_chat_template = loaded.status();
    if (loaded.status().code() != StatusCode::kNotFound)
      logging::Warning("the model's chat template cannot be used: its conversations are refused",
                       {{"reason", loaded.status().message()}});
  }
  files.defaults = parameters::ReadModelDefaultsOrWarn(dir);
  return files;
}

}  // namespace inflight::serving
