// SPDX-License-Identifier: Apache-2.0
#include "serving/core/cache_salt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace inflight::serving {
namespace {

using ::testing::StartsWith;

Request Asked(const ParameterValue& salt, uint8_t identity = 0) {
  Request request;
  request.parameters.emplace(kCacheSalt, salt);
  if (identity != 0) {
    auto client = std::make_shared<Client>();
    client->identity[31] = identity;
    request.client = std::move(client);
  }
  return request;
}

uint64_t Salt(const std::string& text, uint8_t identity = 0) {
  const auto salt = CacheSaltOf(Asked(text, identity));
  EXPECT_TRUE(salt.ok()) << salt.status().ToString();
  return salt.ok() ? *salt : 0;
}

TEST(CacheSalt, WithoutIdentityAndTextThereIsNone) {
  EXPECT_EQ(*CacheSaltOf({}), 0U);
  EXPECT_EQ(Salt(""), 0U);
}

// `(head -c 32 /dev/zero; printf tenant) | sha256sum`, and `(head -c 31 /dev/zero; printf '\1')`.
TEST(CacheSalt, IsTheBeginningOfASha256) {
  EXPECT_EQ(Salt("tenant"), 0x23982f4e39fd4db3U);
  EXPECT_EQ(Salt("", 1), 0xec4916dd28fc4c10U);
}

TEST(CacheSalt, DiffersByTextAndByIdentity) {
  const std::set<uint64_t> salts = {
      Salt("a"),    Salt("b"),    Salt("aa"),   Salt("", 1),
      Salt("", 2),  Salt("a", 1), Salt("a", 2), Salt(std::string(1, '\0')),
      Salt("b", 1), Salt("")};
  EXPECT_EQ(salts.size(), 10U);
  EXPECT_EQ(Salt("a", 1), Salt("a", 1));
}

TEST(CacheSalt, IsAShortText) {
  for (const ParameterValue& value :
       {ParameterValue(true), ParameterValue(int64_t{7}), ParameterValue(0.5),
        ParameterValue(std::string(1025, 'x'))}) {
    const auto salt = CacheSaltOf(Asked(value));
    EXPECT_EQ(salt.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(salt.status().message(), StartsWith("cache_salt: "));
  }
  EXPECT_NE(Salt(std::string(1024, 'x')), 0U);
}

}  // namespace
}  // namespace inflight::serving
