// SPDX-License-Identifier: Apache-2.0
// Texts of bytes, one token each, and a few longer ones: what may come is read off the words.
#include "serving/llm/reasoned_guide.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace inflight::serving {
namespace {

constexpr TokenId kTag = 256;   // <think>
constexpr TokenId kPart = 257;  // <th
constexpr TokenId kMore = 258;  // <think>\n
constexpr int kNumTokens = 259;

std::shared_ptr<const TokenTexts> Tokens() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.insert(texts.end(), {"<think>", "<th", "<think>\n"});
  return MakeTokenTexts(texts);
}

std::shared_ptr<const Guide> Make(const std::string& regex) {
  const auto tokens = Tokens();
  GuideSpec spec{.kind = GuideSpec::Kind::kRegex, .text = regex};
  const auto without = MakeGuide(spec, tokens);
  spec.begins_after = "</think>";
  const auto with = MakeGuide(spec, tokens);
  EXPECT_TRUE(with.ok() && without.ok());
  return MakeReasonedGuide(
      {.opening = "<think>", .with = *with, .without = *without, .tokens = tokens});
}

std::vector<TokenId> Allowed(GuideState& state) {
  std::vector<uint32_t> mask((kNumTokens + 31) / 32);
  EXPECT_TRUE(state.Mask(mask));
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < kNumTokens; ++id)
    if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
  return ids;
}

void AcceptText(GuideState& state, const std::string& text) {
  for (const char c : text) ASSERT_TRUE(state.Accept(static_cast<unsigned char>(c))) << text;
}

TEST(ReasonedGuideTest, TheAnswerMayBeginAtOnce) {
  const auto guide = Make("ab?");
  const auto state = guide->Begin();
  EXPECT_EQ(Allowed(*state), (std::vector<TokenId>{'<', 'a', kTag, kPart, kMore}));
  EXPECT_FALSE(state->CanEnd());
  EXPECT_FALSE(state->Accept('b'));
  AcceptText(*state, "a");
  EXPECT_EQ(Allowed(*state), (std::vector<TokenId>{'b'}));
  EXPECT_TRUE(state->CanEnd());
}

TEST(ReasonedGuideTest, BehindTheTagTheAnswerIsGuidedWhereReasoningEnds) {
  const auto guide = Make("ab?");
  for (const TokenId opening : {kTag, kPart, kMore}) {
    const auto state = guide->Begin();
    ASSERT_TRUE(state->Accept(opening));
    if (opening == kPart) {
      EXPECT_EQ(Allowed(*state), (std::vector<TokenId>{'i'}));
      AcceptText(*state, "ink>");
    }
    EXPECT_EQ(Allowed(*state).size(), static_cast<size_t>(kNumTokens));
    AcceptText(*state, "so, a or b?");
    EXPECT_FALSE(state->CanEnd());
    const auto clone = state->Clone();
    AcceptText(*state, "</think>");
    EXPECT_EQ(Allowed(*state), (std::vector<TokenId>{'a'}));
    AcceptText(*state, "ab");
    EXPECT_TRUE(state->CanEnd());
    EXPECT_TRUE(Allowed(*state).empty());
    EXPECT_EQ(Allowed(*clone).size(), static_cast<size_t>(kNumTokens));
  }
}

TEST(ReasonedGuideTest, ATextThatFitsBothGoesBothWays) {
  const auto guide = Make("<.*");
  const auto state = guide->Begin();
  AcceptText(*state, "<th");
  EXPECT_TRUE(state->CanEnd());
  AcceptText(*state, "ink>free");
  EXPECT_TRUE(state->CanEnd());
  AcceptText(*state, "\n");  // no line end matches the dot: it reasons
  EXPECT_FALSE(state->CanEnd());
  AcceptText(*state, "</think><");
  EXPECT_TRUE(state->CanEnd());
}

}  // namespace
}  // namespace inflight::serving
