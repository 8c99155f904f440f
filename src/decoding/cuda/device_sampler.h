// SPDX-License-Identifier: Apache-2.0
// decoding/sampler.h on a GPU: for the same logits, rule, tokens and position both give the same
// id; log-probs agree within 1e-5. Programs built without CUDA link device_sampler_absent.cc.
//
// The rules live on the device, by slot: with room for the longest lists of words and for a bias of
// the whole vocabulary, in device memory and once more in pinned memory, from where Setup uploads
// what a request has of them. Bad texts take memory when they come, which is kept for others.
// Tokens and their counts belong to the caller, are read for penalties, bans and the position of
// the draw, and grow by what is drawn.
//
// Threads: used by one thread at a time. Setup and Sample only enqueue, in the stream's order, and
// can be captured into a graph. All memory is taken in Create, but for a rule with bad texts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "decoding/best_logits.h"
#include "decoding/cuda/bad_text_tables.h"
#include "decoding/sampler.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace inflight::decoding {

struct SampleKernelParams;  // cuda/row_chunk.cuh
struct SlotRule;            // cuda/slot_rule.h

// All pointers are the device's, or of pinned host memory.
struct DeviceSampleParams {
  // [num_rows] each slot at most once, unless row_positions are given; -1 = a row of padding, for
  // which nothing is written.
  const int32_t* row_slots = nullptr;
  // [num_rows] how many tokens of its slot each row's draw follows, num_tokens of the slot or more:
  // then the slot's next tokens are drafts, and nothing is appended. Null: num_tokens.
  const int32_t* row_positions = nullptr;
  // [num_rows, kTextShifts] where drafts are a tree; null: they are not. Of row r's text the token
  // i before its last stands row_shifts[r][i] places behind its position; those of i >= kTextShifts
  // stand at theirs.
  const uint8_t* row_shifts = nullptr;
  static constexpr int kTextShifts = 16;
  int num_rows = 0;
  float* logits = nullptr;  // [num_rows, vocab_size] scratch afterwards
  // False: every row is greedy, a cheaper kernel. Rules of rows that sample are then taken as
  // greedy.
  bool any_row_samples = true;

  int32_t* tokens = nullptr;      // [max_slots, max_seq_len] prompt and output
  int32_t* num_tokens = nullptr;  // [max_slots] one more after the step; a full slot stays as it is
  int max_seq_len = 0;

  // As SampledToken; the log-probs of rows that do not want them are 0.
  int32_t* ids = nullptr;          // [num_rows]
  float* log_probs = nullptr;      // [num_rows]
  float* log_probs_all = nullptr;  // [num_rows]
};

class DeviceSampler {
 public:
  // `may_use_clusters` false: as on GPUs before compute capability 9.0, one CTA for a row.
  static Result<std::unique_ptr<DeviceSampler>> Create(Device& device, int max_slots,
                                                       int vocab_size,
                                                       bool may_use_clusters = true);
  // What Create takes of the device, booked as "sampler".
  static uint64_t Bytes(int max_slots, int vocab_size);

  uint64_t pinned_bytes() const { return pinned_.size() + bad_texts_.pinned_bytes(); }

  // Starts a slot's sequence with those tokens. What the caller keeps of it, tokens and num_tokens,
  // must be written before the next Sample in the order of the stream. No step that holds the slot
  // may be in flight.
  Status Setup(int slot, const SamplingRule& rule, std::span<const TokenId> tokens, Stream& stream);

  // Draws one token for each row, appends it to its slot and writes it to the results.
  Status Sample(const DeviceSampleParams& params, Stream& stream) const;

  // Draws nothing: to `best`, [num_rows] of BestLogits::Bytes(count) in pinned or device memory,
  // the `count` best logits of each row after what its slot's rule changes of them. No results of
  // `params` are written.
  Status FindBest(const DeviceSampleParams& params, int count, BestLogits* best,
                  Stream& stream) const;

 private:
  DeviceSampler(Device& device, int max_slots, int vocab_size)
      : max_slots_(max_slots), vocab_size_(vocab_size), bad_texts_(device, max_slots) {}

  SampleKernelParams KernelParams(const DeviceSampleParams& params, int chunk_size) const;

  // Unused where the build has no CUDA.
  [[maybe_unused]] const int max_slots_;
  [[maybe_unused]] const int vocab_size_;
  [[maybe_unused]] int cluster_size_ = 1;          // CTAs that share a row
  [[maybe_unused]] bool row_is_resident_ = false;  // whether their shared memory holds it
  [[maybe_unused]] Buffer rules_;                  // [max_slots] SlotRule
  [[maybe_unused]] Buffer edits_;  // [max_slots, kMaxListSize] int32, [max_slots, vocab_size] float
  PinnedBuffer pinned_;            // the same
  [[maybe_unused]] BadTextTables bad_texts_;
};

}  // namespace inflight::decoding
