// SPDX-License-Identifier: Apache-2.0
#include "inflight/bad_texts.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace inflight {
namespace {

size_t ByteOf(char c) { return static_cast<unsigned char>(c); }

std::vector<std::string_view> Distinct(std::span<const std::string> texts) {
  std::vector<std::string_view> distinct(texts.begin(), texts.end());
  std::ranges::sort(distinct);
  const auto [same, end] = std::ranges::unique(distinct);
  distinct.erase(same, end);
  if (!distinct.empty() && distinct.front().empty()) distinct.erase(distinct.begin());
  return distinct;
}

// Finds whether one of many texts is in another.
class Finder {
 public:
  // Where a text begins with another, that one is found. Of the others only the last one that is
  // not greater than a text can begin it.
  explicit Finder(std::span<const std::string_view> sorted) {
    for (const std::string_view text : sorted)
      if (texts_.empty() || !text.starts_with(texts_.back())) texts_.push_back(text);
    for (size_t i = 0; i < texts_.size(); ++i) ends_[ByteOf(texts_[i][0])] = i + 1;
    for (size_t i = texts_.size(); i-- > 0;) begins_[ByteOf(texts_[i][0])] = i;
  }

  bool AnyIsIn(std::string_view text) const {
    for (size_t i = 0; i < text.size(); ++i)
      if (AnyBegins(text.substr(i))) return true;
    return false;
  }

 private:
  bool AnyBegins(std::string_view text) const {
    const size_t byte = ByteOf(text[0]);
    if (ends_[byte] == 0) return false;
    const auto begin = texts_.begin() + static_cast<ptrdiff_t>(begins_[byte]);
    const auto end = texts_.begin() + static_cast<ptrdiff_t>(ends_[byte]);
    const auto after = std::upper_bound(begin, end, text);
    return after != begin && text.starts_with(*(after - 1));
  }

  std::vector<std::string_view> texts_;
  std::array<size_t, 256> begins_ = {};  // of the texts that begin with a byte
  std::array<size_t, 256> ends_ = {};    // 0 = none does
};

// Where the tokens that begin with `prefix` stand in `tokens.sorted`.
std::pair<int32_t, int32_t> TokensThatBegin(const TokenTexts& tokens, std::string_view prefix) {
  const auto beginning = [&](TokenId id) { return tokens.Of(id).substr(0, prefix.size()); };
  const auto found = std::ranges::equal_range(tokens.sorted, prefix, {}, beginning);
  return {static_cast<int32_t>(found.begin() - tokens.sorted.begin()),
          static_cast<int32_t>(found.end() - tokens.sorted.begin())};
}

void AddCompletions(std::span<const std::string_view> texts, BadTexts* bad) {
  for (const std::string_view text : texts) {
    const auto begin = static_cast<uint32_t>(bad->texts.size());
    bad->texts += text;
    for (uint32_t size = 1; size < text.size(); ++size) {
      const auto [first, last] = TokensThatBegin(*bad->tokens, text.substr(size));
      if (first == last) continue;
      bad->completions.push_back({.begin = begin, .size = size, .first = first, .last = last});
      bad->longest = std::max(bad->longest, size);
    }
  }
  const auto last_byte = [&](const BadTexts::Completion& completion) {
    return ByteOf(bad->texts[completion.begin + completion.size - 1]);
  };
  std::ranges::stable_sort(bad->completions, {}, last_byte);
  for (const BadTexts::Completion& completion : bad->completions)
    ++bad->groups[last_byte(completion) + 1];
  std::partial_sum(bad->groups.begin(), bad->groups.end(), bad->groups.begin());
}

}  // namespace

std::string_view TokenTexts::Of(TokenId id) const {
  if (id < 0 || id >= num_tokens()) return {};
  const uint32_t begin = begins[static_cast<size_t>(id)];
  return std::string_view(bytes).substr(begin, begins[static_cast<size_t>(id) + 1] - begin);
}

std::shared_ptr<const TokenTexts> MakeTokenTexts(std::span<const std::string> texts) {
  auto tokens = std::make_shared<TokenTexts>();
  tokens->begins.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    tokens->bytes += text;
    tokens->begins.push_back(static_cast<uint32_t>(tokens->bytes.size()));
  }
  tokens->sorted.resize(texts.size());
  std::iota(tokens->sorted.begin(), tokens->sorted.end(), 0);
  std::ranges::sort(tokens->sorted, {}, [&](TokenId id) {
    return std::pair(std::string_view(texts[static_cast<size_t>(id)]), id);
  });
  return tokens;
}

Result<std::shared_ptr<const BadTexts>> MakeBadTexts(std::span<const std::string> texts,
                                                     std::shared_ptr<const TokenTexts> tokens) {
  size_t num_bytes = 0;
  for (const std::string& text : texts) num_bytes += text.size();
  if (texts.size() > kMaxBadTexts) {
    return InvalidArgument("got " + std::to_string(texts.size()) + " words, at most " +
                           std::to_string(kMaxBadTexts) + " are allowed (send fewer)");
  }
  if (num_bytes > kMaxBadTextBytes) {
    return InvalidArgument("got words of " + std::to_string(num_bytes) + " bytes in all, at most " +
                           std::to_string(kMaxBadTextBytes) + " are allowed (send fewer)");
  }
  auto bad = std::make_shared<BadTexts>();
  bad->tokens = std::move(tokens);
  const std::vector<std::string_view> distinct = Distinct(texts);
  const Finder finder(distinct);
  for (TokenId id = 0; id < bad->tokens->num_tokens(); ++id)
    if (finder.AnyIsIn(bad->tokens->Of(id))) bad->banned.push_back(id);
  AddCompletions(distinct, bad.get());
  return std::shared_ptr<const BadTexts>(std::move(bad));
}

}  // namespace inflight
