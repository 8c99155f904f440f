// SPDX-License-Identifier: Apache-2.0
// What compiling a guide may cost. A client's guide takes no more than that of time and memory,
// whatever it says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inflight/status.h"

namespace inflight::grammar {

inline constexpr size_t kMaxGuideBytes = size_t{1} << 20;           // of a guide's text
inline constexpr int kMaxNesting = 200;                             // of groups, schemas, values
inline constexpr uint64_t kMaxCompileSteps = 40'000'000;            // of edges and states looked at
inline constexpr uint64_t kMaxCompiledBytes = uint64_t{128} << 20;  // of a compiled grammar

class Budget {
 public:
  explicit Budget(uint64_t steps = kMaxCompileSteps) : left_(steps) {}

  // False, from then on: nothing is left.
  bool Spend(uint64_t steps) {
    const bool is_enough = steps <= left_;
    left_ = is_enough ? left_ - steps : 0;
    return is_enough;
  }
  uint64_t left() const { return left_; }

 private:
  uint64_t left_;
};

Status OutOfSteps();          // kResourceExhausted: kMaxCompileSteps
Status OutOfCompiledBytes();  // kResourceExhausted: kMaxCompiledBytes

}  // namespace inflight::grammar
