// SPDX-License-Identifier: Apache-2.0
// Chat templates of families, by names, for models that come without one: how the family's
// documentation says that its turns are written. They show no tools; docs/models.md lists them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace inflight::chat_template {

std::optional<std::string_view> NamedTemplate(std::string_view name);
std::string TemplateNames();  // "alpaca, chatml"

}  // namespace inflight::chat_template
