// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/guide_cache.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "serving/llm/reasoned_guide.h"

namespace inflight::serving {
namespace {

// What an entry holds beside the guide.
constexpr uint64_t kEntryBytes = 512;

// A guide and what it is charged with, which its states keep as well. It grows as it is used.
class ChargedGuide final : public Guide, public std::enable_shared_from_this<ChargedGuide> {
 public:
  ChargedGuide(std::shared_ptr<const Guide> guide, MemoryCharge charge)
      : guide_(std::move(guide)), charge_(std::move(charge)) {}

  std::unique_ptr<GuideState> Begin() const override {
    return std::make_unique<State>(shared_from_this(), guide_->Begin());
  }
  int num_tokens() const override { return guide_->num_tokens(); }
  uint64_t bytes() const override { return guide_->bytes(); }

  // Charges what it holds by now; false: its client has no room for that. One thread at a time.
  bool Recharge(uint64_t own_bytes) const {
    const uint64_t held = own_bytes + bytes();
    return held <= charge_.bytes() || charge_.Resize(held).ok();
  }

 private:
  class State final : public GuideState {
   public:
    State(std::shared_ptr<const ChargedGuide> guide, std::unique_ptr<GuideState> state)
        : guide_(std::move(guide)), state_(std::move(state)) {}

    std::unique_ptr<GuideState> Clone() const override {
      return std::make_unique<State>(guide_, state_->Clone());
    }
    bool Mask(std::span<uint32_t> mask) override { return state_->Mask(mask); }
    bool Accept(TokenId token) override { return state_->Accept(token); }
    bool CanEnd() const override { return state_->CanEnd(); }

   private:
    const std::shared_ptr<const ChargedGuide> guide_;
    const std::unique_ptr<GuideState> state_;
  };

  const std::shared_ptr<const Guide> guide_;
  mutable MemoryCharge charge_;
};

}  // namespace

// While it stands, this thread makes the guide. Begins under the cache's mutex, and ends without.
class GuideCache::Making {
 public:
  Making(GuideCache& cache, const GuideSpec& spec, const GuideTokens& tokens)
      : cache_(cache), spec_(spec), tokens_(tokens) {
    cache_.makings_.push_back(this);
  }
  ~Making() {
    {
      const std::lock_guard lock(cache_.mutex_);
      std::erase(cache_.makings_, this);
    }
    cache_.has_made_.notify_all();
  }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

  bool IsOf(const GuideSpec& spec, const GuideTokens& tokens) const {
    return tokens_ == tokens && spec_ == spec;
  }

 private:
  GuideCache& cache_;
  const GuideSpec& spec_;
  const GuideTokens& tokens_;
};

GuideCache::GuideCache(std::shared_ptr<const Tokenizer> tokenizer, Maker* make)
    : make_(make), tokenizer_(std::move(tokenizer)) {}

GuideCache::GuideCache(std::function<Result<std::shared_ptr<const Tokenizer>>()> load_tokenizer)
    : load_tokenizer_(std::move(load_tokenizer)), make_(&MakeGuide) {}

bool GuideCache::Has(const GuideSpec& spec, const GuideTokens& tokens) {
  const std::lock_guard lock(mutex_);
  return Find(spec, tokens) != entries_.end();
}

Result<std::shared_ptr<const Guide>> GuideCache::Get(const GuideSpec& spec,
                                                     const GuideTokens& tokens,
                                                     const std::shared_ptr<AccountShare>& memory,
                                                     const std::string& opening) {
  ASSIGN_OR_RETURN(auto guide, GetOne(spec, tokens, memory));
  if (spec.begins_after.empty() || opening.empty()) return guide;
  GuideSpec at_once = spec;
  at_once.begins_after.clear();
  ASSIGN_OR_RETURN(auto without, GetOne(at_once, tokens, memory));
  ASSIGN_OR_RETURN(auto texts, TextsOf(tokens));
  return MakeReasonedGuide({.opening = opening,
                            .with = std::move(guide),
                            .without = std::move(without),
                            .tokens = std::move(texts)});
}

Result<std::shared_ptr<const Guide>> GuideCache::GetOne(
    const GuideSpec& spec, const GuideTokens& tokens, const std::shared_ptr<AccountShare>& memory) {
  std::unique_lock lock(mutex_);
  has_made_.wait(lock, [&] {
    return std::ranges::none_of(makings_,
                                [&](const Making* making) { return making->IsOf(spec, tokens); });
  });
  // It is not kept where the client that had it made had no room.
  if (const auto found = Find(spec, tokens); found != entries_.end()) {
    auto kept = found->made;
    Entries forgotten;
    Look(found, forgotten);
    LookAtNext(forgotten);
    DropOldest(forgotten);
    lock.unlock();  // before these end
    return kept;
  }
  const Making making(*this, spec, tokens);
  lock.unlock();
  ASSIGN_OR_RETURN(auto texts, TextsOf(tokens));
  auto made = make_(spec, std::move(texts));
  Entry entry{.spec = spec,
              .tokens = tokens,
              .made = InvalidArgument(made.status().message()),
              .own_bytes = spec.text.size() + spec.begins_after.size() + kEntryBytes};
  MemoryCharge charge(memory);
  RETURN_IF_ERROR(charge.Resize(entry.own_bytes + (made.ok() ? (*made)->bytes() : 0)));
  if (made.ok())
    entry.made = std::shared_ptr<const Guide>(
        std::make_shared<const ChargedGuide>(*std::move(made), std::move(charge)));
  auto result = entry.made;
  Keep(std::move(entry));
  return result;
}

size_t GuideCache::HashOf(const GuideSpec& spec, const GuideTokens& tokens) {
  size_t hash = static_cast<size_t>(spec.kind);
  const auto add = [&hash](size_t more) { hash = hash * 31 + more; };
  add(std::hash<std::string>()(spec.text));
  add(std::hash<std::string>()(spec.begins_after));
  add(static_cast<size_t>(tokens.num_tokens));
  return hash;
}

GuideCache::Entries::iterator GuideCache::Find(const GuideSpec& spec, const GuideTokens& tokens) {
  const auto [begin, end] = by_hash_.equal_range(HashOf(spec, tokens));
  const auto found = std::find_if(begin, end, [&](const auto& hashed) {
    return hashed.second->tokens == tokens && hashed.second->spec == spec;
  });
  if (found == end) return entries_.end();
  const auto entry = found->second;
  if (entry == next_look_) ++next_look_;
  entries_.splice(entries_.begin(), entries_, entry);
  return entry;
}

void GuideCache::Keep(Entry entry) {
  Entries forgotten;  // ends without the lock
  const std::lock_guard lock(mutex_);
  entries_.push_front(std::move(entry));
  const Entry& kept = entries_.front();
  by_hash_.emplace(HashOf(kept.spec, kept.tokens), entries_.begin());
  for (auto at = entries_.begin(); at != entries_.end();) Look(at++, forgotten);
  DropOldest(forgotten);
}

void GuideCache::Look(Entries::iterator entry, Entries& forgotten) {
  if (!IsCharged(*entry)) return Forget(entry, forgotten);
  bytes_ -= entry->counted_bytes;
  entry->counted_bytes = BytesOf(*entry);
  bytes_ += entry->counted_bytes;
}

// The first was just looked at.
void GuideCache::LookAtNext(Entries& forgotten) {
  if (entries_.empty()) return;
  if (next_look_ == entries_.end()) next_look_ = std::next(entries_.begin());
  if (next_look_ != entries_.end()) Look(next_look_++, forgotten);
}

void GuideCache::DropOldest(Entries& forgotten) {
  while (!entries_.empty() && (entries_.size() > kMaxEntries || bytes_ > kMaxBytes))
    Forget(std::prev(entries_.end()), forgotten);
}

void GuideCache::Forget(Entries::iterator entry, Entries& forgotten) {
  auto hashed = by_hash_.find(HashOf(entry->spec, entry->tokens));
  while (hashed->second != entry) ++hashed;
  by_hash_.erase(hashed);
  bytes_ -= entry->counted_bytes;
  if (entry == next_look_) ++next_look_;
  forgotten.splice(forgotten.begin(), entries_, entry);
}

bool GuideCache::IsCharged(const Entry& entry) {
  if (!entry.made.ok()) return true;
  return static_cast<const ChargedGuide&>(**entry.made).Recharge(entry.own_bytes);
}

uint64_t GuideCache::BytesOf(const Entry& entry) {
  return entry.own_bytes + (entry.made.ok() ? (*entry.made)->bytes() : 0);
}

Result<std::shared_ptr<const TokenTexts>> GuideCache::TextsOf(const GuideTokens& tokens) {
  const std::lock_guard lock(vocabularies_mutex_);  // two at once would make the same
  const auto found = std::ranges::find(vocabularies_, tokens, &Vocabulary::tokens);
  if (found != vocabularies_.end()) {
    vocabularies_.splice(vocabularies_.begin(), vocabularies_, found);
    return vocabularies_.front().texts;
  }
  if (tokenizer_ == nullptr) {
    ASSIGN_OR_RETURN(tokenizer_, load_tokenizer_());
  }
  const int num_tokens = std::min(tokens.num_tokens, tokenizer_->vocab_size());
  std::vector<std::string> texts(static_cast<size_t>(num_tokens));
  for (size_t id = 0; id < texts.size(); ++id)
    texts[id] = tokenizer_->TokenBytes(static_cast<TokenId>(id));
  for (const TokenId id : tokens.shown)
    if (id >= 0 && id < num_tokens)
      texts[static_cast<size_t>(id)] = std::string(tokenizer_->IdToToken(id));
  vocabularies_.push_front({.tokens = tokens, .texts = MakeTokenTexts(texts)});
  if (vocabularies_.size() > kMaxVocabularies) vocabularies_.pop_back();
  return vocabularies_.front().texts;
}

}  // namespace inflight::serving
