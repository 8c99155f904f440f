// SPDX-License-Identifier: Apache-2.0
#include "decoding/bans.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "decoding/weights.h"
#include "inflight/bad_texts.h"

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

// The last `size` bytes of the text of `ids`, or all of it.
std::string EndOfText(const TokenTexts& tokens, std::span<const TokenId> ids, size_t size) {
  std::string text(size, '\0');
  size_t begin = size;
  for (size_t i = ids.size(); i > 0 && begin > 0; --i) {
    const std::string_view token = tokens.Of(ids[i - 1]);
    const size_t count = std::min(begin, token.size());
    begin -= count;
    token.copy(text.data() + begin, count, token.size() - count);
  }
  return text.substr(begin);
}

void BanTexts(const BadTexts& bad, std::span<const TokenId> ids, std::span<float> logits) {
  for (const TokenId id : bad.banned) Set(id, kBanned, logits);
  const std::string end = EndOfText(*bad.tokens, ids, bad.longest);
  if (end.empty()) return;
  const auto last_byte = static_cast<size_t>(static_cast<unsigned char>(end.back()));
  for (uint32_t i = bad.groups[last_byte]; i < bad.groups[last_byte + 1]; ++i) {
    const BadTexts::Completion& completion = bad.completions[i];
    const auto before = std::string_view(bad.texts).substr(completion.begin, completion.size);
    if (!std::string_view(end).ends_with(before)) continue;
    for (int32_t at = completion.first; at < completion.last; ++at)
      Set(bad.tokens->sorted[static_cast<size_t>(at)], kBanned, logits);
  }
}

}  // namespace

void Ban(const SamplingRule& rule, std::span<const TokenId> tokens, std::span<float> logits) {
  if (tokens.size() < static_cast<size_t>(rule.first_end_position))
    for (const TokenId id : rule.end_ids) Set(id, kSuppressed, logits);
  if (rule.no_repeat_ngram_size > 0)
    BanRepeatedNgrams(static_cast<size_t>(rule.no_repeat_ngram_size), tokens, logits);
  for (const std::vector<TokenId>& word : rule.bad_words) BanWord(word, tokens, logits);
  if (rule.bad_texts != nullptr) BanTexts(*rule.bad_texts, tokens, logits);
}

}  // namespace inflight::decoding
