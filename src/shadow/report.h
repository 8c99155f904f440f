// SPDX-License-Identifier: Apache-2.0
// What both servers' answers came to: a line for each difference, a summary of all.
//
// Threads: all methods are thread-safe.
#pragma once

#include <array>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shadow/both_servers.h"

namespace inflight::shadow {

class Report {
 public:
  // Differences are printed to `out`; every outcome as a line of JSON to `file`, where it is not
  // null.
  Report(FILE* out, FILE* file) : out_(out), file_(file) {}

  void Add(const Outcome& outcome);
  // A request that was not sent to the new server, since too many were under way.
  void AddLeftOut();
  void PrintSummary() const;
  int num_requests() const;
  int num_unequal() const;  // those that differ, and those that failed

 private:
  struct Latencies {
    std::vector<double> first_ms;
    std::vector<double> total_ms;
  };
  void Write(const Outcome& outcome) const;

  FILE* const out_;
  FILE* const file_;
  mutable std::mutex mutex_;
  int num_requests_ = 0;
  int num_different_ = 0;
  int num_failed_ = 0;
  int num_left_out_ = 0;
  std::array<int, 6> num_of_kind_{};  // requests, by Kind
  Latencies old_latencies_;
  Latencies new_latencies_;
};

}  // namespace inflight::shadow
