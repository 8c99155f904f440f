// SPDX-License-Identifier: Apache-2.0
// What a client asks for one output besides its name: the largest elements as text in place of the
// tensor, or its bytes in shared memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "serving/memory/shared_memory.h"

namespace inflight::serving {

struct OutputRule {
  uint64_t num_classes = 0;  // 0 = the tensor itself
  std::optional<SharedWindow> window;
};

using OutputRules = std::map<std::string, OutputRule, std::less<>>;  // by output

}  // namespace inflight::serving
