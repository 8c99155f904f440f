// SPDX-License-Identifier: Apache-2.0
// Runs a model::Decoder over a paged KV cache whose blocks lie in shuffled order, as the executor
// would, but in a few lines that tests can read.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "inflight/request.h"
#include "model/decoder.h"
#include "tensor/buffer.h"

namespace inflight::golden {

// Tokens that one sequence adds in a step.
struct Piece {
  size_t sequence = 0;
  std::span<const TokenId> tokens;  // at least one
};

class PagedModel {
 public:
  // On a GPU the pieces of a step that hold one token come before the others, as the executor has
  // them.
  PagedModel(std::shared_ptr<const model::Engine> engine, const ops::OpTable& ops, Device& device,
             size_t num_sequences, int block_size, const model::AttentionWindows& windows = {},
             model::WeightStream* weight_stream = nullptr);

  // Appends the pieces in one step. Returns logits [num_tokens of all pieces][vocab_size], or with
  // `last_only` those of each piece's last token.
  std::vector<std::vector<float>> Step(std::span<const Piece> pieces, bool last_only);

  model::Decoder& decoder() { return *decoder_; }  // of the last step

  // Filled by each step from now on.
  void Keep(const model::KeptResiduals* kept) { kept_ = kept; }

 private:
  void AddRow(const Piece& piece, bool last_only);
  std::vector<std::vector<float>> Forward();
  // `values` on the device.
  template <typename T>
  TensorView Upload(const std::vector<T>& values, DType dtype, Shape shape);

  std::shared_ptr<const model::Engine> engine_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Buffer inputs_;
  size_t inputs_used_ = 0;
  std::unique_ptr<model::Decoder> decoder_;
  const model::KeptResiduals* kept_ = nullptr;
  Buffer kv_buffer_;
  ops::KvCacheView kv_;
  std::vector<std::vector<int32_t>> block_tables_;  // [num_sequences][max_blocks_per_seq]
  std::vector<int32_t> seq_lens_;                   // [num_sequences]

  // One step's inputs, as ops::PagedBatch names them.
  std::vector<int32_t> ids_, positions_, cu_seqlens_, seq_lens_kv_, tables_, logit_rows_;
  std::vector<int64_t> slot_mapping_;
};

// Logits of every position of `ids`, which sequence 0 of a new model gets in pieces of the sizes in
// `chunks`, repeated.
std::vector<std::vector<float>> AllLogits(PagedModel& model, std::span<const TokenId> ids,
                                          std::span<const size_t> chunks);

}  // namespace inflight::golden
