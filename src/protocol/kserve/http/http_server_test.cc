// SPDX-License-Identifier: Apache-2.0
// Routing, health, metadata and the end of a server, over real sockets. Answers are those recorded
// from a Triton server with the same test models, except where a comment says otherwise.
#include "protocol/kserve/http/http_server.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <map>
#include <string>

#include "protocol/http_listener/large_bodies.h"
#include "protocol/kserve/http/http_server_fixture.h"

namespace inflight::kserve_http {
namespace {

TEST_F(HttpServerTest, UnknownPathsAndWrongMethods) {
  const TestResponse unknown = Request(Get("/v2/nothing"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.body, R"({"error":"Not Found"})");
  EXPECT_EQ(unknown.Header("Content-Type"), "text/plain");

  for (const auto& [request, label] :
       {std::pair(Post("/v2", "{}"), "application/json"),
        std::pair(Get("/v2/models/words/generate"), "application/json"),
        std::pair(Get("/v2/models/simple/infer"), "text/plain"),
        std::pair(Get("/v2/repository/index"), "application/json"),
        std::pair(Post("/v2/health/live", ""), "text/plain"),
        std::pair(std::string("BREW /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"), "text/plain")}) {
    const TestResponse response = Request(request);
    EXPECT_EQ(response.status, 405) << request;
    EXPECT_TRUE(response.head.starts_with("HTTP/1.1 405 Not Allowed\r\n")) << response.head;
    EXPECT_EQ(response.body, R"({"error":"Method Not Allowed"})");
    EXPECT_EQ(response.Header("Content-Type"), label) << request;
  }
}

// Those of an I/O thread would wait for each other's bodies.
TEST_F(HttpServerTest, ABodyOfMoreThanOneReadIsParsedElsewhere) {
  std::string thread(16, '\0');
  fake_.Add(R"(name: "here" input { name: "INPUT0" data_type: TYPE_STRING dims: 1 }
               output { name: "OUTPUT0" data_type: TYPE_STRING dims: 1 })",
            [&](const serving::Request& request, const serving::ResponseHandler& handler) {
              pthread_getname_np(pthread_self(), thread.data(), thread.size());
              Identity(request, handler);
            });
  const auto thread_of = [&](size_t num_bytes) {
    const std::string head =
        R"({"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1],"data":[")";
    const std::string text(num_bytes - head.size() - 5, 'x');
    const TestResponse answer = Request(Post("/v2/models/here/infer", head + text + R"("]}]})"));
    EXPECT_EQ(answer.status, 200) << answer.body.substr(0, 200);
    return std::string(thread.c_str());
  };
  EXPECT_EQ(thread_of(http_listener::kLargeBodyBytes - 1), "HTTP I/O");
  EXPECT_EQ(thread_of(http_listener::kLargeBodyBytes), "http-body");
  EXPECT_EQ(thread_of(size_t{100} * 1024), "http-body");
}

TEST_F(HttpServerTest, HealthIsTheStatusAlone) {
  EXPECT_EQ(Request(Get("/v2/health/live")).status, 200);
  EXPECT_EQ(Request(Get("/v2/health/ready")).status, 200);
  fake_.is_ready = false;
  const TestResponse not_ready = Request(Get("/v2/health/ready"));
  EXPECT_EQ(not_ready.status, 400);
  EXPECT_EQ(not_ready.body, "");
}

TEST_F(HttpServerTest, AServerThatExitsSaysSoWhenAskedWhetherItIsReady) {
  fake_.BeginExit();
  const TestResponse exiting = Request(Get("/v2/health/ready"));
  EXPECT_EQ(exiting.status, 503);
  EXPECT_EQ(exiting.body, R"({"error":"Server exiting"})");
  EXPECT_EQ(Request(Get("/v2/health/live")).status, 200);
}

TEST_F(HttpServerTest, MemoryOfAGpuIsRegisteredReadAndForgotten) {
  const std::string path = "/v2/cudasharedmemory/region/g/";
  const auto registered = [&](const std::string& body) {
    return Request(Post(path + "register", body)).body;
  };
  // 64 bytes "h", in lines as Triton's C++ client sends them.
  const std::string handle =
      R"({"raw_handle":{"b64":"aGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGho\n)"
      R"(aGhoaGhoaGhoaA==\n"})";
  const std::string no_handle = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t";
  for (const auto& [body, error] : std::map<std::string, std::string>{
           {R"({"raw_handle":{},"device_id":0,"byte_size":8})",
            "Shared memory register request has no 'b64' field"},
           {R"({"raw_handle":{"b64":"!"},"device_id":0,"byte_size":8})", no_handle},
           {R"({"raw_handle":{"b64":"aA=="},"device_id":0,"byte_size":8})", no_handle},
           {handle + R"(,"device_id":0})",
            "Shared memory register request has no 'byte_size' field"},
           {handle + R"(,"byte_size":8})",
            "Shared memory register request has no 'device_id' field"},
           {handle + R"(,"device_id":0,"byte_size":9})",
            "failed to register shared memory region 'g': invalid args"}}) {
    EXPECT_EQ(registered(body), R"({"error":")" + error + R"("})");
  }
  EXPECT_EQ(registered(handle + R"(,"device_id":2,"byte_size":8})"), "");
  EXPECT_EQ(Request(Get("/v2/cudasharedmemory/status")).body,
            R"([{"name":"g","device_id":2,"byte_size":8}])");
  EXPECT_EQ(Request(Get("/v2/systemsharedmemory/status")).body, "[]");
  const TestResponse read = Request(Post(
      "/v2/models/id_int32/infer",
      R"({"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,1],"parameters":)"
      R"({"shared_memory_region":"g","shared_memory_offset":4,"shared_memory_byte_size":4}}]})"));
  EXPECT_NE(read.body.find("[926299444]"), std::string::npos) << read.body;  // "4567"
  EXPECT_EQ(Request(Post("/v2/cudasharedmemory/unregister", "")).status, 200);
  EXPECT_EQ(Request(Get(path + "status")).body,
            R"({"error":"Unable to find cuda shared memory region: 'g'"})");
}

TEST_F(HttpServerTest, ModelReadiness) {
  EXPECT_EQ(Request(Get("/v2/models/simple/ready")).status, 200);
  EXPECT_EQ(Request(Get("/v2/models/simple/versions/1/ready")).status, 200);
  const TestResponse unknown = Request(Get("/v2/models/nosuch/ready"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.body, R"({"error":"Request for unknown model: 'nosuch' is not found"})");
  const TestResponse version = Request(Get("/v2/models/simple/versions/2/ready"));
  EXPECT_EQ(version.status, 404);
  EXPECT_EQ(version.body,
            R"({"error":"Request for unknown model: 'simple' version 2 is not found"})");
  static_cast<FakeModel&>(**fake_.FindModel("simple", "")).is_ready = false;
  const TestResponse not_ready = Request(Get("/v2/models/simple/ready"));
  EXPECT_EQ(not_ready.status, 400);
  EXPECT_EQ(not_ready.body, R"({"error":"Model version not ready"})");
}

TEST_F(HttpServerTest, Metadata) {
  EXPECT_EQ(Request(Get("/v2?verbose=1")).body,
            R"({"name":"triton","version":"2.73.0","extensions":["parameters","statistics"]})");
  EXPECT_EQ(Request(Get("/v2/models/simple")).body,
            R"({"name":"simple","versions":["1"],"platform":"conformance","inputs":[)"
            R"({"name":"INPUT0","datatype":"INT32","shape":[-1,16]},)"
            R"({"name":"INPUT1","datatype":"INT32","shape":[-1,16]}],"outputs":[)"
            R"({"name":"OUTPUT0","datatype":"INT32","shape":[-1,16]},)"
            R"({"name":"OUTPUT1","datatype":"INT32","shape":[-1,16]}]})");
}

TEST_F(HttpServerTest, ConfigurationPrintsDefaultsAndPlainNumbers) {
  fake_.Add(
      R"(name: "c" max_batch_size: 2 version_policy { specific { versions: 9007199254740993 } }
               input { name: "I" data_type: TYPE_STRING dims: [-1, 3] }
               instance_group { name: "c_0" count: 1 kind: KIND_CPU }
               parameters { key: "k" value { string_value: "v" } })");
  const std::string body = Request(Get("/v2/models/c/config")).body;
  for (const std::string_view part :
       {R"("version_policy":{"specific":{"versions":[9007199254740993]}})", R"("max_batch_size":2)",
        R"("input":[{"name":"I","data_type":"TYPE_STRING","format":"FORMAT_NONE","dims":[-1,3],)"
        R"("is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,)"
        R"("is_non_linear_format_io":false}])",
        R"("output":[])", R"("batch_input":[])", R"("name":"c_0")", R"("kind":"KIND_CPU")",
        R"("gpus":[])", R"("host_policy":"")", R"("parameters":{"k":{"string_value":"v"}})",
        R"("cc_model_filenames":{})"}) {
    EXPECT_NE(body.find(part), std::string::npos) << part << "\n" << body;
  }
  EXPECT_EQ(body.find("dynamic_batching"), std::string::npos);
}

TEST_F(HttpServerTest, IndexListsModelsAndTakesReady) {
  const std::string ready = Request(Post("/v2/repository/index", R"({"ready":true})")).body;
  EXPECT_TRUE(ready.starts_with(R"([{"name":"simple","version":"1","state":"READY"},)")) << ready;
  EXPECT_EQ(ready.find("broken"), std::string::npos);
  EXPECT_NE(Request(Post("/v2/repository/any/index", ""))
                .body.find(R"({"name":"broken","version":"1","state":"UNAVAILABLE",)"
                           R"("reason":"Internal: no file"})"),
            std::string::npos);
  // Answers of the newer release line.
  const TestResponse not_bool = Request(Post("/v2/repository/index", R"({"ready":1})"));
  EXPECT_EQ(not_bool.status, 400);
  EXPECT_EQ(not_bool.body, R"({"error":"Invalid value for 'ready': expected a boolean"})");
  const std::string deep = std::string(250'000, '[') + std::string(250'000, ']');
  EXPECT_EQ(Request(Post("/v2/repository/index", R"({"ready":)" + deep + "}")).body,
            R"({"error":"Invalid value for 'ready': expected a boolean"})");
  EXPECT_EQ(Request(Post("/v2/repository/index", "[]")).status, 200);
}

TEST_F(HttpServerTest, LoadsBringAConfigurationAndFiles) {
  EXPECT_EQ(Request(Post("/v2/repository/models/simple/load",
                         R"({"parameters":{"config":"{}","file:1/a":"YWJj"}})"))
                .status,
            200);
  EXPECT_EQ(Request(Post("/v2/repository/models/simple/load",
                         R"({"parameters":{"config":"{}","file:1/a":"a"}})"))
                .body,
            R"({"error":"file:1/a: the value is not base64"})");
  EXPECT_EQ(
      Request(Post("/v2/repository/models/simple/load", R"({"parameters":{"other":"x"}})")).body,
      R"({"error":"unexpected error on creating Triton parameter"})");
  EXPECT_EQ(Request(Post("/v2/repository/r/models/simple/unload", "")).status, 501);
}

TEST_F(HttpServerTest, StatisticsComeFromTheModel) {
  auto& statistics = (*fake_.FindModel("simple", ""))->statistics();
  statistics.RequestSucceeded({.received_ns = 1000,
                               .compute_start_ns = 1010,
                               .compute_input_end_ns = 1030,
                               .compute_output_start_ns = 1090,
                               .finished_ns = 1100});
  const TestResponse response = Request(Get("/v2/models/simple/versions/1/stats"));
  EXPECT_EQ(response.status, 200);
  for (
      const std::string_view part :
      {R"({"model_stats":[{"name":"simple","version":"1","last_inference":)",
       R"("inference_count":1,"execution_count":1,"inference_stats":{"success":{"count":1,"ns":100},)",
       R"("queue":{"count":1,"ns":10},"compute_input":{"count":1,"ns":20},)"
       R"("compute_infer":{"count":1,"ns":60},"compute_output":{"count":1,"ns":10},)"
       R"("cache_hit":{"count":0,"ns":0},"cache_miss":{"count":0,"ns":0}},"response_stats":{},)"
       R"("batch_stats":[{"batch_size":1,)",
       R"("memory_usage":[]}]})"}) {
    EXPECT_NE(response.body.find(part), std::string::npos) << part << "\n" << response.body;
  }
  EXPECT_EQ(response.body.find("iteration_stats"), std::string::npos) << "it has no executor";
  EXPECT_NE(Request(Get("/v2/models/stats")).body.find(R"("name":"words")"), std::string::npos);
  const TestResponse unknown = Request(Get("/v2/models/nosuch/stats"));
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(unknown.body, R"({"error":"requested model 'nosuch' is not available"})");
  EXPECT_EQ(Request(Get("/v2/models/simple/versions/7/stats")).body,
            R"({"error":"requested model version is not available for model 'simple'"})");
}

TEST_F(HttpServerTest, StatisticsOfAnLlmHaveItsNewestRecords) {
  const auto stats = [this] { return Request(Get("/v2/models/simple/stats")).body; };
  fake_.gauges = {{.model = "simple", .version = "1"}};
  EXPECT_TRUE(stats().ends_with(R"("memory_usage":[],"iteration_stats":null}]})")) << "none yet";
  serving::ExecutorGauges& gauges = fake_.gauges[0];
  gauges.iteration.timestamp_us = 1;
  gauges.iteration.stats.num_steps = 7;
  gauges.requests = std::make_shared<const RequestStatsPerIteration>(
      RequestStatsPerIteration{.iter = 7, .requests = {{.id = 3}}});
  const std::string body = stats();
  EXPECT_NE(body.find(R"("memory_usage":[],"iteration_stats":{"cpuMemUsage":)"), std::string::npos);
  EXPECT_NE(body.find(R"(},"iter":7,)"), std::string::npos) << body;
  EXPECT_NE(body.find(R"("request_stats":{"iter":7,"requestStats":[{)"), std::string::npos);
  EXPECT_NE(body.find(R"("id":3,)"), std::string::npos);
}

// Another model has the name after the first look.
class ReloadingServer : public FakeServer {
 public:
  Result<std::shared_ptr<serving::Model>> FindModel(std::string_view name,
                                                    std::string_view version) const override {
    if (num_looks_++ > 0) return NotFound("the model was reloaded");
    return FakeServer::FindModel(name, version);
  }

 private:
  mutable std::atomic<int> num_looks_{0};
};

TEST_F(HttpServerTest, ARequestRunsOnTheModelThatItWasParsedFor) {
  for (const std::string path : {"infer", "generate", "generate_stream"}) {
    ReloadingServer reloading;
    reloading.Add(kParams, Elsewhere(EchoParameters));
    HttpOptions options;
    options.listener.address = "127.0.0.1";
    options.listener.port = 0;
    auto server = HttpServer::Start(reloading, options);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    const TestResponse answer = RoundTrip(
        (*server)->port(),
        Post("/v2/models/params/" + path,
             path == "infer"
                 ? R"({"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1],"data":["x"]}]})"
                 : R"({"INPUT0":"x"})"));
    EXPECT_EQ(answer.status, 200) << path << " " << answer.body;
  }
}

TEST_F(HttpServerTest, DisconnectCancelsWhateverRuns) {
  for (const std::string path : {"infer", "generate", "generate_stream"}) {
    held_ = {};
    TestClient client(server_->port());
    client.Send(
        Post("/v2/models/held/" + path,
             path == "infer"
                 ? R"({"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1],"data":["x"]}]})"
                 : R"({"INPUT0":"x"})"));
    Held held = TakeHeld();
    std::promise<void> cancelled;
    held.request.cancel->SetListener([&cancelled] { cancelled.set_value(); });
    client.Close();
    EXPECT_EQ(cancelled.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready)
        << path;
    held.handler(Fail(held.request, Cancelled("client has gone")));
  }
}

TEST_F(HttpServerTest, StopCancelsWhatDoesNotFinish) {
  TestClient client(server_->port());
  client.Send(Post("/v2/models/held/generate", R"({"INPUT0":"x"})"));
  Held held = TakeHeld();
  server_->Stop(std::chrono::milliseconds(10));
  EXPECT_TRUE(held.request.cancel->cancelled());
  held.handler(Begin(held.request));  // nobody listens
}

}  // namespace
}  // namespace inflight::kserve_http
