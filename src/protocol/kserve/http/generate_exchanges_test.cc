// SPDX-License-Identifier: Apache-2.0
// `generate` and `generate_stream` over real sockets: requests and answers in tables are those
// recorded from a Triton server with the same test models, except where a comment says otherwise.

#include <gtest/gtest.h>

#include <string>

#include "protocol/kserve/http/compression.h"
#include "protocol/kserve/http/http_server_fixture.h"

namespace inflight::kserve_http {
namespace {

const ExchangeCase kGenerateExchanges[] = {
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

TEST_F(HttpServerTest, GenerateExchanges) {
  TestClient client(server_->port());
  for (const ExchangeCase& c : kGenerateExchanges) {
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

}  // namespace
}  // namespace inflight::kserve_http
