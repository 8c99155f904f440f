// SPDX-License-Identifier: Apache-2.0
#include "executor/guide_masks.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "decoding/list_guide.h"

namespace inflight::executor {
namespace {

using decoding::GuideVerdict;
using Tokens = std::set<TokenId>;

constexpr int kVocab = 97;

struct Guided {
  explicit Guided(const std::vector<std::vector<TokenId>>& ways)
      : guide(decoding::MakeListGuide(kVocab, ways)) {
    sequence.guide = std::make_unique<decoding::GuidedSlot>(*guide, std::vector<TokenId>{},
                                                            std::vector<TokenId>{});
  }
  std::shared_ptr<const Guide> guide;
  Sequence sequence;
};

Tokens AllowedBy(const LateInputs& inputs, int draft) {
  Tokens tokens;
  for (const LateInputs::Mask& mask : inputs.masks)
    for (TokenId id = 0; id < kVocab && mask.draft == draft; ++id)
      if ((mask.allowed_bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0)
        tokens.insert(id);
  return tokens;
}

// Behind each node what may come behind the way to it.
TEST(GuideMasksTest, NodesOfATreeHaveTheMasksOfTheirWays) {
  GuideMasks masks(kVocab, {-1, 0, 0, -1, 3, 1});
  const std::vector<TokenId> drafts = {5, 60, 61, 9, 5, 7};
  for (const bool goes_right : {false, true}) {
    Guided guided({{5, 60, 7}, {5, 61, 8, 9}});
    LateInputs inputs;
    masks.Fill(guided.sequence, drafts, &inputs);
    EXPECT_EQ(AllowedBy(inputs, 0), Tokens{5});
    EXPECT_EQ(AllowedBy(inputs, 1), (Tokens{60, 61}));
    EXPECT_EQ(AllowedBy(inputs, 2), Tokens{7});
    EXPECT_EQ(AllowedBy(inputs, 3), Tokens{8});
    EXPECT_TRUE(AllowedBy(inputs, 4).empty()) << "9 may not come";
    EXPECT_TRUE(AllowedBy(inputs, 5).empty()) << "nor anything behind it";
    EXPECT_TRUE(AllowedBy(inputs, 6).empty()) << "the way ends there";
    GuideVerdict verdict = GuideVerdict::kNone;
    if (goes_right) {
      EXPECT_EQ(
          GuideMasks::Follow(guided.sequence, std::vector<TokenId>{5, 61, 8}, 0b101, &verdict), 3);
      EXPECT_EQ(verdict, GuideVerdict::kTokens);
    } else {
      EXPECT_EQ(GuideMasks::Follow(guided.sequence, std::vector<TokenId>{5, 60, 7, 0}, 0b100011,
                                   &verdict),
                3);
      EXPECT_EQ(verdict, GuideVerdict::kEnd);
    }
  }
}

TEST(GuideMasksTest, DraftsOfAChainHaveTheMasksOfThoseBefore) {
  GuideMasks masks(kVocab, {});
  Guided guided({{5, 60, 7}, {5, 61, 8}});
  LateInputs inputs;
  masks.Fill(guided.sequence, std::vector<TokenId>{5, 61, 9, 4}, &inputs);
  EXPECT_EQ(AllowedBy(inputs, 0), Tokens{5});
  EXPECT_EQ(AllowedBy(inputs, 1), (Tokens{60, 61}));
  EXPECT_EQ(AllowedBy(inputs, 2), Tokens{8});
  EXPECT_EQ(inputs.masks.size(), 3) << "9 may not come";
  GuideVerdict verdict = GuideVerdict::kNone;
  EXPECT_EQ(GuideMasks::Follow(guided.sequence, std::vector<TokenId>{5, 61, 8}, 0, &verdict), 3);
  EXPECT_EQ(verdict, GuideVerdict::kTokens);
}

}  // namespace
}  // namespace inflight::executor
