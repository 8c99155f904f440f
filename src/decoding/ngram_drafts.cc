// SPDX-License-Identifier: Apache-2.0
#include "decoding/ngram_drafts.h"

#include <algorithm>

namespace inflight::decoding {
namespace {

// How many tokens before `end` equal those at the end of all, at most kLongestMatch.
int MatchBefore(const std::vector<TokenId>& tokens, size_t end) {
  const size_t size = tokens.size();
  const size_t longest = std::min<size_t>(kLongestMatch, end);
  size_t n = 0;
  while (n < longest && tokens[end - 1 - n] == tokens[size - 1 - n]) ++n;
  return static_cast<int>(n);
}

}  // namespace

void DraftByLookup(const std::vector<TokenId>& tokens, int max_drafts,
                   std::vector<TokenId>* drafts) {
  drafts->clear();
  if (tokens.size() < 2 || max_drafts <= 0) return;
  const TokenId last = tokens.back();
  int longest = kShortestMatch - 1;
  size_t next = 0;  // where what followed it begins
  for (size_t end = tokens.size() - 1; end >= kShortestMatch && longest < kLongestMatch; --end) {
    if (tokens[end - 1] != last) continue;
    const int length = MatchBefore(tokens, end);
    if (length <= longest) continue;
    longest = length;
    next = end;
  }
  if (next == 0) return;
  const size_t size = tokens.size();
  for (int i = 0; i < max_drafts; ++i, ++next)
    drafts->push_back(next < size ? tokens[next] : (*drafts)[next - size]);
}

}  // namespace inflight::decoding
