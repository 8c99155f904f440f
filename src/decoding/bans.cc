// SPDX-License-Identifier: Apache-2.0
#include "decoding/bans.h"

#include <algorithm>

#include "decoding/weights.h"

namespace inflight::decoding {
namespace {

void Set(TokenId token, float value, std::span<float> logits) {
  if (token >= 0 && static_cast<size_t>(token) < logits.size())
    logits[static_cast<size_t>(token)] = value;
}

void BanRepeatedNgrams(size_t size, std::span<const TokenId> tokens, std::span<float> logits) {
  if (tokens.size() < size) return;
  const auto prefix = tokens.last(size - 1);
  for (size_t i = 0; i + size <= tokens.size(); ++i)
    if (std::ranges::equal(prefix, tokens.subspan(i, size - 1)))
      Set(tokens[i + size - 1], kBanned, logits);
}

void BanWord(std::span<const TokenId> word, std::span<const TokenId> tokens,
             std::span<float> logits) {
  const auto prefix = word.first(word.size() - 1);
  if (prefix.size() <= tokens.size() && std::ranges::equal(prefix, tokens.last(prefix.size())))
    Set(word.back(), kBanned, logits);
}

}  // namespace

void Ban(const SamplingRule& rule, std::span<const TokenId> tokens, std::span<float> logits) {
  if (tokens.size() < static_cast<size_t>(rule.first_end_position))
    for (const TokenId id : rule.end_ids) Set(id, kSuppressed, logits);
  if (rule.no_repeat_ngram_size > 0)
    BanRepeatedNgrams(static_cast<size_t>(rule.no_repeat_ngram_size), tokens, logits);
  for (const std::vector<TokenId>& word : rule.bad_words) BanWord(word, tokens, logits);
}

}  // namespace inflight::decoding
