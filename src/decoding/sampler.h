// SPDX-License-Identifier: Apache-2.0
// From a row of logits to the next token: temperature, penalties, top-k, top-p, min-p, and
// log-probs (docs/reference/decoding.md).
//
// Order, on the row in place: embedding bias; temperature l / (T + 1e-6) unless T = 1; repetition
// (l < 0 ? l r : l / r), then presence (- p) and frequency (- f count) for every distinct token of
// prompt and output; bans (bans.h); the guide (guided_slot.h); min-p; top-k or top-p, which may
// decay; typical-p; draw. Rows that ask for nothing pay for an arg-max only. NaN counts as -inf.
//
// cuda/device_sampler.h gives the same ids: weights are integers, and what leads to them is the
// arithmetic of weights.h.
//
// Threads: Setup and Restart from one thread; Sample and Append may run for different slots at
// once.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "decoding/guided_slot.h"
#include "decoding/sampling_rule.h"

namespace inflight::decoding {

struct SampledToken {
  TokenId id = 0;
  float log_prob = 0;      // for output_log_probs: over the vocabulary, or over the top-k set of a
                           // sampled row that normalises
  float log_prob_all = 0;  // over the vocabulary always; what cum_log_probs sums
  // Of the slot's guide; other than kTokens: no token was drawn.
  GuideVerdict verdict = GuideVerdict::kTokens;
};

// A token that somebody proposed, and what it was drawn from.
struct DraftToken {
  TokenId id = 0;
  std::span<const float> logits;              // [vocab_size] as its model gave them
  std::optional<float> acceptance_threshold;  // in (0, 1]
};

class Sampler {
 public:
  // `max_concurrency` bounds how many Sample calls run at once.
  Sampler(int max_slots, int vocab_size, int max_concurrency);

  // What the slots hold once each has had a sequence with penalties.
  static uint64_t Bytes(int max_slots, int vocab_size, int max_seq_len);

  ~Sampler();

  // Starts a slot's sequence, at most `max_seq_len` tokens long, with those known so far: penalties
  // count them, and a top-p that decays is where they lead.
  void Setup(int slot, const SamplingRule& rule, std::span<const TokenId> tokens, int max_seq_len);

  // The same with the rule that the slot has: its sequence is another one now, which stands at
  // that place in its guide.
  void Restart(int slot, std::span<const TokenId> tokens, int max_seq_len,
               std::unique_ptr<GuidedSlot> guide = nullptr);
  const GuidedSlot* guide(int slot) const;                 // null where it has none
  std::unique_ptr<GuidedSlot> CloneGuide(int slot) const;  // likewise

  // The slot's sequence is over: what is kept for its guide goes.
  void Release(int slot);

  // What comes before drawing, and before a beam search: everything that changes logits, in place.
  void Process(int slot, std::span<const TokenId> tokens, float* logits);

  // Processes the row and draws the token that comes after `tokens`, all of the slot's sequence.
  // `logits` [vocab_size] are the processed ones afterwards. Ties go to the lowest id. Log-probs
  // are computed only if the rule wants them, and 0 where the largest logit is not finite: the id
  // is then the arg-max.
  SampledToken Sample(int slot, std::span<const TokenId> tokens, float* logits);

  // As Sample, but a draft of a sequence that drafts lead to `guide`, which is null where the slot
  // has none.
  SampledToken SampleDraft(int slot, std::span<const TokenId> tokens, float* logits,
                           GuidedSlot* guide);

  // As Sample, but the token is the draft, if it is accepted, or one that replaces it
  // (draft_acceptance.h): the draft's logits are processed by the slot's rule, as those of a model
  // that draws drafts by the same rule. A draft that the rule bans came from a model with another
  // rule, and says nothing: a token is drawn as by Sample. Not with typical-p.
  SampledToken Verify(int slot, std::span<const TokenId> tokens, float* logits,
                      const DraftToken& draft);

  // A token was generated and joined the slot's sequence.
  void Append(int slot, TokenId token);

 private:
  struct Candidate {
    float distance;
    int32_t weight;
    TokenId id;
  };
  struct Slot;
  class Scratch;

  void Count(Slot& slot, TokenId token) const;
  GuideVerdict Edit(const Slot& slot, GuidedSlot* guide, std::span<const TokenId> tokens,
                    float* logits) const;
  // Of logits that Edit left, by a number in (0, 1].
  SampledToken Draw(const Slot& slot, double uniform, const float* logits);
  void ApplyPenalties(const Slot& slot, float* logits) const;
  SampledToken SampleTopK(const SamplingRule& rule, double uniform, const float* logits, float max,
                          std::vector<Candidate>& candidates) const;
  SampledToken SampleTopP(const Slot& slot, double uniform, const float* logits, float max,
                          std::vector<Candidate>& candidates) const;
  static Candidate DrawTypical(float top_p, float typical_p, double uniform,
                               std::vector<Candidate>& candidates);

  const int vocab_size_;
  std::vector<Slot> slots_;
  // One candidate list per concurrent call, claimed by flag.
  struct Lane {
    std::atomic_flag busy = ATOMIC_FLAG_INIT;
    std::vector<Candidate> candidates;
  };
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace inflight::decoding
