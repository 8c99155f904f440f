// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include "base/check.h"

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

std::atomic<Clock*> replacement{nullptr};

}  // namespace

Clock& Clock::System() {
  static SystemClock clock;
  Clock* const other = replacement.load(std::memory_order_relaxed);
  return other != nullptr ? *other : clock;
}

ReplacedClock::ReplacedClock(Clock& clock) { CHECK(replacement.exchange(&clock) == nullptr); }

ReplacedClock::~ReplacedClock() { replacement.store(nullptr); }

}  // namespace inflight
