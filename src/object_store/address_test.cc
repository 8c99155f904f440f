// SPDX-License-Identifier: Apache-2.0
#include "object_store/address.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace inflight::object_store {
namespace {

using Parts = std::tuple<std::string, std::string, std::string, std::string>;

Parts Parsed(const std::string& text) {
  const auto address = ParseAddress(text);
  if (!address.ok()) return {"error", address.status().message(), "", ""};
  return {address->endpoint, address->account, address->bucket, address->prefix};
}

TEST(Address, HasTheFormsOfTriton) {
  EXPECT_EQ(Parsed("s3://bucket"), Parts("", "", "bucket", ""));
  EXPECT_EQ(Parsed("s3://bucket/a/b/"), Parts("", "", "bucket", "a/b"));
  EXPECT_EQ(Parsed("s3://host:9000/bucket/a"), Parts("http://host:9000", "", "bucket", "a"));
  EXPECT_EQ(Parsed("s3://https://host:9000/bucket//a"),
            Parts("https://host:9000", "", "bucket", "a"));
  EXPECT_EQ(Parsed("s3://http://10.0.0.1:80/b"), Parts("http://10.0.0.1:80", "", "b", ""));
  EXPECT_EQ(Parsed("s3://[::1]:9000/b/a"), Parts("http://[::1]:9000", "", "b", "a"));
  EXPECT_EQ(Parsed("gs://bucket/a b"), Parts("", "", "bucket", "a b"));
  EXPECT_EQ(Parsed("as://account/container/a"), Parts("", "account", "container", "a"));
}

TEST(Address, RefusesWhatIsNone) {
  for (const char* const text :
       {"s3://", "s3:///", "s3://host:9000", "s3://host:x/b", "s3://https://host:1", "gs://",
        "gs://b/../c", "gs://b/./c", "gs://b?x/c", "as://account", "as://a@b/c", "http://b/c",
        "s3://user:pw@host:1/b", "s3://b\n/c", "s3://b/c\x7f"}) {
    EXPECT_FALSE(ParseAddress(text).ok()) << text;
  }
}

TEST(Address, IsToldByItsBeginning) {
  EXPECT_TRUE(IsAddress("s3://"));
  EXPECT_FALSE(IsAddress("/s3://b"));
  EXPECT_FALSE(IsAddress("https://b"));
}

}  // namespace
}  // namespace inflight::object_store
