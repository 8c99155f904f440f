// SPDX-License-Identifier: Apache-2.0
// The masks of guided sequences, for a backend that takes them as late inputs: each is found on the
// host while the device runs the forward pass of the step that it is for, once the token before is
// known.
//
// Threads: the step loop's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/late_input_source.h"
#include "executor/sequence.h"

namespace inflight::executor {

class GuideMasks final : public LateInputSource {
 public:
  explicit GuideMasks(int vocab_size);

  // Where a sequence that gets its slot stands in its guide. Beams' places are the backend's.
  static void SetUp(Sequence* sequence);

  bool Wants(const Sequence& sequence) const override { return sequence.guide != nullptr; }
  // No mask where nothing may come: what the device draws for that row is not taken.
  void Fill(const Sequence& sequence, LateInputs* inputs) override;

  // What the last Fill found, and whether the tokens that the device drew then may come.
  static decoding::GuideVerdict Follow(Sequence& sequence, std::span<const TokenId> drawn);

 private:
  const size_t num_words_;                      // of a mask
  std::vector<std::vector<uint32_t>> allowed_;  // of a step
};

}  // namespace inflight::executor
