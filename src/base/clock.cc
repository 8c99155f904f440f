// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <chrono>

namespace inflight {
namespace {

class SystemClock : public Clock {
 public:
  int64_t NowNs() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

Clock& Clock::System() {
  static SystemClock clock;
  return clock;
}

}  // namespace inflight
