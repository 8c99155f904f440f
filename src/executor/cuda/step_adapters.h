// SPDX-License-Identifier: Apache-2.0
// Adapters (LoRA) of the slots of a GPU, and of the step that is enqueued. Which adapter a slot has
// is known to the device, which finds from it what tokens of a step have one: a graph of a step
// with adapters is replayed with any of them.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "executor/adapter_cache.h"
#include "executor/cuda/step_state.h"

namespace inflight::executor::cuda {

class StepAdapters {
 public:
  static Result<std::unique_ptr<StepAdapters>> Create(std::shared_ptr<const model::Engine> engine,
                                                      Device& device, const MemoryPlan& plan);
  static uint64_t Bytes(const MemoryPlan& plan);  // of device memory, without the cache

  AdapterCache& cache() { return *cache_; }

  // Enqueues which adapter a slot has from the next step on, and the beams of its search.
  Status SetUp(const SlotSetup& setup, cudaStream_t stream);
  bool AreIn(const scheduler::StepPlan& plan) const;  // of any row

  // After StepState::Begin: null of a shape without adapters. Else enqueues what finds the tokens
  // that have some; what is returned is valid until the next call.
  Result<ops::LoraBatch*> Find(const StepShape& shape, const StepState& state, cudaStream_t stream);

 private:
  // In device memory.
  struct Arrays {
    int32_t* slots = nullptr;        // [max_slots + 1] adapter i as i + 1; 0 = none
    int32_t* order = nullptr;        // as of LoraDevice, from here on
    ops::LoraTile* tiles = nullptr;  // [max_num_tokens + kMaxRows]
    int32_t* num_tiles = nullptr;    // [1]
  };
  StepAdapters() = default;
  static uint64_t LayOut(const MemoryPlan& plan, std::byte* base, Arrays* arrays);

  std::unique_ptr<AdapterCache> cache_;
  Buffer buffer_;
  Arrays arrays_;
  std::vector<int> slots_;  // as Arrays::slots, behind what was enqueued
  ops::LoraBatch batch_;
};

// What FindTiles reads and writes, of a step of `num_rows` rows.
struct TileSearch {
  const int32_t* slot_adapters = nullptr;
  const int32_t* row_slots = nullptr;  // [num_rows]
  const int32_t* row_ends =
      nullptr;  // [num_rows + 1] row r has tokens [row_ends[r], row_ends[r + 1])
  int num_rows = 0;
  int tile_tokens = 0;  // of a full tile
  int32_t* order = nullptr;
  ops::LoraTile* tiles = nullptr;
  int32_t* num_tiles = nullptr;
};

// The tokens of rows with adapters, those of each adapter together, and tiles of them.
Status FindTiles(const TileSearch& search, cudaStream_t stream);

Status SetAdapter(int32_t* slot_adapters, int slot, int adapter, cudaStream_t stream);

}  // namespace inflight::executor::cuda
