// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/bad_text_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace inflight::serving {

BadTextCache::BadTextCache(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

Result<std::shared_ptr<const BadTexts>> BadTextCache::Get(std::span<const std::string> texts) {
  if (std::ranges::all_of(texts, &std::string::empty)) return std::shared_ptr<const BadTexts>();
  if (auto found = Find(texts)) return found;
  ASSIGN_OR_RETURN(auto made, MakeBadTexts(texts, Tokens()));
  const std::lock_guard lock(mutex_);
  entries_.push_front({.texts = {texts.begin(), texts.end()}, .made = made});
  if (entries_.size() > kMaxEntries) entries_.pop_back();
  return made;
}

std::shared_ptr<const BadTexts> BadTextCache::Find(std::span<const std::string> texts) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return std::ranges::equal(entry.texts, texts); });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return entries_.front().made;
}

const std::shared_ptr<const TokenTexts>& BadTextCache::Tokens() {
  std::call_once(tokens_made_, [this] {
    std::vector<std::string> texts(static_cast<size_t>(tokenizer_->vocab_size()));
    for (size_t id = 0; id < texts.size(); ++id)
      texts[id] = tokenizer_->TokenBytes(static_cast<TokenId>(id));
    tokens_ = MakeTokenTexts(texts);
  });
  return tokens_;
}

}  // namespace inflight::serving
