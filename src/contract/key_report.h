// SPDX-License-Identifier: Apache-2.0
// What became of each key of a model's configuration: its value, where that came from, what it
// does. Logged when a model is loaded; `inflight inspect` prints the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace inflight::contract {

enum class KeySource : uint8_t {
  kFile,     // config.pbtxt says so
  kOption,   // a flag of the command line, since the file leaves the key open
  kDefault,  // nobody says anything
  kAuto,     // worked out at load: the engine's, the LLM's, a share among several models
};

enum class KeyEffect : uint8_t { kHonoured, kIgnored, kRefused };

struct KeyLine {
  std::string key;
  std::string value;  // in effect; of keys that are not honoured as written
  KeySource source = KeySource::kDefault;
  KeyEffect effect = KeyEffect::kHonoured;
  std::string reason;  // why ignored or refused; a remark on honoured ones
};
using KeyReport = std::vector<KeyLine>;

std::string_view KeySourceName(KeySource source);  // "file", "option", "default", "auto"
std::string_view KeyEffectName(KeyEffect effect);  // "honoured", "ignored", "refused"

// Aligned columns under the heading "key  value  source  effect", a line per key.
std::string ToTable(const KeyReport& report);

}  // namespace inflight::contract
