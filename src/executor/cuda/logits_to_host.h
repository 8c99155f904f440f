// SPDX-License-Identifier: Apache-2.0
// Rows of logits that the host reads of a step on a GPU (host_rows.h): on their way through pinned
// memory, as the step left them before sampling. Of searches that need no more the device writes
// the best logits of each row there (decoding/best_logits.h).
//
// What such a step does after its forward pass is no graph:
//   forward; CopyRows; sampling, which leaves rows of searches out; CopyContext; end of the step
// and when it has ended, Read has the host look at them. Rows of one step have buffers of their
// own. Buffers are made when a slot is set up whose rows they do not hold, and then kept: steps
// allocate nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <span>
#include <vector>

#include "decoding/cuda/device_sampler.h"
#include "executor/host_rows.h"
#include "model/decoder.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace inflight::executor::cuda {

class LogitsToHost {
 public:
  // Of one step.
  struct Step {
    std::span<HostRows::Row> rows;
    std::vector<HostRows::Context> context;
    PinnedBuffer buffer;  // [whole rows, then context tokens][vocab_size] float32
    PinnedBuffer best;    // BestLogits of the other rows
    size_t num_whole = 0;

    bool empty() const { return rows.empty() && context.empty(); }

    std::vector<HostRows::Row> memory;  // of `rows`
  };

  // `max_rows` of the logits of a step.
  LogitsToHost(Device& device, const BackendInfo& info, int max_rows);

  HostRows& rows() { return rows_; }
  const HostRows& rows() const { return rows_; }
  uint64_t pinned_bytes() const { return pinned_bytes_; }

  // kResourceExhausted when there is no memory for its rows.
  Status SetUp(const SlotSetup& setup);

  // Whether the host reads anything of the slot's rows.
  bool IsWanted(SlotId slot) const { return wants_[static_cast<size_t>(slot)].any(); }

  // What the host reads of a step; takes a buffer for it, until Release.
  void Find(const StepPlan& plan, Step* step);
  void Release(Step* step);

  // Between forward and sampling, which has those `params` and that `sampler`. Rows of searches are
  // no slot's in `logit_slots`, the row_slots of `params`, afterwards.
  Status CopyRows(const Step& step, const decoding::DeviceSampler& sampler,
                  const decoding::DeviceSampleParams& params, int32_t* logit_slots,
                  Stream* stream) const;
  // After sampling, by `rows`, [max_rows] of device memory that this fills.
  Status CopyContext(const Step& step, int32_t* rows, model::Decoder* decoder,
                     Stream* stream) const;

  // Of a step that has ended: calls `read` for each of its rows, those of different slots at once.
  void Read(const Step& step, const std::function<void(HostRows::Row*)>& read);
  void ReturnContext(const Step& step, StepResult* result) const;

 private:
  struct Wants {
    int num_rows = 0;     // whole ones of each step that yields
    int num_context = 0;  // tokens of the prompt in all
    bool best = false;    // of a search's rows
    bool any() const { return num_rows + num_context > 0 || best; }
  };

  // Buffers of one size; steps in flight may still have smaller ones. These are kept until it grows
  // again, since CUDA takes pinned memory back only when the GPU is idle.
  struct Pool {
    std::vector<PinnedBuffer> free;
    std::vector<PinnedBuffer> outgrown;
    size_t buffer_bytes = 0;
  };

  size_t RowBytes() const { return static_cast<size_t>(vocab_size_) * sizeof(float); }
  float* RowOf(const Step& step, size_t row) const {
    return reinterpret_cast<float*>(step.buffer.data() + row * RowBytes());
  }
  Status Reserve();
  Status Grow(Pool* pool, size_t wanted, size_t num_bytes);
  static PinnedBuffer Take(Pool* pool, size_t num_bytes);
  static void GiveBack(Pool* pool, PinnedBuffer buffer);

  Device& device_;
  const int vocab_size_;
  const int max_rows_;    // of the logits of a step
  const int max_drafts_;  // of a row
  const int max_tokens_;  // of a step
  const int depth_;
  HostRows rows_;
  std::vector<Wants> wants_;  // [max_slots]
  Pool whole_;                // of whole rows
  Pool best_;                 // of what the device chose
  uint64_t pinned_bytes_ = 0;
};

}  // namespace inflight::executor::cuda
