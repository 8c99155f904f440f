// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/endpoint_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace inflight::kserve_http {
namespace {

std::optional<Route> RouteOf(std::string_view path) {
  auto found = FindRoute("GET", path);
  if (!found) return std::nullopt;
  return std::move(found->route);
}

// "METHOD path" of each row of the document's table: | GET `/v2`, `/v2/logging` | ... |
std::set<std::string> DocumentedRows() {
  std::set<std::string> rows;
  std::ifstream page(INFLIGHT_HTTP_PAGE);
  for (std::string line; std::getline(page, line);) {
    const size_t first = line.find(" `/");
    if (!line.starts_with("| ") || first == line.npos || line.find("`/metrics`") != line.npos)
      continue;
    const std::string methods = line.substr(2, first - 2);
    const std::string cell = line.substr(first, line.find(" | ", first) - first);
    for (size_t at = cell.find("`/"); at != cell.npos; at = cell.find("`/", at + 1)) {
      const size_t end = cell.find('`', at + 1);
      rows.insert(methods + cell.substr(at + 1, end - at - 1).insert(0, " "));
      at = end;
    }
  }
  return rows;
}

TEST(EndpointTableTest, PathsMatchAsAWhole) {
  struct Case {
    std::string_view path;
    std::string_view row;
    std::string model;
    std::string version;
  };
  const Case kCases[] = {
      {"/v2", "/v2", "", ""},
      {"/v2/health/live", "/v2/health/live", "", ""},
      {"/v2/health/ready", "/v2/health/ready", "", ""},
      {"/v2/models/stats", "/v2/models/stats", "", ""},
      {"/v2/models/stats/ready", "/v2/models/{model}[/versions/{version}]/ready", "stats", ""},
      {"/v2/models/m", "/v2/models/{model}[/versions/{version}]", "m", ""},
      {"/v2/models/m/versions/12", "/v2/models/{model}[/versions/{version}]", "m", "12"},
      {"/v2/models/m/versions/01/ready", "/v2/models/{model}[/versions/{version}]/ready", "m", "1"},
      {"/v2/models/m/versions/000/infer", "/v2/models/{model}[/versions/{version}]/infer", "m",
       "0"},
      {"/v2/models/versions/ready", "/v2/models/{model}[/versions/{version}]/ready", "versions",
       ""},
      {"/v2/models/dyn%5Fa/config", "/v2/models/{model}[/versions/{version}]/config", "dyn%5Fa",
       ""},
      {"/v2/models/../ready", "/v2/models/{model}[/versions/{version}]/ready", "..", ""},
      {"/v2/models/m/generate", "/v2/models/{model}[/versions/{version}]/generate", "m", ""},
      {"/v2/models/m/versions/1/generate_stream",
       "/v2/models/{model}[/versions/{version}]/generate_stream", "m", "1"},
      {"/v2/models/m/trace/setting", "/v2/models/{model}/trace/setting", "m", ""},
      {"/v2/repository/index", "/v2/repository[/{repository}]/index", "", ""},
      {"/v2/repository/any/index", "/v2/repository[/{repository}]/index", "", ""},
      {"/v2/repository/models/m/load", "/v2/repository[/{repository}]/models/{model}/load", "m",
       ""},
      {"/v2/repository/any/models/m/unload", "/v2/repository[/{repository}]/models/{model}/unload",
       "m", ""},
      {"/v2/systemsharedmemory/status", "/v2/systemsharedmemory[/region/{region}]/status", "", ""},
      {"/v2/cudasharedmemory/region/r/register", "/v2/cudasharedmemory[/region/{region}]/register",
       "", ""},
      {"/v2/logging", "/v2/logging", "", ""},
      {"/v2/debug/profile", "/v2/debug/profile", "", ""},
  };
  for (const Case& c : kCases) {
    const auto route = RouteOf(c.path);
    ASSERT_TRUE(route.has_value()) << c.path;
    EXPECT_EQ(route->endpoint->path, c.row) << c.path;
    EXPECT_EQ(route->model, c.model) << c.path;
    EXPECT_EQ(route->version, c.version) << c.path;
  }
}

TEST(EndpointTableTest, SharedMemoryNamesItsRegionAndItsKind) {
  const auto cuda = RouteOf("/v2/cudasharedmemory/region/r%20/register");
  ASSERT_TRUE(cuda.has_value());
  EXPECT_TRUE(cuda->endpoint->path.starts_with("/v2/cuda"));
  EXPECT_EQ(cuda->region, "r%20");
  const auto all = RouteOf("/v2/systemsharedmemory/unregister");
  ASSERT_TRUE(all.has_value());
  EXPECT_TRUE(all->endpoint->path.ends_with("/unregister"));
  EXPECT_TRUE(all->endpoint->path.starts_with("/v2/system"));
  EXPECT_EQ(all->region, "");
}

TEST(EndpointTableTest, OfLoadAndUnloadTheRepositoryIsKept) {
  EXPECT_EQ(RouteOf("/v2/repository/models/m/load")->repository, "");
  EXPECT_EQ(RouteOf("/v2/repository/any/models/m/unload")->repository, "any");
}

TEST(EndpointTableTest, TheDocumentListsTheSameRows) {
  std::set<std::string> rows;
  for (const Endpoint& endpoint : Endpoints()) {
    rows.insert(http_listener::MethodNames(endpoint.methods) + " " + std::string(endpoint.path));
  }
  EXPECT_EQ(DocumentedRows(), rows);
}

TEST(EndpointTableTest, EachRowIsReachedByItsMethodsAlone) {
  for (const Endpoint& endpoint : Endpoints()) {
    std::string path(endpoint.path);
    for (const char c : {'[', ']', '{', '}'}) std::erase(path, c);
    if (const size_t at = path.find("versions/version"); at != path.npos)
      path.replace(at, 16, "versions/1");
    for (const std::string_view method : {"GET", "POST", "DELETE", "HEAD", ""}) {
      const auto found = FindRoute(method, path);
      ASSERT_TRUE(found.has_value()) << path;
      EXPECT_EQ(found->route.endpoint, &endpoint) << path;
      EXPECT_EQ(found->allows_method, http_listener::Allows(endpoint.methods, method)) << path;
    }
  }
}

TEST(EndpointTableTest, OtherPathsDoNotMatch) {
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
    EXPECT_FALSE(RouteOf(path).has_value()) << path;
  }
}

}  // namespace
}  // namespace inflight::kserve_http
