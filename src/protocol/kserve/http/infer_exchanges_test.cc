// SPDX-License-Identifier: Apache-2.0
// `infer` over real sockets: requests and answers in tables are those recorded from a Triton server
// with the same test models, except where a comment says otherwise.

#include <gtest/gtest.h>

#include <string>

#include "protocol/kserve/http/compression.h"
#include "protocol/kserve/http/http_server_fixture.h"

namespace inflight::kserve_http {
namespace {

std::string Data16(std::string_view name, std::string_view values) {
  return R"({"name":")" + std::string(name) + R"(","datatype":"INT32","shape":[1,16],"data":[)" +
         std::string(values) + "]}";
}

const std::string kInputs = R"("inputs":[)" +
                            Data16("INPUT0", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15") + "," +
                            Data16("INPUT1", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1") + "]";
const std::string kSum = R"({"name":"OUTPUT0","datatype":"INT32","shape":[1,16],)"
                         R"("data":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]})";

const std::string kInputsWithId =
    R"({"id":"abc",)" + kInputs + R"(,"outputs":[{"name":"OUTPUT0"}]})";
const std::string kSumWithId =
    R"({"id":"abc","model_name":"simple","model_version":"1","outputs":[)" + kSum + "]}";
const ExchangeCase kInferExchanges[] = {
    {"simple", kInputsWithId, 200, kSumWithId},
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

TEST_F(HttpServerTest, InferExchanges) {
  TestClient client(server_->port());  // all on one connection: no error may break the framing
  for (const ExchangeCase& c : kInferExchanges) {
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
        R"({"error":"request JSON size of 1073741824 bytes exceeds the maximum allowed input )"
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
  EXPECT_EQ(long_json.body,
            R"({"error":"request JSON size of 2000 bytes exceeds the maximum allowed input size )"
            R"(of 1000 bytes. Use --http-max-input-size to increase the limit."})");
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

}  // namespace
}  // namespace inflight::kserve_http
