// SPDX-License-Identifier: Apache-2.0
// What a tokenizer's directory has besides the tokenizer: the template of conversations, and how
// tokens are drawn where a request does not say it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "inflight/chat_template.h"
#include "parameters/model_defaults.h"

namespace inflight::serving {

struct TextFiles {
  std::optional<ChatTemplate> chat_template;
  Status no_chat_template;  // why there is none
  parameters::ModelDefaults defaults;
};

// `template_file`, where not empty, is read in place of the directory's template; then what is
// wrong with it is an error. A template that cannot be had otherwise, and a generation_config.json
// that is none, are told in the log: most requests have no use for them.
Result<TextFiles> ReadTextFiles(const std::filesystem::path& dir, const std::string& template_file);

}  // namespace inflight::serving
