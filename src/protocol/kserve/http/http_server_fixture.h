// SPDX-License-Identifier: Apache-2.0
// For tests: the endpoints over real sockets, with the test models of the Triton server that
// exchanges were recorded from.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "protocol/http_listener/test_client.h"
#include "protocol/kserve/http/fake_models.h"
#include "protocol/kserve/http/fake_server.h"
#include "protocol/kserve/http/http_server.h"

namespace inflight::kserve_http {

using http_listener::Get;
using http_listener::Post;
using http_listener::RoundTrip;
using http_listener::TestClient;
using http_listener::TestResponse;

inline constexpr char kSimple[] = R"(
    name: "simple" backend: "conformance" max_batch_size: 8
    input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 }
    input { name: "INPUT1" data_type: TYPE_INT32 dims: 16 }
    output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 }
    output { name: "OUTPUT1" data_type: TYPE_INT32 dims: 16 })";
inline constexpr char kGenPlain[] = R"(
    name: "gen_plain" max_batch_size: 4
    input { name: "text_input" data_type: TYPE_STRING dims: 1 }
    input { name: "n" data_type: TYPE_INT32 dims: 1 optional: true }
    input { name: "f" data_type: TYPE_FP32 dims: 1 optional: true }
    input { name: "flag" data_type: TYPE_BOOL dims: 1 optional: true }
    input { name: "ids" data_type: TYPE_INT32 dims: -1 optional: true }
    input { name: "grid" data_type: TYPE_INT32 dims: [-1, 2] optional: true }
    input { name: "half" data_type: TYPE_FP16 dims: 1 optional: true }
    output { name: "text_input_OUT" data_type: TYPE_STRING dims: 1 })";
inline constexpr char kParams[] = R"(
    name: "params" input { name: "INPUT0" data_type: TYPE_STRING dims: 1 }
    output { name: "OUTPUT0" data_type: TYPE_STRING dims: 1 })";
inline constexpr char kFail[] = R"(
    name: "fail" input { name: "CODE" data_type: TYPE_INT32 dims: 1 }
    input { name: "MESSAGE" data_type: TYPE_STRING dims: 1 optional: true }
    output { name: "OUT" data_type: TYPE_STRING dims: 1 })";
inline constexpr char kWords[] = R"(
    name: "words" model_transaction_policy { decoupled: true }
    input { name: "text_input" data_type: TYPE_STRING dims: 1 }
    input { name: "max_tokens" data_type: TYPE_INT32 dims: 1 optional: true }
    input { name: "stream" data_type: TYPE_BOOL dims: 1 optional: true }
    input { name: "fail_at" data_type: TYPE_INT32 dims: 1 optional: true }
    output { name: "text_output" data_type: TYPE_STRING dims: 1 })";

inline std::string IdentityOf(const std::string& type) {
  std::string lower = type == "STRING" ? "bytes" : type;
  for (char& c : lower) c = static_cast<char>(std::tolower(c));
  return "name: \"id_" + lower + R"(" max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_)" +
         type + R"( dims: -1 } output { name: "OUTPUT0" data_type: TYPE_)" + type + " dims: -1 }";
}

// Runs a behaviour on another thread, as real models do.
inline Behaviour Elsewhere(void (*behaviour)(const serving::Request&,
                                             const serving::ResponseHandler&)) {
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

// A request to an endpoint of the model `path`, and what it is answered.
struct ExchangeCase {
  std::string_view path;
  std::string_view body;
  int status;
  std::string_view answer;
};

}  // namespace inflight::kserve_http
