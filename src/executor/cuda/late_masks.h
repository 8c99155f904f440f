// SPDX-License-Identifier: Apache-2.0
// Masks of guides on their way to the rows of logits of a step on a GPU. The host finds them while
// the forward pass runs; they are sent on a stream of their own, and what samples waits for them.
//
// Threads: the executor's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>

#include "executor/memory_plan.h"
#include "tensor/buffer.h"

namespace inflight::executor::cuda {

class LateMasks {
 public:
  static Result<std::unique_ptr<LateMasks>> Create(const MemoryPlan& plan, Device& device);
  ~LateMasks();
  LateMasks(const LateMasks&) = delete;
  LateMasks& operator=(const LateMasks&) = delete;

  static uint64_t Bytes(const MemoryPlan& plan);  // of device memory
  uint64_t pinned_bytes() const { return host_.size(); }

  // The mask of a row of the step's logits, of a token or of a draft, [ceil(vocab_size / 32)], for
  // the next Send. The step that had the masks before was collected.
  void Add(int logit_row, std::span<const uint32_t> allowed);
  Status Send();

  // Enqueues on `stream` what bans, in `logits` [num_rows, vocab_size], all that the masks sent
  // last do not allow; nothing where none was sent since.
  Status Apply(float* logits, cudaStream_t stream);

 private:
  LateMasks(int max_rows, int vocab_size);

  const int max_rows_;
  const int vocab_size_;
  const size_t num_words_;  // of a mask
  Buffer device_;           // rows of logits [max_rows] int32, then masks [max_rows, num_words]
  PinnedBuffer host_;       // the same
  cudaStream_t sends_ = nullptr;
  cudaEvent_t sent_ = nullptr;
  int num_rows_ = 0;
};

}  // namespace inflight::executor::cuda
