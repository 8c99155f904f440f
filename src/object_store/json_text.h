// SPDX-License-Identifier: Apache-2.0
// The small JSON documents of stores and of those who give tokens.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight::object_store {

// kInvalidArgument "`where`: is no JSON object"; what stands in it may be secret.
inline Result<nlohmann::json> ParseObject(std::string_view text, const std::string& where) {
  auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return InvalidArgument(where + ": is no JSON object");
  return document;
}

// Empty where the member is not there, or is no text.
inline std::string TextOf(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || !found->is_string() ? std::string() : found->get<std::string>();
}

}  // namespace inflight::object_store
