// SPDX-License-Identifier: Apache-2.0
// Flags of TensorRT-LLM's converters and builders, releases 0.5 to 1.0, that have no place in our
// options: each has no effect or is refused, with the reason and the remedy. Flags that mean the
// same as one of ours are aliases of it, in convert.cc and build.cc.
#pragma once

#include <string>
#include <vector>

#include "config/schema.h"

namespace inflight::tool {

struct UpstreamFlag {
  enum class Kind : uint8_t { kNoEffect, kRefused } kind;
  const char* name;
  const char* reason;
  const char* accepted_only = "";  // refused ones: the value that asks for nothing
};

std::vector<UpstreamFlag> ConvertFlags();
std::vector<UpstreamFlag> BuildFlags();

// Any of these may stand without a value, as switches of older releases do.
template <typename Options>
void AddUpstreamFlags(const std::vector<UpstreamFlag>& flags, config::Schema<Options>& schema) {
  for (const UpstreamFlag& flag : flags) {
    if (flag.kind == UpstreamFlag::Kind::kNoEffect)
      schema.Note(flag.name, flag.reason);
    else
      schema.Refuse(flag.name, flag.reason, flag.accepted_only, config::OptionalValue());
  }
}

// --log_level of every tool of upstream's.
std::vector<std::string> LogLevels();
void SetLogLevel(const std::string& name);  // one of LogLevels

}  // namespace inflight::tool
