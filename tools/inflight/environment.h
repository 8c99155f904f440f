// SPDX-License-Identifier: Apache-2.0
// Variables that standards and hosting platforms set; options of ours are flags.
#pragma once

#include <cstdlib>
#include <string>

namespace inflight::tool {

// Empty where it is not set.
inline std::string Environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string() : value;
}

}  // namespace inflight::tool
