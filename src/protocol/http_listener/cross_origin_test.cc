// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/cross_origin.h"

#include <gmock/gmock.h>

namespace inflight::http_listener {
namespace {

using testing::HasSubstr;

TEST(CrossOriginTest, OriginsAreSchemeNameAndPort) {
  for (const char* good : {"*", "http://localhost:3000", "https://ui.example", "http://[::1]:80",
                           "app://x", "https://UI.example:8443"})
    EXPECT_TRUE(CrossOrigins::Make({good}).ok()) << good;
  for (const char* bad : {"", "ui.example", "https://", "https://ui.example/", "https://*.example",
                          "https://a b", "null", "://x"}) {
    const auto made = CrossOrigins::Make({bad});
    ASSERT_FALSE(made.ok()) << bad;
    EXPECT_THAT(made.status().message(), HasSubstr("got '" + std::string(bad) + "'"));
  }
}

TEST(CrossOriginTest, AnOriginIsAllowedAsAWhole) {
  const auto origins = CrossOrigins::Make({"https://ui.example", "http://localhost:3000"});
  ASSERT_TRUE(origins.ok());
  EXPECT_TRUE(origins->Allows("https://UI.example"));
  EXPECT_TRUE(origins->Allows("http://localhost:3000"));
  for (const char* other : {"http://ui.example", "https://ui.example:1", "https://ui.example.evil",
                            "http://localhost", "null", ""})
    EXPECT_FALSE(origins->Allows(other)) << other;
}

TEST(CrossOriginTest, AStarNamesNobody) {
  const auto origins = CrossOrigins::Make({"*", "https://ui.example"});
  ASSERT_TRUE(origins.ok());
  EXPECT_TRUE(origins->Allows("null"));
  EXPECT_FALSE(origins->Names("null"));
  EXPECT_TRUE(origins->Names("https://ui.example"));
}

}  // namespace
}  // namespace inflight::http_listener
