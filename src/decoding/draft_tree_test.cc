// SPDX-License-Identifier: Apache-2.0
#include "decoding/draft_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace inflight::decoding {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Paths = std::vector<DraftTree::Path>;

DraftTree Of(const Paths& paths) { return *DraftTree::Make(paths, 4); }

std::string ErrorOf(const Paths& paths, int max_depth = 4) {
  const Result<DraftTree> tree = DraftTree::Make(paths, max_depth);
  return tree.ok() ? "" : std::string(tree.status().message());
}

std::vector<int> Parents(const DraftTree& tree) {
  std::vector<int> parents;
  for (int i = 0; i < tree.size(); ++i) parents.push_back(tree[i].parent);
  return parents;
}

TEST(DraftTreeTest, ANodeKnowsItsParentDepthAndChoice) {
  const DraftTree tree = Of({{0}, {0, 0}, {1}, {0, 1}, {0, 1, 7}});
  EXPECT_THAT(Parents(tree), ElementsAre(-1, 0, -1, 0, 3));
  EXPECT_EQ(tree[4].depth, 3);
  EXPECT_EQ(tree[4].choice, 7);
  EXPECT_EQ(tree.Depth(5), 3);
  EXPECT_EQ(tree.Depth(3), 2);
  EXPECT_EQ(tree.NumChoices(1, 5), 2);
  EXPECT_EQ(tree.NumChoices(1, 2), 1);
  EXPECT_EQ(tree.NumChoices(3, 5), 8);
  EXPECT_EQ(tree.NumChoices(3, 4), 0);
}

TEST(DraftTreeTest, ParentsComeBeforeTheirChildren) {
  const DraftTree tree = Of({{0, 1, 2}, {1}, {0, 1}, {0}});
  EXPECT_THAT(Parents(tree), ElementsAre(-1, 0, 1, -1));  // {0}, {0, 1}, {0, 1, 2}, {1}
  EXPECT_EQ(tree[3].choice, 1);
}

// Chances of 0.6 ^ depth * 0.5 ^ (sum of choices): 0.6, 0.36, 0.3, 0.216, 0.18 twice, 0.15, 0.13,
// 0.108 three times ...
TEST(DraftTreeTest, TheLikeliestPathsComeFirst) {
  const DraftTree tree = DraftTree::Likely(6);
  EXPECT_EQ(tree.size(), DraftTree::kMaxNodes);
  EXPECT_EQ(tree.Depth(tree.size()), 6);
  const std::vector<int> parents = Parents(tree);
  EXPECT_THAT(std::vector(parents.begin(), parents.begin() + 9),
              ElementsAre(-1, 0, -1, 1, 0, 2, -1, 3, 1));
  std::vector<int> choices;
  for (int i = 0; i < 9; ++i) choices.push_back(tree[i].choice);
  EXPECT_THAT(choices, ElementsAre(0, 0, 1, 0, 1, 0, 2, 0, 1));
  EXPECT_EQ(DraftTree::Likely(1).Depth(63), 1);
}

// Three nodes {0}, {0, 0}, {1} behind a root at place 2, in six places. From the last place on the
// bits are {1}, {0, 0}, {0}, the root, and the two of text.
TEST(DraftTreeTest, AMaskHasTheTextTheRootAndTheNodesOfThePath) {
  const DraftTree tree = Of({{0}, {0, 0}, {1}});
  EXPECT_EQ(tree.Mask(0, 3, 6), 0b111100);
  EXPECT_EQ(tree.Mask(1, 3, 6), 0b111110);
  EXPECT_EQ(tree.Mask(2, 3, 6), 0b111001);
  EXPECT_EQ(tree.Mask(0, 1, 4), 0b1111) << "of a cut tree";
  EXPECT_EQ(static_cast<uint64_t>(tree.Mask(2, 3, 500)), ~uint64_t{0b110});
}

TEST(DraftTreeTest, AChildIsANodeOfThatParentAndToken) {
  const DraftTree tree = Of({{0}, {0, 0}, {1}, {1, 0}});
  const std::vector<TokenId> drafts = {5, 7, 6, 7};
  EXPECT_EQ(tree.Child(-1, 5, drafts), 0);
  EXPECT_EQ(tree.Child(-1, 6, drafts), 2);
  EXPECT_EQ(tree.Child(-1, 7, drafts), -1);
  EXPECT_EQ(tree.Child(0, 7, drafts), 1);
  EXPECT_EQ(tree.Child(2, 7, drafts), 3);
  EXPECT_EQ(tree.Child(2, 7, std::span(drafts).first(3)), -1);
  EXPECT_EQ(tree.Child(3, 7, drafts), -1);
}

TEST(DraftTreeTest, WhatIsNoTreeIsRefusedByName) {
  EXPECT_EQ(ErrorOf({{0}, {1, 0}}),
            "medusa_choices: got {1, 0}, which needs {1}; list every beginning of a path");
  EXPECT_EQ(ErrorOf({{0}, {1}, {0}}), "medusa_choices: got {0}, which stands there twice");
  EXPECT_EQ(ErrorOf({{0}, {0, 0}, {0, 0, 0}}, 2),
            "medusa_choices: got {0, 0, 0}, 3 choices deep, the model has 2 heads; leave longer "
            "paths out");
  EXPECT_EQ(ErrorOf({}), "medusa_choices: got 0 paths, must be in [1, 63]");
  EXPECT_THAT(ErrorOf({{0}, {}}), HasSubstr("at least one choice"));
  EXPECT_EQ(ErrorOf({{-1}}), "medusa_choices: got {-1}, a choice must be in [0, 256)");
  EXPECT_THAT(ErrorOf({{256}}), HasSubstr("[0, 256)"));
  Paths many;
  for (int i = 0; i < 64; ++i) many.push_back({i});
  EXPECT_EQ(ErrorOf(many), "medusa_choices: got 64 paths, must be in [1, 63]");
}

// Counted in the list of FasterDecoding/Medusa/medusa/model/medusa_choices.py, mc_sim_7b_63.
TEST(DraftTreeTest, TheDefaultHasSixtyThreeNodesOfFourDepths) {
  const DraftTree tree = DraftTree::Default(4);
  std::vector<int> of_depth(5);
  std::set<uint64_t> paths;
  for (int i = 0; i < tree.size(); ++i) {
    ++of_depth[static_cast<size_t>(tree[i].depth)];
    paths.insert(tree[i].path_bits);
    EXPECT_LT(tree[i].parent, i);
    if (i > 0) {
      EXPECT_LE(tree[i].chance, tree[i - 1].chance);
    }
  }
  EXPECT_EQ(paths.size(), 63U);
  EXPECT_THAT(of_depth, ElementsAre(0, 10, 28, 23, 2));
  for (const int depth : {1, 2, 3}) EXPECT_EQ(tree.NumChoices(depth, 63), 10);
  EXPECT_EQ(DraftTree::Default(2).size(), 38);
}

}  // namespace
}  // namespace inflight::decoding
