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

// Of models with sequences: each request under way is of a sequence of its own, and the next one
// waits for its answer.
struct SequenceOptions {
  int length = 20;
  double variation = 0.2;  // lengths are drawn from length * (1 ± variation)
  uint64_t first_id = 1;   // ids follow each other, round and round
  uint64_t last_id = UINT32_MAX;
};

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
  std::optional<SequenceOptions> sequences;
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
