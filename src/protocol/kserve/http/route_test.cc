// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/route.h"

#include <gtest/gtest.h>

namespace inflight::kserve_http {
namespace {

TEST(RouteTest, PathsMatchAsAWhole) {
  struct Case {
    std::string_view path;
    Endpoint endpoint;
    std::string model;
    std::string version;
  };
  const Case kCases[] = {
      {"/v2", Endpoint::kServerMetadata, "", ""},
      {"/v2/health/live", Endpoint::kLive, "", ""},
      {"/v2/health/ready", Endpoint::kReady, "", ""},
      {"/v2/models/stats", Endpoint::kStatistics, "", ""},
      {"/v2/models/stats/ready", Endpoint::kModelReady, "stats", ""},
      {"/v2/models/m", Endpoint::kModelMetadata, "m", ""},
      {"/v2/models/m/versions/12", Endpoint::kModelMetadata, "m", "12"},
      {"/v2/models/m/versions/01/ready", Endpoint::kModelReady, "m", "1"},
      {"/v2/models/m/versions/000/infer", Endpoint::kInfer, "m", "0"},
      {"/v2/models/versions/ready", Endpoint::kModelReady, "versions", ""},
      {"/v2/models/dyn%5Fa/config", Endpoint::kModelConfig, "dyn%5Fa", ""},
      {"/v2/models/../ready", Endpoint::kModelReady, "..", ""},
      {"/v2/models/m/generate", Endpoint::kGenerate, "m", ""},
      {"/v2/models/m/versions/1/generate_stream", Endpoint::kGenerateStream, "m", "1"},
      {"/v2/models/m/trace/setting", Endpoint::kTraceSetting, "m", ""},
      {"/v2/repository/index", Endpoint::kIndex, "", ""},
      {"/v2/repository/any/index", Endpoint::kIndex, "", ""},
      {"/v2/repository/models/m/load", Endpoint::kLoad, "m", ""},
      {"/v2/repository/any/models/m/unload", Endpoint::kUnload, "m", ""},
      {"/v2/systemsharedmemory/status", Endpoint::kSharedMemoryStatus, "", ""},
      {"/v2/cudasharedmemory/region/r/register", Endpoint::kSharedMemoryRegister, "", ""},
      {"/v2/logging", Endpoint::kLogging, "", ""},
  };
  for (const Case& c : kCases) {
    const auto route = FindRoute(c.path);
    ASSERT_TRUE(route.has_value()) << c.path;
    EXPECT_EQ(route->endpoint, c.endpoint) << c.path;
    EXPECT_EQ(route->model, c.model) << c.path;
    EXPECT_EQ(route->version, c.version) << c.path;
  }
}

TEST(RouteTest, SharedMemoryNamesItsRegionAndItsKind) {
  const auto cuda = FindRoute("/v2/cudasharedmemory/region/r%20/register");
  ASSERT_TRUE(cuda.has_value());
  EXPECT_TRUE(cuda->is_cuda);
  EXPECT_EQ(cuda->region, "r%20");
  const auto all = FindRoute("/v2/systemsharedmemory/unregister");
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->endpoint, Endpoint::kSharedMemoryUnregister);
  EXPECT_FALSE(all->is_cuda);
  EXPECT_EQ(all->region, "");
}

TEST(RouteTest, OfLoadAndUnloadTheRepositoryIsKept) {
  EXPECT_EQ(FindRoute("/v2/repository/models/m/load")->repository, "");
  EXPECT_EQ(FindRoute("/v2/repository/any/models/m/unload")->repository, "any");
}

TEST(RouteTest, OtherPathsDoNotMatch) {
  for (const std::string_view path : {"",
                                      "/",
                                      "*",
                                      "/v1",
                                      "/v2/",
                                      "/v2/health",
                                      "/v2/health/live/",
                                      "/V2/health/live",
                                      "/v2/models",
                                      "/v2/models/",
                                      "/v2/models//ready",
                                      "/v2/models/m/versions/x",
                                      "/v2/models/m/versions/-1/infer",
                                      "/v2/models/m/versions/1.0/ready",
                                      "/v2/models/m/unknown",
                                      "/v2/models/m/versions/1/trace/setting",
                                      "/v2/models/m/infer/",
                                      "/v2/repository",
                                      "/v2/repository/models/m/versions/1/load",
                                      "/v2%2Fhealth%2Flive",
                                      "/metrics",
                                      "/v2/models/a/b/c/d/e/f/g/h/i/j/k"}) {
    EXPECT_FALSE(FindRoute(path).has_value()) << path;
  }
}

}  // namespace
}  // namespace inflight::kserve_http
