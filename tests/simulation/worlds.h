// SPDX-License-Identifier: Apache-2.0
// The devices and options under which the simulation runs.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/backend.h"
#include "inflight/executor.h"

namespace inflight::testing {

struct World {
  const char* name;
  int depth = 1;
  bool looks_ahead = true;
  int max_batch_size = 8;
  int max_num_tokens = 48;
  int max_tokens_per_row = 1;
  int max_beam_width = 1;
  int64_t num_blocks = 24;
  bool prefix_reuse = true;
  bool chunked = true;
  bool priorities = true;
  int num_clients = 1;  // that take turns
  int64_t step_time_goal_ns = 0;
  std::vector<int> block_sizes = {8};  // one KV group each
  std::vector<int> windows = {0};      // of them, repeated
  int64_t num_window_blocks = 0;       // of those with a window; 0: num_blocks
  int num_sinks = 0;
  int64_t num_host_blocks = 0;
  SchedulerPolicy policy = SchedulerPolicy::kGuaranteedNoEvict;
  ChunkingPolicy chunking = ChunkingPolicy::kFirstComeFirstServed;
  int64_t max_queue_delay_ns = 0;
};

const std::vector<World>& Worlds();

executor::BackendInfo InfoOf(const World& world);

}  // namespace inflight::testing
