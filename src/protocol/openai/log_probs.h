// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of tokens in the two forms of this API, written straight from an executor's
// response.
#pragma once

#include <cstddef>
#include <string>

#include "inflight/request.h"
#include "inflight/tokenizer.h"
#include "json/json_writer.h"

namespace inflight::openai {

// The bytes of a token's text; of a special one its name.
std::string BytesOfToken(const Tokenizer& tokenizer, TokenId id);

// Of the `index`th token of a response: {"token", "logprob", "bytes", "top_logprobs"}.
void AppendLogProb(const Tokenizer& tokenizer, const Response& response, size_t index, int num_top,
                   std::string& out);

// Of chat: the items of "content", as above, joined by commas.
void AppendChatLogProbs(const Tokenizer& tokenizer, const Response& response, int num_top,
                        std::string& out);

// Of completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of as many responses
// as were added.
class CompletionLogProbs {
 public:
  explicit CompletionLogProbs(size_t text_offset = 0) : offset_(text_offset) {}

  void Add(const Tokenizer& tokenizer, const Response& response, int num_top);
  size_t num_bytes() const {
    return tokens_.size() + log_probs_.size() + tops_.size() + offsets_.size();
  }
  void Write(std::string& out);  // and forgets what was added, but for the offset

 private:
  size_t offset_;                                    // in characters
  std::string tokens_, log_probs_, tops_, offsets_;  // elements, joined by commas
};

}  // namespace inflight::openai
