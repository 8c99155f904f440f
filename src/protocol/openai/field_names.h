// SPDX-License-Identifier: Apache-2.0
// Errors of chat's members by the names that another API has for them.
#pragma once

#include <span>
#include <string_view>

#include "inflight/status.h"

namespace inflight::openai {

// Where the name of a member begins with `chat`, or has a `chat` that begins with a dot, `own` is
// said: ".function" -> "".
struct FieldName {
  std::string_view chat;
  std::string_view own;
  // What stands behind it is left out: it counts what the client did not write.
  bool ends = false;
};

// The status with its field, and the message that begins with it, by the own names; rows apply one
// after the other.
Status ByOwnNames(std::span<const FieldName> names, const Status& status);

}  // namespace inflight::openai
