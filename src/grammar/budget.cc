// SPDX-License-Identifier: Apache-2.0
#include "grammar/budget.h"

#include <fmt/format.h>

namespace inflight::grammar {

Status OutOfSteps() {
  return ResourceExhausted(
      fmt::format("guide: takes more than {} steps to compile; give fewer alternatives and smaller "
                  "bounds of repetitions, lengths and items",
                  kMaxCompileSteps));
}

Status OutOfCompiledBytes() {
  return ResourceExhausted(
      fmt::format("guide: takes more than {} MiB once compiled; give fewer alternatives and "
                  "smaller bounds of repetitions, lengths and items",
                  kMaxCompiledBytes >> 20));
}

}  // namespace inflight::grammar
