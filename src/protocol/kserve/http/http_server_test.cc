// SPDX-License-Identifier: Apache-2.0
// The endpoints over real sockets. Requests and answers in tables are those recorded from a Triton
// server with the same test models, except where a comment says otherwise.
#include "protocol/kserve/http/http_server.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "protocol/http_listener/test_client.h"
#include "protocol/kserve/http/compression.h"
#include "protocol/kserve/http/fake_models.h"
#include "protocol/kserve/http/fake_server.h"

namespace inflight::kserve_http {
namespace {

using http_listener::Get;
using http_listener::Post;
using http_listener::RoundTrip;
using http_listener::TestClient;
using http_listener::TestResponse;

constexpr char kSimple[] = R"(
    name: "simple" backend: "conformance" max_batch_size: 8
    input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 }
    input { name: "INPUT1" data_type: TYPE_INT32 dims: 16 }
    output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 }
    output { name: "OUTPUT1" data_type: TYPE_INT32 dims: 16 })";
constexpr char kGenPlain[] = R"(
    name: "gen_plain" max_batch_size: 4
    input { name: "text_input" data_type: TYPE_STRING dims: 1 }
    input { name: "n" data_type: TYPE_INT32 dims: 1 optional: true }
    input { name: "f" data_type: TYPE_FP32 dims: 1 optional: true }
    input { name: "flag" data_type: TYPE_BOOL dims: 1 optional: true }
    input { name: "ids" data_type: TYPE_INT32 dims: -1 optional: true }
    input { name: "grid" data_type: TYPE_INT32 dims: [-1, 2] optional: true }
    input { name: "half" data_type: TYPE_FP16 dims: 1 optional: true }
    output { name: "text_input_OUT" data_type: TYPE_STRING dims: 1 })";
constexpr char kParams[] = R"(
    name: "params" input { name: "INPUT0" data_type: TYPE_STRING dims: 1 }
    output { name: "OUTPUT0" data_type: TYPE_STRING dims: 1 })";
constexpr char kFail[] = R"(
    name: "fail" input { name: "CODE" data_type: TYPE_INT32 dims: 1 }
    input { name: "MESSAGE" data_type: TYPE_STRING dims: 1 optional: true }
    output { name: "OUT" data_type: TYPE_STRING dims: 1 })";
constexpr char kWords[] = R"(
    name: "words" model_transaction_policy { decoupled: true }
    input { name: "text_input" data_type: TYPE_STRING dims: 1 }
    input { name: "max_tokens" data_type: TYPE_INT32 dims: 1 optional: true }
    input { name: "stream" data_type: TYPE_BOOL dims: 1 optional: true }
    input { name: "fail_at" data_type: TYPE_INT32 dims: 1 optional: true }
    output { name: "text_output" data_type: TYPE_STRING dims: 1 })";

std::string IdentityOf(const std::string& type) {
  std::string lower = type == "STRING" ? "bytes" : type;
  for (char& c : lower) c = static_cast<char>(std::tolower(c));
  return "name: \"id_" + lower + R"(" max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_)" +
         type + R"( dims: -1 } output { name: "OUTPUT0" data_type: TYPE_)" + type + " dims: -1 }";
}

// Runs a behaviour on another thread, as real models do.
Behaviour Elsewhere(void (*behaviour)(const serving::Request&, const serving::ResponseHandler&)) {
  return [behaviour](serving::Request request, serving::ResponseHandler handler) {
    std::thread([behaviour, request = std::move(request), handler = std::move(handler)] {
      behaviour(request, handler);
    }).detach();
  };
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    fake_.Add(kSimple, Elsewhere(AddSub));
    fake_.Add(kGenPlain, Elsewhere(Identity));
    fake_.Add(kParams, Elsewhere(EchoParameters));
    fake_.Add(kFail, Elsewhere(FailWithCode));
    fake_.Add(kWords, Elsewhere(Words));
    for (const char* type : {"INT32", "FP16", "FP32", "FP64", "STRING", "BOOL", "UINT64"}) {
      fake_.Add(IdentityOf(type), Elsewhere(Identity));
    }
    fake_.Add(R"(name: "held" input { name: "INPUT0" data_type: TYPE_STRING dims: 1 })",
              [this](serving::Request request, serving::ResponseHandler handler) {
                held_.set_value({std::move(request), std::move(handler)});
              });
  }

  void SetUp() override { Start({}); }

  void Start(HttpOptions options) {
    options.listener.address = "127.0.0.1";
    options.listener.port = 0;
    auto server = HttpServer::Start(fake_, options);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }

  TestResponse Request(std::string_view request) { return RoundTrip(server_->port(), request); }

  struct Held {
    serving::Request request;
    serving::ResponseHandler handler;
  };
  // The request that the model "held" got.
  Held TakeHeld() {
    auto held = held_.get_future();
    EXPECT_EQ(held.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    return held.get();
  }

  FakeServer fake_;
  std::promise<Held> held_;
  std::unique_ptr<HttpServer> server_;
};

// ---- Routing, health, metadata ----

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
        std::pair(std::string("BREW /v2/health/live HTTP/1.1\r\n\r\n"), "text/plain")}) {
    const TestResponse response = Request(request);
    EXPECT_EQ(response.status, 405) << request;
    EXPECT_TRUE(response.head.starts_with("HTTP/1.1 405 Not Allowed\r\n")) << response.head;
    EXPECT_EQ(response.body, R"({"error":"Method Not Allowed"})");
    EXPECT_EQ(response.Header("Content-Type"), label) << request;
  }
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
  for (const auto& [body, error] : std::map<std::string, std::string>{
           {R"({"raw_handle":{},"device_id":0,"byte_size":8})",
            "Shared memory register request has no 'b64' field"},
           {R"({"raw_handle":{"b64":"!"},"device_id":0,"byte_size":8})",
            "raw_handle: 'b64' is not base64"},
           {R"({"raw_handle":{"b64":"aA=="},"device_id":0})",
            "Shared memory register request has no 'byte_size' field"},
           {R"({"raw_handle":{"b64":"aA=="},"byte_size":8})",
            "Shared memory register request has no 'device_id' field"},
           {R"({"raw_handle":{"b64":"aA=="},"device_id":0,"byte_size":9})",
            "failed to register shared memory region 'g': invalid args"}}) {
    EXPECT_EQ(registered(body), R"({"error":")" + error + R"("})");
  }
  EXPECT_EQ(registered(R"({"raw_handle":{"b64":"aA=="},"device_id":2,"byte_size":8})"), "");
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

// ---- Infer ----

struct ExchangeCase {
  std::string_view path;
  std::string_view body;
  int status;
  std::string_view answer;
};

std::string Data16(std::string_view name, std::string_view values) {
  return R"({"name":")" + std::string(name) + R"(","datatype":"INT32","shape":[1,16],"data":[)" +
         std::string(values) + "]}";
}

const std::string kInputs = R"("inputs":[)" +
                            Data16("INPUT0", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15") + "," +
                            Data16("INPUT1", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1") + "]";
const std::string kSum = R"({"name":"OUTPUT0","datatype":"INT32","shape":[1,16],)"
                         R"("data":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]})";

TEST_F(HttpServerTest, InferExchanges) {
  const std::string with_id = R"({"id":"abc",)" + kInputs + R"(,"outputs":[{"name":"OUTPUT0"}]})";
  const std::string with_id_answer =
      R"({"id":"abc","model_name":"simple","model_version":"1","outputs":[)" + kSum + "]}";
  const ExchangeCase kCases[] = {
      {"simple", with_id, 200, with_id_answer},
      {"simple", "hello", 500,
       R"({"error":"failed to parse the request JSON buffer: Invalid value. at 0"})"},
      {"simple", "5", 500,
       R"({"error":"Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"})"},
      {"simple", R"({"id":5,"inputs":[]})", 500,
       R"({"error":"Unable to parse 'id': attempt to access JSON non-string as string"})"},
      {"simple", R"({"inputs":"x"})", 500,
       R"({"error":"Unable to parse 'inputs': attempt to access JSON non-array as array"})"},
      {"simple", R"({"inputs":[1]})", 400,
       R"({"error":"Input must set only one of the following fields: 'data', 'binary_data_size' in )"
       R"('parameters', 'shared_memory_region' in 'parameters'. But no field is set"})"},
      {"simple", R"({"inputs":[{"datatype":"INT32","shape":[1,16],"data":[1]}]})", 500,
       R"({"error":"Unable to parse 'name': attempt to access non-existing object member 'name'"})"},
      {"simple", R"({"inputs":[{"name":"INPUT0","datatype":5,"shape":[1,16],"data":[1]}]})", 500,
       R"({"error":"Unable to parse 'datatype': attempt to access JSON non-string as string"})"},
      {"simple", R"({"inputs":[{"name":"INPUT0","datatype":"INT33","shape":[1,16],"data":[1]}]})",
       400, R"({"error":"invalid datatype for input INPUT0"})"},
      {"simple", R"({"inputs":[{"name":"INPUT0","datatype":"INT32","data":[1]}]})", 500,
       R"({"error":"Unable to parse 'shape': attempt to access non-existing object member 'shape'"})"},
      {"simple", R"({"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,16.0],"data":[1]}]})",
       500,
       R"({"error":"Unable to parse 'shape': attempt to access JSON non-unsigned-integer as )"
       R"(unsigned-integer"})"},
      {"simple", R"({"inputs":[],"outputs":{}})", 500,
       R"({"error":"Unable to parse 'outputs': attempt to access JSON non-array as array"})"},
      {"simple", R"({"inputs":[],"outputs":[{"name":"O","parameters":{"binary_data":1}}]})", 500,
       R"({"error":"Unable to parse 'binary_data': attempt to access JSON non-boolean as boolean"})"},
      {"simple", R"({"inputs":[],"parameters":"x"})", 500,
       R"({"error":"failed to get request params.: attempt to get members for non-object"})"},
      {"simple", R"({"inputs":[],"inputs":[5]})", 400,
       R"({"error":"[request id: <id_unknown>] expected 2 inputs but got 0 inputs for model )"
       R"('simple'. Got input(s) [], but missing required input(s) ['INPUT0','INPUT1']. Please )"
       R"(provide all required input(s)."})"},
      {"simple", "", 400,
       R"({"error":"[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be )"
       R"(deduced but got 2 inputs in 'simple' model configuration"})"},
      {"nosuch", "{}", 404, R"({"error":"Request for unknown model: 'nosuch' is not found"})"},
      {"words", "{", 501,
       R"({"error":"HTTP end point doesn't support models with decoupled transaction policy"})"},
      {"id_fp32",
       R"({"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,3],"data":[NaN,Infinity,-Infinity]}]})",
       200,
       R"({"model_name":"id_fp32","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32",)"
       R"("shape":[1,3],"data":[NaN,Infinity,-Infinity]}]})"},
      {"id_fp32",
       R"({"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,5],)"
       R"("data":[0.1,16777217,1e-05,123456.789,-0]}]})",
       200,
       R"({"model_name":"id_fp32","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32",)"
       R"("shape":[1,5],"data":[0.10000000149011612,16777216.0,0.000009999999747378752,)"
       R"(123456.7890625,0.0]}]})"},
      {"id_bytes",
       R"({"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1,2],"data":["a\u0000b","\n\""]}]})",
       200,
       R"({"model_name":"id_bytes","model_version":"1","outputs":[{"name":"OUTPUT0",)"
       R"("datatype":"BYTES","shape":[1,2],"data":["a\u0000b","\n\""]}]})"},
      {"id_bytes",
       "{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"BYTES\",\"shape\":[1,1],\"data\":["
       "\"\xff\xfe\"]}]}",
       200,
       "{\"model_name\":\"id_bytes\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"OUTPUT0\","
       "\"datatype\":\"BYTES\",\"shape\":[1,1],\"data\":[\"\xff\xfe\"]}]}"},
      {"id_uint64",
       R"({"inputs":[{"name":"INPUT0","datatype":"UINT64","shape":[1,1],"data":[18446744073709551616]}]})",
       500,
       R"({"error":"Unable to parse 'data': attempt to access JSON non-unsigned-integer as )"
       R"(unsigned-integer"})"},
      {"params",
       R"({"parameters":{"a":"b"},"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1],"data":["x"]}]})",
       200,
       R"({"model_name":"params","model_version":"1","parameters":{"a":"b"},"outputs":[{"name":)"
       R"("OUTPUT0","datatype":"BYTES","shape":[1],"data":["a=string:b;|timeout=0,flags=0,corrid=0"]}]})"},
      {"params",
       R"({"parameters":{"triton_":1},"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1],"data":["x"]}]})",
       400,
       R"({"error":"parameter keys starting with 'triton_' are reserved for Triton usage and should )"
       R"(not be specified."})"},
      // Status by class is the newer release line's.
      {"fail",
       R"({"inputs":[{"name":"CODE","datatype":"INT32","shape":[1],"data":[4]},)"
       R"({"name":"MESSAGE","datatype":"BYTES","shape":[1],"data":["boom"]}]})",
       503, R"({"error":"boom"})"},
  };
  TestClient client(server_->port());  // all on one connection: no error may break the framing
  for (const ExchangeCase& c : kCases) {
    client.Send(Post("/v2/models/" + std::string(c.path) + "/infer", c.body));
    const TestResponse response = client.Receive();
    EXPECT_EQ(response.status, c.status) << c.body << "\n" << response.body;
    EXPECT_EQ(response.body, c.answer) << c.body;
  }
}

TEST_F(HttpServerTest, BinaryTensorsFollowTheJson) {
  const std::string json =
      R"({"inputs":[{"name":"INPUT0","datatype":"FP16","shape":[1,2],"parameters":{"binary_data_size":4}}],)"
      R"("outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]})";
  const std::string values("\x00\x3c\x00\x40", 4);
  const auto post = [&](std::string_view length) {
    return Post("/v2/models/id_fp16/infer", json + values,
                "Inference-Header-Content-Length: " + std::string(length) + "\r\n");
  };
  const TestResponse response = Request(post(std::to_string(json.size())));
  const std::string answer_json =
      R"({"model_name":"id_fp16","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP16",)"
      R"("shape":[1,2],"parameters":{"binary_data_size":4}}]})";
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.Header("Content-Type"), "application/octet-stream");
  EXPECT_EQ(response.Header("Inference-Header-Content-Length"), std::to_string(answer_json.size()));
  EXPECT_EQ(response.body, answer_json + values);

  const TestResponse beyond = Request(post("99999"));
  EXPECT_EQ(beyond.status, 400);
  EXPECT_NE(beyond.body.find("inference header size should be in range (0, "), std::string::npos);
}

TEST_F(HttpServerTest, BinaryDataOutputHoldsOnlyForUnlistedOutputs) {
  const std::string parameters = R"({"parameters":{"binary_data_output":true},)";
  EXPECT_EQ(
      Request(Post("/v2/models/simple/infer", parameters + kInputs + "}")).Header("Content-Type"),
      "application/octet-stream");
  const TestResponse listed = Request(Post(
      "/v2/models/simple/infer", parameters + kInputs + R"(,"outputs":[{"name":"OUTPUT0"}]})"));
  EXPECT_EQ(listed.body, R"({"model_name":"simple","model_version":"1","outputs":[)" + kSum + "]}");
}

TEST_F(HttpServerTest, HalfPrecisionOutputMustBeAskedForInBinary) {
  const std::string json =
      R"({"inputs":[{"name":"INPUT0","datatype":"FP16","shape":[1,1],"parameters":{"binary_data_size":2}}]})";
  const TestResponse response =
      Request(Post("/v2/models/id_fp16/infer", json + std::string("\0\0", 2),
                   "Inference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n"));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body,
            R"({"error":"sending FP16 data via JSON is not supported. Please use the binary data )"
            R"(format for output"})");
}

TEST_F(HttpServerTest, CompressionBothWays) {
  const std::string plain_body = "{" + kInputs + "}";
  const std::string plain = Request(Post("/v2/models/simple/infer", plain_body)).body;
  for (const Coding coding : {Coding::kGzip, Coding::kDeflate}) {
    const std::string name = coding == Coding::kGzip ? "gzip" : "deflate";
    http_listener::HttpResponse packed{.body = plain_body};
    ASSERT_TRUE(Compress(coding, packed).ok());
    const TestResponse response =
        Request(Post("/v2/models/simple/infer", packed.body,
                     "Content-Encoding: " + name + "\r\nAccept-Encoding: " + name + "\r\n"));
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.Header("Content-Encoding"), name);
    const http_listener::HttpRequest unpack{.headers = {{"Content-Encoding", name}},
                                            .body = std::make_shared<std::string>(response.body)};
    EXPECT_EQ(**DecodedBody(unpack, 1 << 20), plain);
  }
  const TestResponse other =
      Request(Post("/v2/models/simple/infer", plain_body, "Content-Encoding: br\r\n"));
  EXPECT_EQ(other.status, 501);
  EXPECT_EQ(other.body, R"({"error":"Unsupported compression type"})");
  EXPECT_EQ(other.Header("Accept-Encoding"), "gzip, deflate");
}

TEST_F(HttpServerTest, BodyBeyondTheLimitNamesTheOption) {
  Start({.endpoints = {.max_input_bytes = 1000, .max_binary_body_bytes = 5000}});
  const std::string long_body = R"({"inputs":[)" + std::string(2000, ' ') + "]}";
  for (const std::string path : {"infer", "generate"}) {
    TestClient client(server_->port());
    client.Send("POST /v2/models/simple/" + path +
                " HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n");
    const TestResponse response = client.Receive();
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(
        response.body,
        R"({"error":"request body has 1073741824 bytes, which exceeds the maximum allowed input )"
        R"(size of 1000 bytes. Use --http-max-input-size to increase the limit."})");
    EXPECT_TRUE(client.IsClosedByServer());
  }
  // Binary tensors may exceed it; the JSON before them may not.
  const std::string json = R"({"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,1000],)"
                           R"("parameters":{"binary_data_size":4000}}]})";
  const std::string length = "Inference-Header-Content-Length: ";
  EXPECT_EQ(Request(Post("/v2/models/id_int32/infer", json + std::string(4000, '\0'),
                         length + std::to_string(json.size()) + "\r\n"))
                .status,
            200);
  const TestResponse long_json =
      Request(Post("/v2/models/simple/infer", long_body, length + "2000\r\n"));
  EXPECT_EQ(long_json.status, 400);
  EXPECT_NE(long_json.body.find("2000 bytes, which exceeds the maximum allowed input size of 1000"),
            std::string::npos)
      << long_json.body;
}

TEST_F(HttpServerTest, LargeBodiesAreServedToo) {
  std::string data = "1";
  for (int i = 1; i < 400'000; ++i) data += ",1";
  const std::string body =
      R"({"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,400000],"data":[)" + data +
      "]}]}";
  const TestResponse response = Request(Post("/v2/models/id_int32/infer", body));
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.body.find("[" + data + "]"), std::string::npos);
}

// ---- Generate ----

TEST_F(HttpServerTest, GenerateExchanges) {
  const ExchangeCase kCases[] = {
      {"gen_plain", R"({"text_input":"a","n":5,"f":1.5,"flag":true})", 200,
       R"({"f_OUT":1.5,"flag_OUT":true,"model_name":"gen_plain","model_version":"1","n_OUT":5,"text_input_OUT":"a"})"},
      {"gen_plain", R"({"text_input":["a","b"]})", 200,
       R"({"model_name":"gen_plain","model_version":"1","text_input_OUT":["a","b"]})"},
      {"gen_plain", R"({"text_input":"a","ids":[]})", 200,
       R"({"ids_OUT":[],"model_name":"gen_plain","model_version":"1","text_input_OUT":"a"})"},
      {"gen_plain", R"({"text_input":"a","grid":[1,2,3,4]})", 200,
       R"({"grid_OUT":[1,2,3,4],"model_name":"gen_plain","model_version":"1","text_input_OUT":"a"})"},
      {"gen_plain", R"({"text_input":"a","grid":[[1,2],[3,4]]})", 500,
       R"({"error":"Unable to parse 'data': Shape does not match true shape of 'data' field"})"},
      {"gen_plain", R"({"text_input":"a","grid":[1,2,3]})", 400,
       R"({"error":"The schema can not convert input 'grid' to tensor with proper shape"})"},
      {"gen_plain", R"({"text_input":"a","parameters":{"n":4,"foo":"x"}})", 200,
       R"({"model_name":"gen_plain","model_version":"1","n_OUT":4,"text_input_OUT":"a"})"},
      {"gen_plain", R"({"text_input":"a","parameters":{"foo":[1]}})", 400,
       R"({"error":"Converting keyword: 'parameters': parameter 'foo' has invalid type. It should be )"
       R"(either 'int', 'bool', or 'string'."})"},
      {"gen_plain", R"({"text_input":"a","text_input":"b"})", 400,
       R"({"error":"[request id: <id_unknown>] input 'text_input' already exists in request"})"},
      {"gen_plain", R"({"text_input":5})", 500,
       R"({"error":"Unable to parse JSON bytes array: attempt to access JSON non-string as string"})"},
      {"gen_plain", R"({"text_input":"a","n":1.5})", 500,
       R"({"error":"Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"})"},
      {"gen_plain", R"({"text_input":"a","half":1.5})", 400,
       R"({"error":"receiving FP16 data via JSON is not supported. Please use the binary data format )"
       R"(for input half"})"},
      {"gen_plain", R"({"text_input":"a","foo":null})", 400,
       R"({"error":"parameter 'foo' has invalid type. It should be either 'int', 'bool', or 'string'."})"},
      {"gen_plain", "[]", 500, R"({"error":"attempt to get members for non-object"})"},
      {"gen_plain", "", 500,
       R"({"error":"failed to parse the request JSON buffer: The document is empty. at 0"})"},
      {"params", R"({"INPUT0":"x","s":"t","i":3,"b":true,"d":0.5})", 200,
       R"({"OUTPUT0":"b=bool:true;d=double:0.5;i=int:3;s=string:t;|timeout=0,flags=0,corrid=0",)"
       R"("b":true,"d":0.5,"i":3,"model_name":"params","model_version":"1","s":"t"})"},
      {"params", R"({"INPUT0":"x","model_name":"mine"})", 200,
       R"({"OUTPUT0":"model_name=string:mine;|timeout=0,flags=0,corrid=0","model_name":"params",)"
       R"("model_version":"1"})"},
      {"params", R"({"INPUT0":"x","id":"abc"})", 200,
       R"({"OUTPUT0":"id=string:abc;|timeout=0,flags=0,corrid=0","id":"abc","model_name":"params",)"
       R"("model_version":"1"})"},
      {"words", R"({"text_input":"a b c"})", 200,
       R"({"model_name":"words","model_version":"1","text_output":"a b c"})"},
      {"words", R"({"text_input":"a b c","stream":true})", 200,
       R"({"error":"generate expects model to produce exactly 1 response, use generate stream for )"
       R"(model that generates various number of responses"})"},
      // Status by class is the newer release line's.
      {"fail", R"({"CODE":2,"MESSAGE":"boom"})", 404, R"({"error":"boom"})"},
      {"nosuch", R"({"text_input":"a"})", 404,
       R"({"error":"Request for unknown model: 'nosuch' is not found"})"},
  };
  TestClient client(server_->port());
  for (const ExchangeCase& c : kCases) {
    client.Send(Post("/v2/models/" + std::string(c.path) + "/generate", c.body));
    const TestResponse response = client.Receive();
    EXPECT_EQ(response.status, c.status) << c.body << "\n" << response.body;
    EXPECT_EQ(response.body, c.answer) << c.body;
    EXPECT_EQ(response.Header("Content-Type"), "application/json");
  }
}

TEST_F(HttpServerTest, GenerateTakesNoCompression) {
  const TestResponse response = Request(
      Post("/v2/models/gen_plain/generate", R"({"text_input":"x"})", "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body,
            R"({"error":"Unsupported content-encoding, only 'identity' is supported."})");
}

TEST_F(HttpServerTest, StreamIsOneEventPerResponse) {
  TestClient client(server_->port());
  const auto stream = [&client](std::string_view body) {
    client.Send(Post("/v2/models/words/generate_stream", body));
    return client.Receive();
  };
  const TestResponse words = stream(R"({"text_input":"a\nb c","stream":true,"id":"sid"})");
  EXPECT_EQ(words.status, 200);
  EXPECT_EQ(words.Header("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(words.body,
            R"(data: {"id":"sid","model_name":"words","model_version":"1","text_output":"a\nb"})"
            "\n\n"
            R"(data: {"id":"sid","model_name":"words","model_version":"1","text_output":"c"})"
            "\n\n");
  const TestResponse later_error = stream(R"({"text_input":"a b","stream":true,"fail_at":1})");
  EXPECT_EQ(later_error.status, 200);
  EXPECT_TRUE(
      later_error.body.ends_with("data: {\"error\":\"failure requested at this response\"}\n\n"));
  // Status by class is the newer release line's.
  const TestResponse first_error = stream(R"({"text_input":"a b","stream":true,"fail_at":0})");
  EXPECT_EQ(first_error.status, 500);
  EXPECT_TRUE(
      first_error.body.starts_with("data: {\"error\":\"failure requested at this response\"}\n\n"));
  const TestResponse none = stream(R"({"text_input":"a","max_tokens":0,"stream":true})");
  EXPECT_EQ(none.status, 200);
  EXPECT_EQ(none.body, "");
  const TestResponse refused = stream(R"({"text_input":1})");
  EXPECT_EQ(refused.status, 500);
  EXPECT_EQ(refused.Header("Content-Type"), "application/json");
}

TEST_F(HttpServerTest, EventsLeaveAsTheyCome) {
  TestClient client(server_->port());
  client.Send(Post("/v2/models/held/generate_stream", R"({"INPUT0":"x"})"));
  Held held = TakeHeld();
  for (const std::string text : {"one", "two"}) {
    serving::Response response = Begin(held.request);
    response.is_final = false;
    response.outputs.push_back(serving::Tensor::FromStrings("T", {1}, std::span(&text, 1)));
    held.handler(std::move(response));
    if (text == "one") {
      EXPECT_EQ(client.Receive(/*to_head=*/true).status, 200);
    }
    EXPECT_EQ(client.ReceiveChunk(),
              R"(data: {"T":")" + text + "\",\"model_name\":\"held\",\"model_version\":\"1\"}\n\n");
  }
  held.handler(Fail(held.request, Cancelled("done")));
  EXPECT_EQ(client.ReceiveChunk(), "data: {\"error\":\"done\"}\n\n");
  EXPECT_EQ(client.ReceiveChunk(), "");
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
