// SPDX-License-Identifier: Apache-2.0
#include "contract/medusa_choices.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::contract {
namespace {

using Lists = std::vector<std::vector<int>>;

TEST(MedusaChoices, AreListsOfNumbersInEitherKindOfBrackets) {
  const Lists expected = {{0, 0, 0}, {0, 1}, {12}};
  for (const char* text :
       {"{0, 0, 0}, {0, 1}, {12}", "{0,0,0},{0,1},{12}", "[[0, 0, 0], [0, 1], [12]]",
        "[0,0,0], [0,1], [12]", "{{0, 0, 0}, {0, 1}, {12}}", " [ [0,0 ,0],\n[ 0,1],\t[12] ] "}) {
    const auto lists = ParseMedusaChoices(text);
    ASSERT_TRUE(lists.ok()) << text << ": " << lists.status().ToString();
    EXPECT_EQ(*lists, expected) << text;
  }
}

TEST(MedusaChoices, AnEmptyListIsForTheTreeToJudge) {
  EXPECT_EQ(*ParseMedusaChoices("{}, {0}"), (Lists{{}, {0}}));
  EXPECT_EQ(*ParseMedusaChoices("[[], [-1]]"), (Lists{{}, {-1}}));
}

TEST(MedusaChoices, WhatIsNoListSaysWhere) {
  const auto error = [](const char* text) {
    const auto lists = ParseMedusaChoices(text);
    return lists.ok() ? std::string() : std::string(lists.status().message());
  };
  EXPECT_EQ(error("{0, a}"), "medusa_choices: got 'a' at character 5, a whole number is needed");
  EXPECT_EQ(error("{0, 1"),
            "medusa_choices: got the end at character 6, ',' or the end of a list is needed");
  EXPECT_EQ(error("{0} {1}"), "medusa_choices: got '{' at character 5, ',' or the end is needed");
  EXPECT_EQ(error("[[0], [1]"),
            "medusa_choices: got the end at character 10, ',' or the end of the list is needed");
  EXPECT_EQ(error("[[0]] 1"), "medusa_choices: got '1' at character 7, the end is needed");
  EXPECT_EQ(error("0, 1"), "medusa_choices: got '0' at character 1, a list like {0, 1} is needed");
  EXPECT_EQ(error("{0},"),
            "medusa_choices: got the end at character 5, a list like {0, 1} is needed");
  EXPECT_EQ(error("{99999999999}"),
            "medusa_choices: got '9' at character 2, a whole number is needed");
  EXPECT_NE(error("[[[0]]]"), "");
  EXPECT_NE(error("mc_sim_7b_63"), "");
}

}  // namespace
}  // namespace inflight::contract
