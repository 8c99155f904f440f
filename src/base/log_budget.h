// SPDX-License-Identifier: Apache-2.0
// How many lines of the log one place in the code may have: clients can cause a line for each of
// their requests, and must not fill a disk or hide other lines by it.
//
// Threads: all methods are thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace inflight::logging {

class LogBudget {
 public:
  static constexpr int64_t kBurst = 500;  // lines at once, as the start of a large repository needs
  static constexpr int64_t kPerSecond = 10;  // and in the long run

  struct LeftOut {
    std::string_view file;
    uint32_t line;
    uint64_t count;
  };

  // Whether the place may have a line at this time of a monotonic clock.
  bool Take(const char* file, uint32_t line, int64_t now_ns);
  // What was left out and not told yet, of each place once a second at most.
  std::vector<LeftOut> TakeLeftOut(int64_t now_ns);

 private:
  struct Place {
    int64_t paid_until_ns = 0;  // when its budget is whole again
    int64_t told_ns = 0;
    uint64_t left_out = 0;
  };

  std::mutex mutex_;
  std::map<std::pair<std::string_view, uint32_t>, Place> places_;
  uint64_t num_left_out_ = 0;  // of all places
};

}  // namespace inflight::logging
