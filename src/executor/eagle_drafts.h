// SPDX-License-Identifier: Apache-2.0
// Trees of drafts by a head of EAGLE (docs/reference/speculation.md, "EAGLE"): a node of choice c
// is the c-th best token behind its parent, by the head's state there.
//
// The head follows every sequence: of each token that a step settled there is a pair (feature of
// the token, the token after it), whose key and value stand at the token's place in blocks of the
// same numbers as the model's. So they are reused, paused and moved to the host as the model's are.
// A pair is there once its next token is known; of a block that another sequence goes on from, the
// last pair is that of the first one's next token.
//
// Keys and values of a pair depend on nothing else, so that of prompts, and of what waits, they
// alone are computed. Pairs of what is drawn wait, their features in a ring of each slot, until
// drafts are planned for the sequence, a ring is full, or the sequence has no row in a step and may
// be about to leave its blocks to others; those of all are then computed at once. Only of a
// sequence's last pair, from which its tree begins, and of its tree's nodes the layer is computed.
//
// Threads: one thread.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "executor/kv_storage.h"
#include "executor/memory_plan.h"
#include "executor/rank_leader.h"
#include "executor/tree_source.h"
#include "model/eagle_decoder.h"
#include "ops/backend.h"
#include "tensor/buffer.h"

namespace inflight::executor {

class EagleDrafts : public TreeSource {
 public:
  ~EagleDrafts() override;

  // Of a plan that has a tree; `ops` fit the head's layer. Of an engine that holds a part of the
  // model `leader` tells the others what the head uses of theirs; it outlives this.
  static Result<std::unique_ptr<EagleDrafts>> Create(std::shared_ptr<const model::EagleHead> head,
                                                     std::shared_ptr<const model::Engine> engine,
                                                     Device& device, const MemoryPlan& plan,
                                                     const ops::OpTable& ops,
                                                     RankLeader* leader = nullptr);

  // What Create takes beside keys and values.
  static uint64_t Bytes(const model::EagleConfig& config, const model::ModelConfig& model,
                        int max_seq_len, int max_num_tokens, int max_slots);

  const decoding::DraftTree& tree() const override { return tree_; }
  Status Draft(std::span<const Ask> asks, model::Decoder& decoder,
               inflight::Stream& stream) override;
  const model::KeptResiduals* residuals() const override {
    return kept_.layers.empty() ? nullptr : &kept_;
  }
  Status SetUp(scheduler::SlotId slot, model::Decoder& decoder, inflight::Stream& stream) override;
  Status Prepare(const scheduler::StepPlan& plan, model::Decoder& decoder,
                 inflight::Stream& stream) override;
  Status Follow(std::span<const Step> steps, model::Decoder& decoder,
                inflight::Stream& stream) override;
  void CopyBlocks(std::span<const scheduler::HostBlockCopy> copies, CpuPool& pool) override {
    kv_.CopyBlocks(copies, pool);
  }

 private:
  static constexpr int kRing = 32;  // features that are kept of a slot, of its newest pairs
  static constexpr int kFew = 8;    // pairs that wait no longer than until the sequence's next tree

  explicit EagleDrafts(decoding::DraftTree tree);

  // The pairs of one forward pass.
  struct Pairs {
    std::vector<int32_t> ids, features, positions, cu_seqlens_q, seq_lens_kv, block_tables;
    std::vector<int64_t> slot_mapping, tree_masks;

    int num_rows() const { return static_cast<int>(seq_lens_kv.size()); }
    int num_tokens() const { return static_cast<int>(ids.size()); }
    void Clear();
  };
  TokenId KnownId(TokenId token) const { return token >= 0 && token < vocab_size_ ? token : 0; }
  int64_t MappingOf(int place, const int32_t* blocks) const;
  void AddPair(TokenId token, int32_t feature, int position, int place, const int32_t* blocks);
  // The pairs since the last row are a row, of a sequence of `num_places` places.
  void EndRow(int num_places, const int32_t* blocks);
  model::EagleBatch BatchOf(const Pairs& pairs, const TensorView& features, bool are_own) const;
  Result<TensorView> Forward(const TensorView& features, bool are_own, inflight::Stream& stream);

  // A slot's newest pairs: that of a place has entry place % kRing, and as many rows of ring_.
  struct Kept {
    int end = -1;          // one past the last pair's place; -1: there is none
    int num_pending = 0;   // whose keys and values are missing: the last ones
    size_t num_known = 0;  // tokens that the slot had then
    std::array<TokenId, kRing> tokens = {};
    std::array<int64_t, kRing> mappings = {};  // where key and value belong
  };
  int32_t RingRow(scheduler::SlotId slot, int place) const { return slot * kRing + place % kRing; }
  bool IsSeen(int place, int end) const;
  // The pair of a place, behind those that are kept; its feature is row `token` of `features`.
  Status Keep(const Step& step, int place, const TensorView& features, int token, bool is_pending,
              inflight::Stream& stream);
  // Keys and values of the pairs that wait, of all slots.
  Status WritePending(inflight::Stream& stream);
  Status WritePairs(const TensorView& features, Pairs& pairs, inflight::Stream& stream);
  // Of a prompt's part.
  Status FollowChunk(const Step& step, int end, const TensorView& features,
                     inflight::Stream& stream);
  int NumOfRoot(const Ask& ask) const;

  // An ask that is answered, and where its nodes are.
  struct Drafting {
    const Ask* ask = nullptr;
    int32_t root = 0;      // the row of its last pair in the first forward pass
    int num_computed = 0;  // nodes whose pairs were computed; they stand behind each other
    // [nodes] of those: their places among them, and their rows in the last forward pass.
    std::vector<int> order, rows;
  };
  Status DraftSome(std::span<const Ask* const> asks, inflight::Stream& stream);
  bool HasChild(const Ask& ask, int node) const;
  void AddNodes(Drafting* drafting, int depth);
  // Fills the children of nodes, those whose `parents` are given with the rows of their states.
  struct Parent {
    const Ask* ask = nullptr;
    int node = 0;  // -1: the root
    int32_t row = 0;
  };
  Status ChooseChildren(const TensorView& states, inflight::Stream& stream);

  // The table and the head of a model on ranks.
  class RankedTarget;

  const decoding::DraftTree tree_;
  std::unique_ptr<RankedTarget> target_;  // null: the engine has all of the model
  std::unique_ptr<model::EagleDecoder> decoder_;
  KvStorage kv_;
  ops::SlidingWindow sliding_;
  int vocab_size_ = 0, max_pairs_ = 0, max_blocks_ = 0;
  Buffer buffer_;
  model::KeptResiduals kept_;
  TensorView ring_;               // [max_slots * kRing, feature_width]
  std::vector<Kept> kept_pairs_;  // [max_slots]
  // Of a call.
  Pairs pairs_, due_;
  std::vector<bool> has_row_;  // [max_slots] in a step
  std::vector<const Ask*> asks_;
  std::vector<Drafting> drafting_;
  std::vector<Parent> parents_;
  std::vector<int32_t> rows_;
};

}  // namespace inflight::executor
