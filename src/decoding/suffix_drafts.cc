// SPDX-License-Identifier: Apache-2.0
#include "decoding/suffix_drafts.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"

namespace inflight::decoding {

// Of one call of Draft: places that agree with what is proposed so far.
class SuffixDrafts::Search {
 public:
  Search(const SuffixDrafts& kept, std::span<const TokenId> tokens, std::vector<TokenId>* drafts)
      : kept_(kept), tokens_(tokens), drafts_(*drafts) {
    FindOwn();
    FindKept();
    for (int i = 0; i < num_; ++i) longest_ = std::max(longest_, lengths_[static_cast<size_t>(i)]);
    int num_longest = 0;
    for (int i = 0; i < num_; ++i)
      if (lengths_[static_cast<size_t>(i)] == longest_)
        places_[static_cast<size_t>(num_longest++)] = places_[static_cast<size_t>(i)];
    num_ = num_longest;
  }

  // Appends what most places have, and keeps those; false where no place goes on.
  bool Step() {
    TokenId best = kEnd;
    int most = 0;
    for (int i = 0; i < num_; ++i) {
      const TokenId token = At(places_[static_cast<size_t>(i)]);
      if (token == kEnd) continue;
      int count = 0;
      for (int j = 0; j < num_; ++j) count += At(places_[static_cast<size_t>(j)]) == token ? 1 : 0;
      if (count > most) most = count, best = token;
    }
    if (most == 0) return false;
    int num_agree = 0;
    for (int i = 0; i < num_; ++i) {
      Place place = places_[static_cast<size_t>(i)];
      if (At(place) != best) continue;
      ++place.next;
      places_[static_cast<size_t>(num_agree++)] = place;
    }
    num_ = num_agree;
    drafts_.push_back(best);
    return true;
  }

 private:
  // Where the text itself ends it goes on with the drafts, so that a period is continued.
  TokenId At(const Place& place) const {
    if (place.is_kept) return kept_.Holds(place.next) ? kept_.Kept(place.next) : kEnd;
    const auto next = static_cast<size_t>(place.next);
    if (next < tokens_.size()) return tokens_[next];
    return next - tokens_.size() < drafts_.size() ? drafts_[next - tokens_.size()] : kEnd;
  }

  void Add(Place place) {
    int length = 0;
    while (length < kLongestMatch && length < std::ssize(tokens_)) {
      const Place earlier = {place.is_kept, place.next - 1 - length};
      const TokenId last = tokens_[tokens_.size() - 1 - static_cast<size_t>(length)];
      if (earlier.next < 0 || At(earlier) != last) break;
      ++length;
    }
    if (length < kShortestMatch) return;
    places_[static_cast<size_t>(num_)] = place;
    lengths_[static_cast<size_t>(num_++)] = length;
  }

  void FindOwn() {
    const auto size = std::ssize(tokens_);
    for (int64_t next = size - 1; next >= kShortestMatch && num_ < kMaxPlaces; --next)
      if (tokens_[static_cast<size_t>(next) - 1] == tokens_.back()) Add({false, next});
  }

  void FindKept() {
    const int limit = num_ + kMaxPlaces;
    const TokenId* const last = tokens_.data() + tokens_.size() - kShortestMatch;
    int64_t next = kept_.newest_[kept_.HashOf(last)];
    for (int i = 0; i < kMaxPlaces && num_ < limit && kept_.Holds(next); ++i) {
      Add({true, next});
      next = kept_.before_[static_cast<size_t>(next) & (kept_.before_.size() - 1)];
    }
  }

  const SuffixDrafts& kept_;
  const std::span<const TokenId> tokens_;
  std::vector<TokenId>& drafts_;
  std::array<Place, size_t{2} * kMaxPlaces> places_{};
  std::array<int, size_t{2} * kMaxPlaces> lengths_{};
  int num_ = 0;
  int longest_ = 0;
};

SuffixDrafts::SuffixDrafts(int max_kept)
    : kept_(static_cast<size_t>(max_kept), kEnd),
      before_(static_cast<size_t>(max_kept), -1),
      newest_(static_cast<size_t>(max_kept), -1) {
  CHECK(std::has_single_bit(static_cast<unsigned>(max_kept)));
}

uint64_t SuffixDrafts::Bytes(int max_kept) {
  return static_cast<uint64_t>(max_kept) * (sizeof(TokenId) + 2 * sizeof(int64_t));
}

bool SuffixDrafts::Holds(int64_t position) const {
  return position > 0 && position < size_ && position >= size_ - std::ssize(kept_);
}

size_t SuffixDrafts::HashOf(const TokenId* last) const {
  uint64_t hash = 0;
  for (int i = 0; i < kShortestMatch; ++i)
    hash = (hash + static_cast<uint32_t>(last[i]) + 1) * 0x9E3779B97F4A7C15U;
  return static_cast<size_t>(hash >> 32) & (newest_.size() - 1);
}

void SuffixDrafts::Append(TokenId token) {
  const size_t at = static_cast<size_t>(size_) & (kept_.size() - 1);
  kept_[at] = token;
  before_[at] = -1;
  ++size_;
}

void SuffixDrafts::Keep(std::span<const TokenId> output) {
  if (std::ssize(output) <= kShortestMatch) return;
  const auto most = static_cast<size_t>(std::ssize(kept_) - 1);
  if (output.size() > most) output = output.last(most);
  for (size_t i = 0; i < output.size(); ++i) {
    const int64_t position = size_;
    Append(output[i]);
    if (i < kShortestMatch) continue;
    int64_t& newest = newest_[HashOf(&output[i - kShortestMatch])];
    before_[static_cast<size_t>(position) & (before_.size() - 1)] = newest;
    newest = position;
  }
  Append(kEnd);
}

void SuffixDrafts::Draft(std::span<const TokenId> tokens, int max_drafts,
                         std::vector<TokenId>* drafts) const {
  drafts->clear();
  if (std::ssize(tokens) < kShortestMatch || max_drafts <= 0) return;
  Search search(*this, tokens, drafts);
  while (std::ssize(*drafts) < max_drafts && search.Step()) {
  }
}

}  // namespace inflight::decoding
