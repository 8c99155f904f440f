// SPDX-License-Identifier: Apache-2.0
// Texts that must not appear in what is generated, whatever tokens spell them: found once for a
// list of texts and a vocabulary, read at every token.
//
// A text ends in the next token if the token has all of it, or if the token begins with the rest of
// it and what was decoded so far ends with what comes before the rest. Tokens that begin alike
// stand side by side where all are sorted by their bytes, so that a rest is a range.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "inflight/status.h"

namespace inflight {

// The bytes that each token adds to a text among other tokens. They need not be whole characters.
struct TokenTexts {
  std::string bytes;
  std::vector<uint32_t> begins = {0};  // [num_tokens + 1] of each token's bytes
  std::vector<TokenId> sorted;         // [num_tokens] by their bytes

  int num_tokens() const { return static_cast<int>(sorted.size()); }
  std::string_view Of(TokenId id) const;  // empty for ids that it does not know
};

// `texts` [num_tokens]; a token that shows nothing has none.
std::shared_ptr<const TokenTexts> MakeTokenTexts(std::span<const std::string> texts);

struct BadTexts {
  // Behind a text that ends with `texts[begin, begin + size)`, size > 0, the tokens
  // `tokens->sorted[first, last)` complete a bad one.
  struct Completion {
    uint32_t begin;
    uint32_t size;
    int32_t first;
    int32_t last;
  };

  std::shared_ptr<const TokenTexts> tokens;
  std::string texts;
  std::vector<TokenId> banned;            // tokens that have a bad text whole
  std::vector<Completion> completions;    // by the last byte of what they stand behind
  std::array<uint32_t, 257> groups = {};  // those of byte b: [groups[b], groups[b + 1])
  uint32_t longest = 0;                   // size of a completion
};

inline constexpr size_t kMaxBadTexts = 1024;
inline constexpr size_t kMaxBadTextBytes = 65536;  // of all texts: what a row's bans cost at most

// Empty texts ban nothing. kInvalidArgument beyond the bounds.
Result<std::shared_ptr<const BadTexts>> MakeBadTexts(std::span<const std::string> texts,
                                                     std::shared_ptr<const TokenTexts> tokens);

}  // namespace inflight
