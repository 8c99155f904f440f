// SPDX-License-Identifier: Apache-2.0
#include "object_store/xml.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::object_store {
namespace {

TEST(Xml, ReadsElementsAndText) {
  const auto root =
      ParseXml("<?xml version=\"1.0\"?><a xmlns:p=\"u\"><p:b>1 &amp; 2</p:b><b>3</b></a>");
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->name, "a");
  EXPECT_EQ(root->TextOf("b"), "1 & 2");
  EXPECT_EQ(root->children.size(), 2);
  EXPECT_EQ(root->Find("c"), nullptr);
}

TEST(Xml, RefusesEntitiesDepthAndWhatIsNoXml) {
  EXPECT_FALSE(ParseXml("<!DOCTYPE a [<!ENTITY e \"x\">]><a>&e;</a>").ok());
  EXPECT_FALSE(ParseXml("").ok());
  EXPECT_FALSE(ParseXml("{}").ok());
  EXPECT_FALSE(ParseXml("<a><b></a>").ok());
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_FALSE(ParseXml(deep).ok());
}

}  // namespace
}  // namespace inflight::object_store
