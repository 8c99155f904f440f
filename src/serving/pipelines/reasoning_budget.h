// SPDX-License-Identifier: Apache-2.0
// A bound of the tokens that a model reasons with before it answers: a guide (inflight/guide.h)
// that leaves all tokens free until they are used up, and then forces the tag that ends reasoning.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inflight/guide.h"
#include "inflight/request.h"

namespace inflight::serving {

struct ReasoningBudget {
  int max_tokens = 0;                 // between the tags
  std::string begin, end;             // the tags
  std::vector<TokenId> end_ids = {};  // what is forced, not empty
  bool has_begun = false;  // the prompt ends in reasoning; else it begins where `begin` comes first
  // Of reasoning in several messages, which share the tokens: with what one begins behind the end
  // of another, and what is forced in those behind the first that was cut. Empty: it has one end.
  std::string begin_again = {};
  std::vector<TokenId> end_again_ids = {};
};

// `text_of` tells the text of a token, and outlives the guide; blanks before `begin` do not count.
// `inner`: what guides the answer besides, from the end of reasoning on by itself; may be null.
std::shared_ptr<const Guide> GuideByBudget(ReasoningBudget budget, int vocab_size,
                                           std::function<std::string(TokenId)> text_of,
                                           std::shared_ptr<const Guide> inner);

}  // namespace inflight::serving
