// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/text_log_probs.h"

#include <algorithm>

#include "protocol/openai/log_probs.h"

namespace inflight::openai {

void TextLogProbs::Add(const Response& response) {
  for (size_t i = 0; i < response.output_ids.size(); ++i) {
    const std::string bytes = tokenizer_->TokenBytes(response.output_ids[i]);
    if (bytes.empty()) continue;
    bytes_.append(bytes);
    Token& token = tokens_.emplace_back(Token{.end = bytes_.size(), .item = {}});
    AppendLogProb(*tokenizer_, response, i, num_top_, token.item);
  }
}

std::string TextLogProbs::Take(std::string_view text) {
  // What is not found as it is, such as bytes that make no character, was written by all of them.
  const size_t found = bytes_.find(text);
  const size_t begin = found == std::string::npos ? 0 : found;
  const size_t end = found == std::string::npos ? bytes_.size() : found + text.size();
  std::string items;
  size_t token_begin = 0;
  for (Token& token : tokens_) {
    if (token_begin >= end) break;
    if (token.end > begin && !token.is_told) {
      if (!items.empty()) items.push_back(',');
      items.append(token.item);
      token.is_told = true;
    }
    token_begin = token.end;
  }
  DropBefore(end);
  return items;
}

void TextLogProbs::Skip(std::string_view text) {
  const size_t found = bytes_.find(text);
  DropBefore(found == std::string::npos ? bytes_.size() : found + text.size());
}

void TextLogProbs::DropBefore(size_t end) {
  const auto kept =
      std::ranges::find_if(tokens_, [end](const Token& token) { return token.end > end; });
  tokens_.erase(tokens_.begin(), kept);
  for (Token& token : tokens_) token.end -= end;
  bytes_.erase(0, end);
}

}  // namespace inflight::openai
