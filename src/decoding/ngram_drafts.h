// SPDX-License-Identifier: Apache-2.0
// Drafts out of the text itself: what followed its last tokens when they stood there before
// (github.com/apoorvumang/prompt-lookup-decoding). Summaries, code and forms repeat their input.
#pragma once

#include <vector>

#include "inflight/request.h"

namespace inflight::decoding {

// Of the last kLongestMatch tokens, or as many as are found, at least kShortestMatch.
constexpr int kLongestMatch = 4;
constexpr int kShortestMatch = 2;

// Up to `max_drafts` tokens that may follow `tokens`, into `drafts`, which keeps its capacity. The
// longest match counts, of several the newest. Where the text that followed it ends, it goes on
// with the drafts themselves, so that a period is continued. Costs O(tokens).
void DraftByLookup(const std::vector<TokenId>& tokens, int max_drafts,
                   std::vector<TokenId>* drafts);

}  // namespace inflight::decoding
