// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/router.h"

#include <gtest/gtest.h>

namespace inflight::http_listener {
namespace {

const Router kRouter({
    {"/models", kGet | kPost},
    {"/models/stats", kGet},
    {"/models/{model}[/versions/{version}]", kGet},
    {"/models/{model}", kDelete},
    {"/models[/{shelf}]/{model}/load", kPost},
});

size_t RowOf(std::string_view method, std::string_view path) {
  const auto match = kRouter.Find(method, path);
  return match && match->allows_method ? match->row : 99;
}

TEST(RouterTest, TheFirstRowOfPathAndMethodCounts) {
  EXPECT_EQ(RowOf("GET", "/models"), 0U);
  EXPECT_EQ(RowOf("POST", "/models"), 0U);
  EXPECT_EQ(RowOf("GET", "/models/stats"), 1U);
  EXPECT_EQ(RowOf("GET", "/models/m"), 2U);
  EXPECT_EQ(RowOf("GET", "/models/m/versions/1"), 2U);
  EXPECT_EQ(RowOf("DELETE", "/models/m"), 3U);
  EXPECT_EQ(RowOf("DELETE", "/models/stats"), 3U) << "row 1 has the path, this one both";
}

TEST(RouterTest, AMethodThatNoRowHasIsToldApartFromAPathThatNoneHas) {
  const auto match = kRouter.Find("PUT", "/models/stats");
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->row, 1U);
  EXPECT_FALSE(match->allows_method);
  for (const char* path : {"", "/", "models", "/models/", "//models", "/models/m/", "/Models",
                           "/models/m/versions", "/models/m/versions/1/2", "/a/b/c/d/e/f/g/h/i"}) {
    EXPECT_FALSE(kRouter.Find("GET", path).has_value()) << path;
  }
}

TEST(RouterTest, ValuesHaveTheNamesOfTheTemplate) {
  const auto short_form = kRouter.Find("POST", "/models/m/load");
  ASSERT_TRUE(short_form.has_value());
  EXPECT_EQ(short_form->row, 4U);
  EXPECT_EQ(short_form->values.Of("model"), "m");
  EXPECT_EQ(short_form->values.Of("shelf"), "");
  const auto long_form = kRouter.Find("POST", "/models/a%20b/m/load");
  ASSERT_TRUE(long_form.has_value());
  EXPECT_EQ(long_form->values.Of("shelf"), "a%20b");
  EXPECT_EQ(long_form->values.Of("model"), "m");
  EXPECT_EQ(long_form->values.Of("version"), "");
}

TEST(RouterTest, TheRootIsAPathOfNoSegments) {
  const Router router({{"/", kGet}, {"/a", kPut}});
  EXPECT_EQ(router.Find("GET", "/")->row, 0U);
  EXPECT_TRUE(router.Find("PUT", "/a")->allows_method);
  EXPECT_FALSE(router.Find("GET", "").has_value());
}

TEST(RouterTest, AGetHasHeadAndEveryPathHasOptions) {
  EXPECT_EQ(RowOf("HEAD", "/models/stats"), 1U);
  EXPECT_EQ(RowOf("OPTIONS", "/models/m/load"), 4U);
  EXPECT_FALSE(kRouter.Find("HEAD", "/models/m/load")->allows_method) << "it has POST alone";
  EXPECT_EQ(MethodNames(kRouter.Find("OPTIONS", "/models/m")->methods),
            "GET, HEAD, DELETE, OPTIONS");
  const HttpResponse answer = AnswerOptions(kRouter.Find("OPTIONS", "/models")->methods);
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers.front().second, "GET, HEAD, POST, OPTIONS");
  const Router listed({{"/models", kGet}}, Implied::kNothing);
  EXPECT_FALSE(listed.Find("HEAD", "/models")->allows_method);
  EXPECT_FALSE(listed.Find("OPTIONS", "/models")->allows_method);
}

TEST(RouterTest, MethodsAreNamed) {
  EXPECT_EQ(MethodNames(kGet | kPost), "GET, POST");
  EXPECT_EQ(MethodNames(kDelete), "DELETE");
  EXPECT_FALSE(Allows(kGet, "get"));
  EXPECT_FALSE(Allows(kGet, ""));
}

}  // namespace
}  // namespace inflight::http_listener
