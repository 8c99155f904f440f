// SPDX-License-Identifier: Apache-2.0
// A guide as an automaton over a vocabulary's trie (inflight/guide.h).
#pragma once

#include <memory>

#include "grammar/automaton.h"
#include "grammar/budget.h"
#include "grammar/state_masks.h"
#include "grammar/token_trie.h"
#include "inflight/bad_texts.h"
#include "inflight/guide.h"

namespace inflight::grammar {

inline constexpr uint64_t kMaxMaskSteps = 8'000'000;  // of one mask

class CompiledGuide : public Guide, public std::enable_shared_from_this<CompiledGuide> {
 public:
  CompiledGuide(Automaton automaton, std::shared_ptr<const TokenTexts> texts);

  std::unique_ptr<GuideState> Begin() const override;
  int num_tokens() const override { return trie_->num_tokens; }
  uint64_t bytes() const override;

  const Automaton& automaton() const { return automaton_; }
  const TokenTrie& trie() const { return *trie_; }
  const TokenTexts& texts() const { return *texts_; }
  StateMasks& masks() const { return masks_; }

 private:
  const Automaton automaton_;
  const std::shared_ptr<const TokenTexts> texts_;
  const std::shared_ptr<const TokenTrie> trie_;
  mutable StateMasks masks_;
};

// MakeGuide with what compiling may cost.
Result<std::shared_ptr<const Guide>> CompileGuide(const GuideSpec& spec,
                                                  std::shared_ptr<const TokenTexts> tokens,
                                                  Budget budget);

}  // namespace inflight::grammar
