// SPDX-License-Identifier: Apache-2.0
// Answers are those of the endpoints over HTTP, which their own tests check; routes, methods and
// framing are the platform's.
#include "protocol/vertex_ai/vertex_ai_server.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "protocol/http_listener/test_client.h"
#include "protocol/kserve/http/fake_models.h"
#include "protocol/kserve/http/fake_server.h"

namespace inflight::vertex_ai {
namespace {

using http_listener::Get;
using http_listener::Post;
using http_listener::RoundTrip;
using http_listener::TestResponse;

constexpr char kIdentity[] = R"(
    name: "identity" input { name: "INPUT0" data_type: TYPE_INT32 dims: -1 }
    output { name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 })";
constexpr char kOther[] = R"(
    name: "other" input { name: "INPUT0" data_type: TYPE_INT32 dims: -1 }
    output { name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 })";
constexpr char kInfer[] =
    R"({"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],"data":[3,4]}]})";
constexpr char kType[] = "application/vnd.vertex-ai-triton.binary+json;json-header-size=";

class VertexAiServerTest : public testing::Test {
 protected:
  VertexAiServerTest() { fake_.Add(kIdentity, kserve_http::Identity); }

  static VertexAiOptions Options() {
    VertexAiOptions options;
    options.listener.address = "127.0.0.1";
    options.listener.port = 0;
    options.health_route = "/health";
    options.predict_route = "/predict";
    return options;
  }

  void Start(VertexAiOptions options) {
    auto server = VertexAiServer::Start(fake_, std::move(options));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }

  TestResponse Request(std::string_view request) { return RoundTrip(server_->port(), request); }
  TestResponse Predict(std::string_view body, const std::string& headers = "") {
    return Request(Post("/predict", body, headers));
  }
  TestResponse Redirect(const std::string& path, std::string_view body = "") {
    return Predict(body, "X-Vertex-Ai-Triton-Redirect: " + path + "\r\n");
  }

  kserve_http::FakeServer fake_;
  std::unique_ptr<VertexAiServer> server_;
};

TEST_F(VertexAiServerTest, HealthIsReadiness) {
  Start(Options());
  EXPECT_EQ(Request(Get("/health")).status, 200);
  EXPECT_EQ(Request(Post("/health", "")).status, 405);
  fake_.is_ready = false;
  EXPECT_EQ(Request(Get("/health")).status, 400);
}

TEST_F(VertexAiServerTest, PredictionsAreOfTheOnlyModel) {
  Start(Options());
  const TestResponse answer = Predict(kInfer);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body,
            R"({"model_name":"identity","model_version":"1","outputs":[{"name":"OUTPUT0",)"
            R"("datatype":"INT32","shape":[2],"data":[3,4]}]})");
  EXPECT_EQ(Request(Get("/predict")).status, 405);
}

TEST_F(VertexAiServerTest, OtherRoutesAreBadRequests) {
  Start(Options());
  for (const char* path : {"/", "/predict/", "/v2/health/ready", "/metrics"}) {
    const TestResponse answer = Request(Get(path));
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_TRUE(answer.body.starts_with(R"({"error":"unknown route)")) << answer.body;
  }
}

TEST_F(VertexAiServerTest, TheMediaTypeTellsBinaryTensorsFromJson) {
  Start(Options());
  const std::string json =
      R"({"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],)"
      R"("parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}})";
  const std::string tensor("\3\0\0\0\4\0\0\0", 8);
  const TestResponse answer =
      Predict(json + tensor, "Content-Type: " + (kType + std::to_string(json.size())) + "\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const size_t json_size = answer.body.size() - tensor.size();
  EXPECT_EQ(answer.Header("Content-Type"), kType + std::to_string(json_size));
  EXPECT_EQ(answer.Header("Inference-Header-Content-Length"), "");
  EXPECT_EQ(answer.body.substr(json_size), tensor);
}

TEST_F(VertexAiServerTest, RedirectsReachEndpointsWithTheMethodThatTheyNeed) {
  Start(Options());
  for (const char* path :
       {"v2", "v2/health/live", "v2/health/ready", "v2/models/identity",
        "v2/models/identity/versions/1", "v2/models/identity/ready", "v2/models/identity/config",
        "v2/models/identity/stats", "v2/models/stats", "v2/repository/index",
        "v2/repository/models/identity/load", "v2/repository/models/identity/unload",
        "v2/systemsharedmemory/status", "v2/cudasharedmemory/status",
        "v2/systemsharedmemory/unregister"}) {
    EXPECT_EQ(Redirect(path).status, 200) << path;
  }
  EXPECT_EQ(Redirect("v2/models/identity/infer", kInfer).status, 200);
  EXPECT_EQ(Redirect("v2/models/nobody/infer", kInfer).status, 404);
  EXPECT_EQ(
      Request("GET /predict HTTP/1.1\r\nHost: t\r\nX-Vertex-Ai-Triton-Redirect: v2\r\n\r\n").status,
      405);
}

TEST_F(VertexAiServerTest, UnknownRedirectsAreBadRequests) {
  Start(Options());
  for (const char* path :
       {"", "/v2", "v2/", "v3", "v2/models/identity/generate", "v2/models/identity/generate_stream",
        "v2/logging", "v2/trace/setting", "metrics/", "health"}) {
    EXPECT_EQ(Redirect(path, "{}").status, 400) << path;
  }
}

TEST_F(VertexAiServerTest, MetricsAreThoseOfThePageOrUnavailable) {
  Start(Options());
  EXPECT_EQ(Redirect("metrics").status, 503);
  VertexAiOptions options = Options();
  options.metrics_page = [](bool) { return "nv_x 1\n"; };
  Start(std::move(options));
  const TestResponse answer = Redirect("metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "nv_x 1\n");
  EXPECT_EQ(answer.Header("Content-Type"), "text/plain; charset=utf-8");
}

TEST_F(VertexAiServerTest, RestrictedApisAskForTheirHeaderBehindRedirectsToo) {
  VertexAiOptions options = Options();
  options.endpoints.access.policy = *kserve::AccessPolicy::Load(
      {.restrictions = {.http = {"model-repository:key=secret", "metrics:word=open"},
                        .grpc = {"inference:key=secret"}}});
  options.metrics_page = [](bool) { return "nv_x 1\n"; };
  Start(std::move(options));
  EXPECT_EQ(Predict(kInfer).status, 403);
  EXPECT_EQ(Predict(kInfer, "key: secret\r\n").status, 200);
  EXPECT_EQ(Redirect("v2/repository/index").status, 403);
  EXPECT_EQ(
      Predict("", "key: secret\r\nX-Vertex-Ai-Triton-Redirect: v2/repository/index\r\n").status,
      200);
  EXPECT_EQ(Redirect("metrics").status, 403);
  EXPECT_EQ(Predict("", "word: open\r\nX-Vertex-Ai-Triton-Redirect: metrics\r\n").status, 200);
  EXPECT_EQ(Request(Get("/health")).status, 200);
}

TEST_F(VertexAiServerTest, BodiesHaveTheLimitOfHttp) {
  VertexAiOptions options = Options();
  options.endpoints.max_input_bytes = 16;
  Start(std::move(options));
  const TestResponse answer = Predict(kInfer);
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("--http-max-input-size"), std::string::npos) << answer.body;
}

// ---- What a start needs ----

std::string StartError(serving::Server& server, VertexAiOptions options) {
  return VertexAiServer::Start(server, std::move(options)).status().message();
}

TEST_F(VertexAiServerTest, WithoutARouteThereIsNoStart) {
  for (const bool is_health : {true, false}) {
    VertexAiOptions options = Options();
    (is_health ? options.health_route : options.predict_route) = "";
    const std::string variable = is_health ? "AIP_HEALTH_ROUTE" : "AIP_PREDICT_ROUTE";
    EXPECT_TRUE(StartError(fake_, options).starts_with(variable)) << variable;
    (is_health ? options.health_route : options.predict_route) = "no/slash";
    EXPECT_TRUE(StartError(fake_, options).starts_with(variable)) << variable;
  }
  VertexAiOptions options = Options();
  options.health_route = options.predict_route;
  EXPECT_NE(StartError(fake_, options).find("must differ"), std::string::npos);
}

TEST_F(VertexAiServerTest, SeveralModelsNeedADefault) {
  fake_.Add(kOther, kserve_http::Identity);
  EXPECT_TRUE(
      StartError(fake_, Options())
          .starts_with("Expect the model repository contains only a single model if default "
                       "model is not specified"));
  VertexAiOptions options = Options();
  options.default_model = "nobody";
  EXPECT_EQ(StartError(fake_, options), "Expect the default model 'nobody' is loaded");
  options.default_model = "other";
  Start(std::move(options));
  EXPECT_TRUE(Predict(kInfer).body.starts_with(R"({"model_name":"other")"));
}

}  // namespace
}  // namespace inflight::vertex_ai
