// SPDX-License-Identifier: Apache-2.0
#include "object_store/local_tree.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::object_store {
namespace {

Listing Keys(std::initializer_list<const char*> keys, uint64_t size = 1) {
  Listing listing;
  for (const char* const key : keys)
    listing.objects.push_back({.key = key, .size = size, .version = "v"});
  return listing;
}

TEST(LocalTree, HasPathsBelowThePrefix) {
  const auto tree = ToLocalTree(Keys({"p/", "p/m/config.pbtxt", "p/m/1/", "p/top"}), "p");
  ASSERT_TRUE(tree.ok());
  EXPECT_TRUE(tree->files.contains("m/config.pbtxt"));
  EXPECT_TRUE(tree->folders.contains("m/1"));
  EXPECT_EQ(tree->FirstFolders(), std::set<std::string>{"m"});
  EXPECT_EQ(tree->Below("m").files.size(), 1);
  EXPECT_TRUE(tree->Below("m").folders.contains("1"));
  EXPECT_TRUE(tree->Below("mm").empty());
}

TEST(LocalTree, RefusesKeysThatLeadElsewhere) {
  for (const char* const key : {"../x", "a/../x", "./x", "a//x", "/x", "a/\x01", "a/..", "a/."})
    EXPECT_FALSE(ToLocalTree(Keys({key}), "").ok()) << key;
  EXPECT_FALSE(ToLocalTree(Keys({std::string(300, 'a').c_str()}), "").ok());
}

TEST(LocalTree, TakesEmptyObjectsThatOthersLieBelowForFolders) {
  const auto tree = ToLocalTree(Keys({"a", "a/b"}, /*size=*/0), "");
  ASSERT_TRUE(tree.ok());
  EXPECT_TRUE(tree->folders.contains("a"));
  EXPECT_EQ(tree->files.size(), 1);
  EXPECT_FALSE(ToLocalTree(Keys({"a", "a/b"}), "").ok());
  EXPECT_TRUE(ToLocalTree(Keys({"a", "a-b", "ab/c"}), "").ok());
}

TEST(LocalTree, HasAnotherIdWhenAnyFileIsAnother) {
  const auto one = ToLocalTree(Keys({"a", "b"}), "");
  auto other = one;
  other->files.at("b").version = "w";
  EXPECT_NE(one->Id(), other->Id());
  EXPECT_EQ(one->Id(), ToLocalTree(Keys({"b", "a"}), "")->Id());
}

}  // namespace
}  // namespace inflight::object_store
