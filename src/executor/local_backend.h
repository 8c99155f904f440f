// SPDX-License-Identifier: Apache-2.0
// A model on one device of this process: slots, KV storage, Forward and Decode. Depth 1: Launch
// computes.
#pragma once

#include <memory>
#include <string>

#include "executor/backend.h"
#include "inflight/executor.h"
#include "model/decoder.h"

namespace inflight::executor {

// Memory that a backend takes, computed by the code that allocates; printed at load and by
// `inflight inspect`.
struct MemoryPlan {
  uint64_t weight_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t kv_bytes_per_block = 0;
  int64_t num_blocks = 0;
  int block_size = 0;
  int max_seq_len = 0;

  uint64_t kv_bytes() const { return kv_bytes_per_block * static_cast<uint64_t>(num_blocks); }
  int64_t kv_tokens() const { return num_blocks * block_size; }
  int64_t full_length_sequences() const { return kv_tokens() / max_seq_len; }
  std::string ToString() const;  // a few lines for people
};

Result<MemoryPlan> PlanMemory(const model::ModelConfig& config, const model::EngineLimits& limits,
                              uint64_t weight_bytes, const ExecutorOptions& options,
                              uint64_t free_bytes);

// `force_ops` names an operator table (ops/backend.h); empty = the best one.
Result<std::unique_ptr<Backend>> CreateLocalBackend(std::shared_ptr<const model::Engine> engine,
                                                    Device& device, const ExecutorOptions& options,
                                                    const std::string& force_ops = {});

}  // namespace inflight::executor
