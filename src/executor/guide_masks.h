// SPDX-License-Identifier: Apache-2.0
// The masks of guided sequences, for a backend that takes them as late inputs: they are found on
// the host while the device runs the forward pass of the step that they are for, once the tokens
// before are known. A row with drafts has a mask for what may come behind each of them, as far as
// the guide lets them come: of a chain, or of a tree behind the way to each node.
//
// Threads: the step loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "executor/late_input_source.h"
#include "executor/sequence.h"

namespace inflight::executor {

class GuideMasks final : public LateInputSource {
 public:
  // `draft_parents` as of BackendInfo.
  GuideMasks(int vocab_size, std::vector<int> draft_parents);

  // Where a sequence that gets its slot stands in its guide. The places of beams, and of a sequence
  // whose request came with drafts, are the backend's.
  static void SetUp(Sequence* sequence);

  bool Wants(const Sequence& sequence) const override { return sequence.guide != nullptr; }
  // From where nothing may come on no token has a bit: what the device draws there is not taken.
  void Fill(Sequence& sequence, std::span<const TokenId> drafts, LateInputs* inputs) override;

  // How many of the tokens that the device drew with those masks count. `verdict` says why no more
  // do, and is kTokens where all do. `accepted_nodes` as of StepResult.
  static size_t Follow(Sequence& sequence, std::span<const TokenId> drawn, uint64_t accepted_nodes,
                       decoding::GuideVerdict* verdict);

 private:
  std::vector<uint32_t>& MaskOf(size_t place);
  // Of a draft, both with 0 for the row's newest token.
  size_t ParentOf(size_t draft) const {
    return draft_parents_.empty() ? draft - 1 : static_cast<size_t>(draft_parents_[draft - 1] + 1);
  }

  const size_t num_words_;                      // of a mask
  const std::vector<uint32_t> nothing_;         // a mask without bits
  const std::vector<int> draft_parents_;        // empty: drafts are a chain
  std::vector<std::vector<uint32_t>> allowed_;  // of a step
  // Of a row: where its drafts, from 1 on, stand in the guide; null: they may not come.
  std::vector<std::unique_ptr<decoding::GuidedSlot>> behind_;
};

}  // namespace inflight::executor
