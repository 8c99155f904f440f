// SPDX-License-Identifier: Apache-2.0
// config.pbtxt: protobuf text as deployers leave it. `${name}` may stand where a number, a bool or
// an enum is expected (the field is dropped and its default taken) and in strings (kept; readers
// treat it as the default).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"
#include "model_config.pb.h"

namespace inflight::serving {

struct ParsedModelConfig {
  ::inference::ModelConfig config;
  // Names of fields outside strings that were left as `${...}`: "max_batch_size", "decoupled", ...
  std::vector<std::string> unfilled;

  // Paths of all fields that the text has, "dynamic_batching.preserve_ordering"; elements of a list
  // have the list's. Unlike the message it knows of a field that is written with its default.
  std::set<std::string, std::less<>> written;

  bool IsUnfilled(std::string_view field) const;
  bool IsWritten(std::string_view path) const { return written.contains(path); }
};

// kInvalidArgument has the line and column of what is wrong.
Result<ParsedModelConfig> ParseModelConfig(std::string_view text);

enum class UnknownMembers : uint8_t { kRefused, kIgnored };
// The same of a configuration as JSON with the fields' names, such as a load request brings.
// Nothing in it can be left open. kInvalidArgument also for unknown members, where those are
// refused; of another server, whose release may be newer, they are that server's business.
Result<ParsedModelConfig> ParseModelConfigJson(const std::string& json,
                                               UnknownMembers unknown = UnknownMembers::kRefused);

// Fills what the config endpoint shows beyond the file: version policy, instance groups, pinned
// memory, preferred batch sizes.
void NormalizeModelConfig(::inference::ModelConfig& config);

// A parameter's text; none when it is absent, blank or unfilled.
std::optional<std::string> FindParameter(const ::inference::ModelConfig& config,
                                         const std::string& key);
std::map<std::string, std::string> AllParameters(const ::inference::ModelConfig& config);

bool HasInput(const ::inference::ModelConfig& config, std::string_view name);
bool HasOutput(const ::inference::ModelConfig& config, std::string_view name);

}  // namespace inflight::serving
