// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocab.h"

#include <functional>

#include "base/status_macros.h"

namespace inflight::tokenizer {

void StringTable::Set(TokenId id, std::string_view text) {
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(static_cast<size_t>(id) + 1);
  entries_[static_cast<size_t>(id)] = {bytes_.size(), static_cast<uint32_t>(text.size())};
  bytes_.append(text);
}

namespace {

std::string NameOfToken(std::string_view token) {
  return "vocab[\"" + std::string(token.substr(0, 100)) + "\"]: ";
}

}  // namespace

Status Vocab::CheckFree(std::string_view token, int64_t id) const {
  if (id < 0 || id > kMaxTokenId) {
    return InvalidArgument(NameOfToken(token) + "got id " + std::to_string(id) +
                           ", allowed are 0 to " + std::to_string(kMaxTokenId));
  }
  if (Has(static_cast<TokenId>(id))) {
    return InvalidArgument(NameOfToken(token) + "id " + std::to_string(id) +
                           " is already that of \"" +
                           std::string(Token(static_cast<TokenId>(id)).substr(0, 100)) + "\"");
  }
  return Status::Ok();
}

Status Vocab::Add(std::string_view token, int64_t id) {
  RETURN_IF_ERROR(CheckFree(token, id));
  if (2 * (count_ + 1) > slots_.size()) Grow();
  const size_t slot = Slot(token);
  if (slots_[slot] >= 0) return InvalidArgument(NameOfToken(token) + "the token is listed twice");
  tokens_.Set(static_cast<TokenId>(id), token);
  slots_[slot] = static_cast<TokenId>(id);
  ++count_;
  return Status::Ok();
}

Status Vocab::AddHomonym(std::string_view token, int64_t id) {
  RETURN_IF_ERROR(CheckFree(token, id));
  homonyms_.insert(static_cast<TokenId>(id));
  tokens_.Set(static_cast<TokenId>(id), token);
  ++count_;
  return Status::Ok();
}

std::optional<TokenId> Vocab::Find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const TokenId id = slots_[Slot(token)];
  if (id < 0) return std::nullopt;
  return id;
}

size_t Vocab::Slot(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t i = std::hash<std::string_view>()(token) & mask;
  while (slots_[i] >= 0 && tokens_[slots_[i]] != token) i = (i + 1) & mask;
  return i;
}

void Vocab::Grow() {
  slots_.assign(slots_.empty() ? 1024 : 2 * slots_.size(), -1);
  for (TokenId id = 0; id < tokens_.size(); ++id) {
    if (tokens_.Has(id) && !homonyms_.contains(id)) slots_[Slot(tokens_[id])] = id;
  }
}

}  // namespace inflight::tokenizer
