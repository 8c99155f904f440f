// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace inflight::golden {

// By it all steps take about as long, whatever they compute: drafts cost little, so that trees are
// large.
class EvenClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_ += 1000; }

 private:
  mutable std::atomic<int64_t> now_ns_{0};
};

}  // namespace inflight::golden
