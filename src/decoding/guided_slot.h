// SPDX-License-Identifier: Apache-2.0
// Where one sequence stands in its guide (inflight/guide.h): what of a row of logits may come, the
// ids that end the sequence among it, and what became of it.
//
// Threads: one at a time per object.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "inflight/guide.h"
#include "inflight/status.h"

namespace inflight::decoding {

// What a guide leaves of a row.
enum class GuideVerdict : uint8_t {
  kTokens,       // one of those that are left comes; also of a row that has no guide
  kEnd,          // the text is whole, nothing may follow, and no id ends the sequence: it ends here
  kNone,         // no token may come, and the text is not whole
  kTooMuchWork,  // what may come was not found within its bound of work
};

// Why a request ends that got such a verdict; OK for the first two.
Status StatusOf(GuideVerdict verdict, bool is_guided = true);

class GuidedSlot {
 public:
  // Of a sequence that generated so much. `end_ids` end it: they may come where the text may end,
  // and nowhere else.
  GuidedSlot(const Guide& guide, std::span<const TokenId> end_ids,
             std::span<const TokenId> generated);

  // The same place, for a beam that forks.
  std::unique_ptr<GuidedSlot> Clone() const;

  // The tokens that may come next, `allowed` [ceil(vocab_size / 32)] as GuideState::Mask has it,
  // with the end ids.
  GuideVerdict FindAllowed(std::span<uint32_t> allowed);

  // Bans all other tokens in place, `logits` [vocab_size].
  GuideVerdict Ban(std::span<float> logits);

  GuideVerdict verdict() const { return verdict_; }  // of the last FindAllowed

  // A token came next. False where it may not: then nothing more may, as behind an id that ends the
  // sequence.
  bool Accept(TokenId token);

  // How many of `tokens` may come one after another. The place stays as it is.
  size_t NumThatMayCome(std::span<const TokenId> tokens) const;

 private:
  GuidedSlot() = default;
  GuideVerdict Find(std::span<uint32_t> allowed);

  std::unique_ptr<GuideState> state_;
  size_t num_words_ = 0;  // of the guide's masks
  std::vector<TokenId> end_ids_;
  std::vector<uint32_t> allowed_;  // of Ban
  GuideVerdict verdict_ = GuideVerdict::kTokens;
  bool has_left_ = false;   // a token came that may not
  bool has_ended_ = false;  // an id that ends the sequence came
};

}  // namespace inflight::decoding
