// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/status_macros.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

constexpr size_t kMaxContentBytes = 4096;  // bounds the cost of a failed match at each character

size_t BlanksBefore(std::string_view text, size_t pos) {
  const CharTable& table = CharTable::Get();
  while (pos > 0) {
    const Char c = CharBefore(text, pos);
    if (!(table.Flags(c.code) & kSpace)) break;
    pos -= c.size;
  }
  return pos;
}

size_t BlanksBehind(std::string_view text, size_t pos) {
  const CharTable& table = CharTable::Get();
  uint32_t size;
  while (pos < text.size() && (table.FlagsAt(text.data() + pos, &size) & kSpace)) pos += size;
  return pos;
}

bool IsSingleWord(std::string_view text, size_t begin, size_t end) {
  const CharTable& table = CharTable::Get();
  if (begin > 0 && (table.Flags(CharBefore(text, begin).code) & kWord)) return false;
  uint32_t size;
  return end == text.size() || !(table.FlagsAt(text.data() + end, &size) & kWord);
}

}  // namespace

Status AddedTokens::Add(AddedToken token, const Vocab& vocab, const Normalizer& normalizer) {
  if (token.content.empty()) return Status::Ok();
  std::optional<TokenId> id = Find(token.content);
  if (!id) id = vocab.Find(token.content);
  if (!id) id = std::max(end_id(), static_cast<TokenId>(vocab.size()));
  return Insert(std::move(token), *id, normalizer);
}

Status AddedTokens::AddAs(AddedToken token, TokenId id, const Normalizer& normalizer) {
  if (token.content.empty()) return InvalidArgument("content: must not be empty");
  const auto other = Find(token.content);
  if (other || Get(id) != nullptr)
    return InvalidArgument(other ? "content: is that of id " + std::to_string(*other) + " too"
                                 : "id " + std::to_string(id) + " is listed twice");
  return Insert(std::move(token), id, normalizer);
}

Status AddedTokens::Insert(AddedToken token, TokenId id, const Normalizer& normalizer) {
  if (token.content.size() > kMaxContentBytes) {
    return InvalidArgument("content: got " + std::to_string(token.content.size()) +
                           " bytes, allowed are " + std::to_string(kMaxContentBytes));
  }
  if (id > kMaxTokenId) {
    return InvalidArgument("got id " + std::to_string(id) + ", allowed are 0 to " +
                           std::to_string(kMaxTokenId));
  }
  std::string decoder_form = token.content;
  if (token.normalized) RETURN_IF_ERROR(normalizer.Apply(decoder_form));
  (token.normalized ? normalized_ : raw_).Add(decoder_form, id);
  ids_[token.content] = id;
  if (token.special && special_contents_.insert(token.content).second)
    specials_.Add(token.content, id);
  tokens_[id] = {std::move(token), std::move(decoder_form)};
  return Status::Ok();
}

bool AddedTokens::TakeBlanks() const {
  return std::ranges::any_of(tokens_, [](const auto& entry) {
    return entry.second.token.lstrip || entry.second.token.rstrip;
  });
}

std::optional<TokenId> AddedTokens::Find(std::string_view content) const {
  const auto it = ids_.find(std::string(content));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

const AddedToken* AddedTokens::Get(TokenId id) const {
  const auto it = tokens_.find(id);
  return it == tokens_.end() ? nullptr : &it->second.token;
}

std::string_view AddedTokens::DecoderForm(TokenId id) const {
  const auto it = tokens_.find(id);
  return it == tokens_.end() ? std::string_view() : std::string_view(it->second.decoder_form);
}

void AddedTokens::Split(const StringMatcher& matcher, std::string_view text,
                        std::span<const size_t> plain_at, std::vector<Part>& parts) const {
  size_t covered = 0;  // behind the last token, with the blanks it took along
  size_t next = 0;     // where the search goes on: behind the last token itself
  while (const auto match = matcher.FindFrom(text, next)) {
    const AddedToken& token = tokens_.at(match->id).token;
    if (token.special && std::ranges::binary_search(plain_at, match->begin)) {
      next = match->begin + 1;
      continue;
    }
    next = match->end;
    if (token.single_word && !IsSingleWord(text, match->begin, match->end)) continue;
    size_t begin = match->begin, end = match->end;
    if (token.lstrip) begin = std::max(BlanksBefore(text, begin), covered);
    if (token.rstrip) end = BlanksBehind(text, end);
    if (covered < begin) parts.push_back({covered, begin, -1});
    parts.push_back({begin, end, match->id});
    covered = end;
  }
  if (covered < text.size()) parts.push_back({covered, text.size(), -1});
}

std::vector<size_t> AddedTokens::FindSpecial(std::string_view text) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < text.size(); ++i)
    if (specials_.LongestAt(text, i)) found.push_back(i);
  return found;
}

}  // namespace inflight::tokenizer
