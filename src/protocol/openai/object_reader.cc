// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/object_reader.h"

#include <algorithm>

namespace inflight::openai {

using json::Value;
using Kind = Value::Kind;

Status ReadMembers(const Value& object, const std::string& where, std::string_view what,
                   const std::string_view* names, std::optional<Value>* found, size_t count) {
  if (object.kind() != Kind::kObject)
    return InvalidArgument(where, "must be an object, " + std::string(what));
  return object.ForEachMember([&](std::string_view key, const Value& value) -> Status {
    const std::string_view* name = std::find(names, names + count, key);
    if (name == names + count) {
      std::string known;
      for (size_t i = 0; i < count; ++i) known.append(i == 0 ? "" : ", ").append(names[i]);
      return InvalidArgument(where + "." + Shortened(key),
                             "is not a member of " + std::string(what) + "; those are " + known);
    }
    std::optional<Value>& place = found[name - names];
    if (place) return InvalidArgument(where + "." + std::string(key), "is given twice");
    if (value.kind() != Kind::kNull) place = value;
    return Status::Ok();
  });
}

Result<std::string> TypeAt(const std::string& where, const Value& object) {
  if (object.kind() != Kind::kObject) return InvalidArgument(where, "must be an object");
  constexpr std::array<std::string_view, 1> kNames = {"type"};
  return TextAt(where + ".type", object.Pick(kNames)[0]);
}

Result<std::string> TextAt(const std::string& where, const std::optional<Value>& value) {
  if (!value) return InvalidArgument(where, "is missing");
  if (value->kind() != Kind::kString) return InvalidArgument(where, "must be a string");
  return value->AsString();
}

Status CheckCacheControl(const std::string& where, const Value& value) {
  ASSIGN_OR_RETURN(const auto members,
                   MembersOf<3>(value, where, "a mark of the cache", {"type", "ttl", "scope"}));
  ASSIGN_OR_RETURN(const std::string type, TextAt(where + ".type", members[0]));
  if (type == "ephemeral") return Status::Ok();
  return InvalidArgument(where + ".type", "got '" + Shortened(type) + "', must be \"ephemeral\"");
}

std::string Shortened(std::string_view text) {
  constexpr size_t kMostBytes = 64;
  return std::string(text.substr(0, kMostBytes)) + (text.size() > kMostBytes ? "..." : "");
}

}  // namespace inflight::openai
