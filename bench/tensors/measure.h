// SPDX-License-Identifier: Apache-2.0
// Loads of rising strength on one model, each until it is steady.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "bench/load/load.h"
#include "bench/tensors/served_model.h"
#include "bench/tensors/windows.h"

namespace inflight::bench {

struct MeasureOptions {
  bool is_rate = false;        // levels are requests a second, else requests under way
  std::vector<double> levels;  // in the order in which they are measured
  bool is_poisson = false;     // gaps of a rate are exponential, else all the same
  int max_under_way = 4096;    // of a rate
  uint64_t seed = 1;
  int num_warmup = 0;           // requests before each level
  int64_t num_requests = 0;     // above 0: so many, in one window
  int64_t interval_ms = 5000;   // of a window
  int64_t window_requests = 0;  // above 0: a window ends when so many have ended instead
  double stability = 0.1;
  int max_windows = 10;
  std::optional<int> percentile;
  double latency_limit_us = 0;  // above 0: no stronger load after one that is slower
  int batch_size = 1;
};

struct LevelResult {
  double level = 0;
  bool is_stable = false;  // also of a fixed number of requests
  Figures figures;
};

// Calls `done` after each level. Errors of single requests are counted; a level without any answer
// ends the measurement after its call.
Status Measure(const MeasureOptions& options, const ServedModel& model, ServerCalls& calls,
               LoadTransport& transport, const std::function<void(const LevelResult&)>& done);

}  // namespace inflight::bench
