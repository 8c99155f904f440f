// SPDX-License-Identifier: Apache-2.0
// Guides over small vocabularies, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/guide.h"

namespace inflight::grammar {

// Tokens 0 to 255 are the bytes, 256 ends sequences and has none, then come `more`.
inline std::shared_ptr<const TokenTexts> BytesAnd(const std::vector<std::string>& more = {}) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.emplace_back();
  texts.insert(texts.end(), more.begin(), more.end());
  return MakeTokenTexts(texts);
}

// Null, and the test fails, where the guide is refused.
inline std::shared_ptr<const Guide> GuideOf(GuideSpec::Kind kind, std::string text,
                                            std::shared_ptr<const TokenTexts> tokens = BytesAnd()) {
  auto made = MakeGuide({.kind = kind, .text = std::move(text)}, std::move(tokens));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? *made : nullptr;
}

inline std::string RefusalOf(GuideSpec::Kind kind, std::string text) {
  const auto made = MakeGuide({.kind = kind, .text = std::move(text)}, BytesAnd());
  return made.ok() ? "it is taken" : made.status().ToString();
}

inline std::vector<uint32_t> MaskOf(GuideState& state, int num_tokens) {
  std::vector<uint32_t> mask((static_cast<size_t>(num_tokens) + 31) / 32, ~0U);
  EXPECT_TRUE(state.Mask(mask));
  return mask;
}

inline bool Has(const std::vector<uint32_t>& mask, TokenId token) {
  return (mask[static_cast<size_t>(token) / 32] >> (static_cast<uint32_t>(token) % 32) & 1) != 0;
}

// Fails the test unless the mask has the tokens that would be accepted, and no others.
inline void CheckMask(GuideState& state, int num_tokens) {
  const std::vector<uint32_t> mask = MaskOf(state, num_tokens);
  for (TokenId token = 0; token < num_tokens; ++token) {
    ASSERT_EQ(state.Clone()->Accept(token), Has(mask, token)) << "token " << token;
  }
}

// Reads the text byte by byte, over a vocabulary of BytesAnd, and checks each mask on its way.
inline bool Matches(const Guide& guide, std::string_view text) {
  const auto state = guide.Begin();
  for (const char byte : text) {
    CheckMask(*state, guide.num_tokens());
    if (!state->Accept(static_cast<uint8_t>(byte))) return false;
  }
  CheckMask(*state, guide.num_tokens());
  return state->CanEnd();
}

}  // namespace inflight::grammar
