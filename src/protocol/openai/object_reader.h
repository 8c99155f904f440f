// SPDX-License-Identifier: Apache-2.0
// Objects inside bodies: each member is read or refused by its name.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/status_macros.h"
#include "conversation/conversation.h"
#include "inflight/status.h"
#include "json/json_reader.h"

namespace inflight::openai {

// kInvalidArgument: it is no object, or has a member that `names` have not; `what` it is ("a text
// block") stands in the error. `found` has as many as `names`; a member that is null is as if not
// there.
Status ReadMembers(const json::Value& object, const std::string& where, std::string_view what,
                   const std::string_view* names, std::optional<json::Value>* found, size_t count);

template <size_t N>
Result<std::array<std::optional<json::Value>, N>> MembersOf(
    const json::Value& object, const std::string& where, std::string_view what,
    const std::array<std::string_view, N>& names) {
  std::array<std::optional<json::Value>, N> found;
  RETURN_IF_ERROR(ReadMembers(object, where, what, names.data(), found.data(), N));
  return found;
}

// The "type" of an object.
Result<std::string> TypeAt(const std::string& where, const json::Value& object);

// A text that must be there.
Result<std::string> TextAt(const std::string& where, const std::optional<json::Value>& value);

using conversation::TextOrLines;

// {"type": "ephemeral"} in Anthropic's API: what begins alike is found in the KV cache by itself,
// so that nothing is left to do.
Status CheckCacheControl(const std::string& where, const json::Value& value);

// "messages" and 2: "messages[2]".
inline std::string At(std::string_view where, size_t index) {
  return std::string(where) + "[" + std::to_string(index) + "]";
}

// A client's text in an error: at most 64 bytes of it.
std::string Shortened(std::string_view text);

}  // namespace inflight::openai
