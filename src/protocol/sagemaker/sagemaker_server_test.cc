// SPDX-License-Identifier: Apache-2.0
// Answers of endpoints are those over HTTP, which their own tests check; routes, framing and what
// they lead to are the platform's.
#include "protocol/sagemaker/sagemaker_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "protocol/http_listener/test_client.h"
#include "protocol/sagemaker/fake_hosting.h"

namespace inflight::sagemaker {
namespace {

namespace fs = std::filesystem;
using http_listener::Get;
using http_listener::Post;
using http_listener::RoundTrip;
using http_listener::TestResponse;

constexpr char kInfer[] =
    R"({"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],"data":[3,4]}]})";
constexpr char kType[] = "application/vnd.sagemaker-triton.binary+json;json-header-size=";

class SageMakerServerTest : public testing::Test {
 protected:
  SageMakerServerTest() {
    fs::create_directories(root_ / "m");
    std::ofstream(root_ / "m" / "config.pbtxt") << R"(backend: "b")";
  }
  ~SageMakerServerTest() override { fs::remove_all(root_); }

  void Start(SageMakerOptions options = {}) {
    options.listener.address = "127.0.0.1";
    options.listener.port = 0;
    auto server = SageMakerServer::Start(fake_, std::move(options));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }

  TestResponse Request(std::string_view request) { return RoundTrip(server_->port(), request); }
  TestResponse Invoke(const std::string& path, std::string_view body = kInfer,
                      std::string_view headers = "") {
    return Request(Post(path, body, headers));
  }
  static std::string Delete(const std::string& path) {
    return "DELETE " + path + " HTTP/1.1\r\nHost: test\r\n\r\n";
  }
  std::string LoadBody(const std::string& name) const {
    return R"({"model_name":")" + name + R"(","url":")" + root_.string() + "\"}";
  }

  const fs::path root_ =
      fs::canonical(fs::temp_directory_path()) / ("inflight_sagemaker_" + std::to_string(getpid()));
  FakeHosting fake_;
  std::unique_ptr<SageMakerServer> server_;
};

TEST_F(SageMakerServerTest, PingIsReadinessOrLiveness) {
  fake_.is_ready = false;
  Start();
  EXPECT_EQ(Request(Get("/ping")).status, 400);
  Start({.ping_mode = "live"});
  EXPECT_EQ(Request(Get("/ping")).status, 200);
  fake_.is_ready = true;
  Start({.ping_mode = "ready"});
  EXPECT_EQ(Request(Get("/ping")).status, 200);
}

TEST_F(SageMakerServerTest, OtherRoutesAndMethodsAreBadRequests) {
  Start();
  for (const std::string& request :
       {Get("/"), Get("/v2"), Get("/ping/"), Post("/ping", ""), Get("/invocations"),
        Delete("/models"), Get("/models/"), Get("/models/h/invoke"), Post("/models/h", "{}"),
        Post("/models/h/generate", "{}"), Post("/models//invoke", "{}"), Get("/modelsh"),
        Get("/models/a/b")}) {
    EXPECT_EQ(Request(request).status, 400) << request;
  }
}

TEST_F(SageMakerServerTest, InvocationsAreOfTheDefaultOrTheOnlyModel) {
  fake_.AddIdentity("one");
  Start();
  EXPECT_EQ(Invoke("/invocations").body,
            R"({"model_name":"one","model_version":"1","outputs":[{"name":"OUTPUT0",)"
            R"("datatype":"INT32","shape":[2],"data":[3,4]}]})");
  fake_.AddIdentity("two");
  const TestResponse unclear = Invoke("/invocations");
  EXPECT_EQ(unclear.status, 400);
  EXPECT_NE(unclear.body.find("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"), std::string::npos);
  Start({.default_model = "two"});
  EXPECT_TRUE(Invoke("/invocations").body.starts_with(R"({"model_name":"two")"));
  Start({.default_model = "nobody"});
  EXPECT_EQ(Invoke("/invocations").status, 404);
}

TEST_F(SageMakerServerTest, InvocationsMayGenerate) {
  fake_.Add(R"(name: "words" model_transaction_policy { decoupled: true }
               input { name: "text_input" data_type: TYPE_STRING dims: 1 }
               input { name: "stream" data_type: TYPE_BOOL dims: 1 optional: true }
               output { name: "text_output" data_type: TYPE_STRING dims: 1 })",
            kserve_http::Words);
  const std::string body = R"({"text_input":"a b","stream":true})";
  Start({.inference_type = "generate"});
  EXPECT_EQ(Invoke("/invocations", R"({"text_input":"a b"})").body,
            R"({"model_name":"words","model_version":"1","text_output":"a b"})");
  Start({.inference_type = "generate_stream"});
  const TestResponse stream = Invoke("/invocations", body);
  EXPECT_EQ(stream.num_chunks, 2);
  EXPECT_TRUE(stream.body.starts_with("data: {")) << stream.body;
}

TEST_F(SageMakerServerTest, TheMediaTypeTellsBinaryTensorsFromJson) {
  fake_.AddIdentity("one");
  Start();
  const std::string json =
      R"({"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],)"
      R"("parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}})";
  const std::string tensor("\3\0\0\0\4\0\0\0", 8);
  const TestResponse answer = Invoke(
      "/invocations", json + tensor,
      "Content-Type: " + (kType + std::to_string(json.size())) + "\r\nAccept-Encoding: gzip\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const size_t json_size = answer.body.size() - tensor.size();
  EXPECT_EQ(answer.Header("Content-Type"), kType + std::to_string(json_size));
  EXPECT_EQ(answer.body.substr(json_size), tensor);
  EXPECT_EQ(answer.Header("Content-Encoding"), "");
}

TEST_F(SageMakerServerTest, NothingIsCompressed) {
  fake_.AddIdentity("one");
  Start();
  const TestResponse answer = Invoke("/invocations", kInfer, "Accept-Encoding: gzip\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Header("Content-Encoding"), "");
  const TestResponse refused = Invoke("/invocations", kInfer, "Content-Encoding: gzip\r\n");
  EXPECT_EQ(refused.status, 501);
  EXPECT_EQ(refused.Header("Accept-Encoding"), "");
}

TEST_F(SageMakerServerTest, ModelsComeAnswerAndGo) {
  Start();
  EXPECT_EQ(Invoke("/models/h1/invoke").status, 404);
  EXPECT_EQ(Request(Get("/models/h1")).status, 404);
  ASSERT_EQ(Request(Post("/models", LoadBody("h1"), "X-Amzn-SageMaker-Target-Model: t\r\n")).status,
            200);
  EXPECT_EQ(Request(Get("/models/h1")).status, 200);
  EXPECT_NE(Request(Get("/models")).body.find("h1"), std::string::npos);
  // The name of the platform leads to the model that is served as t.
  EXPECT_TRUE(Invoke("/models/h1/invoke").body.starts_with(R"({"model_name":"t")"));
  EXPECT_EQ(Invoke("/models/t/invoke").status, 404);
  EXPECT_EQ(Request(Delete("/models/h1")).status, 200);
  EXPECT_EQ(Request(Delete("/models/h1")).status, 404);
  EXPECT_EQ(Invoke("/models/h1/invoke").status, 404);
}

TEST_F(SageMakerServerTest, MemoryThatRanOutIs507) {
  fake_.Add(R"(name: "t" input { name: "INPUT0" data_type: TYPE_INT32 dims: -1 }
               output { name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 })",
            [](const serving::Request& request, const serving::ResponseHandler& handler) {
              const Status failure = Internal("CUDA out of memory");
              handler(kserve_http::Fail(request, failure.WithReason(Reason::kOutOfMemory)));
            });
  Start();
  ASSERT_EQ(Request(Post("/models", LoadBody("h1"), "X-Amzn-SageMaker-Target-Model: t\r\n")).status,
            200);
  EXPECT_EQ(Invoke("/models/h1/invoke").status, 507);
  EXPECT_EQ(Invoke("/models/h1/invoke", "x").status, 500);
}

TEST_F(SageMakerServerTest, MemoryThatWeRanOutOfIs507AndAFullQueueIsNot) {
  Status failure;
  fake_.Add(R"(name: "t" input { name: "INPUT0" data_type: TYPE_INT32 dims: -1 }
               output { name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 })",
            [&](const serving::Request& request, const serving::ResponseHandler& handler) {
              handler(kserve_http::Fail(request, failure));
            });
  Start();
  ASSERT_EQ(Request(Post("/models", LoadBody("h1"), "X-Amzn-SageMaker-Target-Model: t\r\n")).status,
            200);
  for (const char* text : {"logits: cannot map 4096 bytes of memory",
                           "cuda:0: logits: needs 10 bytes, 3 of 8 are free",
                           "KV cache: 90 tokens of 2 beams do not fit into 4 blocks (load the "
                           "model with more KV cache memory)"}) {
    failure = OutOfMemory(text);
    EXPECT_EQ(Invoke("/models/h1/invoke").status, 507) << text;
    failure = InvalidArgument(text);
    EXPECT_EQ(Invoke("/models/h1/invoke").status, 400) << text;
  }
  failure = ResourceExhausted("Maximum queue size of 4 has been reached, please try again later")
                .WithReason(Reason::kQueueFull);
  EXPECT_EQ(Invoke("/models/h1/invoke").status, 503);
}

TEST_F(SageMakerServerTest, RestrictedApisAskForTheirHeader) {
  fake_.AddIdentity("one");
  SageMakerOptions options;
  options.endpoints.access.policy =
      *kserve::AccessPolicy::Load({.restrictions = {.http = {"model-repository:key=secret"},
                                                    .grpc = {"inference:other=word"}}});
  Start(std::move(options));
  for (const std::string& request :
       {Get("/models"), Get("/models/h"), Post("/models", LoadBody("h")), Delete("/models/h"),
        Post("/invocations", kInfer), Post("/models/h/invoke", kInfer)}) {
    EXPECT_EQ(Request(request).status, 403) << request;
  }
  EXPECT_TRUE(fake_.calls.empty());
  EXPECT_EQ(Request(Get("/ping")).status, 200);
  EXPECT_EQ(Request(Post("/models", LoadBody("h"), "key: secret\r\n")).status, 200);
  EXPECT_EQ(Invoke("/models/h/invoke", kInfer, "other: word\r\n").status, 200);
}

TEST_F(SageMakerServerTest, BodiesHaveTheLimitOfHttp) {
  SageMakerOptions options;
  options.endpoints.max_input_bytes = 16;
  Start(std::move(options));
  for (const char* path : {"/invocations", "/models"}) {
    const TestResponse answer = Invoke(path);
    EXPECT_EQ(answer.status, 400);
    EXPECT_NE(answer.body.find("--http-max-input-size"), std::string::npos) << answer.body;
  }
}

TEST_F(SageMakerServerTest, UnknownModesEndTheStart) {
  const auto error = [this](SageMakerOptions options) {
    return SageMakerServer::Start(fake_, std::move(options)).status().message();
  };
  EXPECT_EQ(error({.ping_mode = "dead"}),
            "SAGEMAKER_TRITON_PING_MODE: got 'dead', known are ready, live");
  EXPECT_EQ(error({.inference_type = "guess"}),
            "SAGEMAKER_TRITON_INFERENCE_TYPE: got 'guess', known are infer, generate, "
            "generate_stream");
}

}  // namespace
}  // namespace inflight::sagemaker
