// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of the tokens that wrote one part of an answer, where the answer has others:
// tags, reasoning and calls are written by tokens, too. A token is told with the first text that
// has a character of it; one that wrote none, such as the end of the answer, is not told.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/request.h"
#include "inflight/tokenizer.h"

namespace inflight::openai {

class TextLogProbs {
 public:
  // `num_top`: how many likely tokens are told beside each.
  TextLogProbs(std::shared_ptr<const Tokenizer> tokenizer, int num_top)
      : tokenizer_(std::move(tokenizer)), num_top_(num_top) {}

  // The next tokens of the answer, before the texts that they complete.
  void Add(const Response& response);
  // Items (AppendLogProb) of the tokens that wrote `text`, the next that is told, joined by commas.
  std::string Take(std::string_view text);
  // `text`, the next of the answer, is not told.
  void Skip(std::string_view text);

 private:
  struct Token {
    size_t end;  // in bytes_
    std::string item;
    bool is_told = false;
  };

  void DropBefore(size_t end);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const int num_top_;
  std::string bytes_;          // that no text was found to be yet
  std::vector<Token> tokens_;  // that wrote them
};

}  // namespace inflight::openai
