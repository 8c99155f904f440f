// SPDX-License-Identifier: Apache-2.0
// What a client of HTTP may send, from the first byte of a head to the answer of an endpoint:
// heads, chunks, trailers, routes, bodies of every endpoint (infer, generate, load, shared memory,
// trace and log settings, base64 in them). What is answered has a status and, where it is JSON, is
// JSON.
//
// The bytes come in one piece, as they would over a socket.
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/worker_pool.h"
#include "json/json_reader.h"
#include "protocol/http_listener/framing.h"
#include "protocol/http_listener/growing_body.h"
#include "protocol/kserve/http/fake_server.h"
#include "protocol/kserve/http/http_server.h"

namespace {

using namespace inflight;                 // NOLINT: a fuzzer's main file
using namespace inflight::http_listener;  // NOLINT
namespace http = boost::beast::http;

constexpr size_t kMaxBytes = 1 << 20;

void Require(bool condition) {
  if (!condition) abort();
}

// Gives the inputs back, and twice where it is asked to stream.
void Echo(serving::Request request, const serving::ResponseHandler& handler) {
  handler({.model_name = request.model_name,
           .model_version = "1",
           .id = request.id,
           .outputs = std::move(request.inputs),
           .is_final = true});
}

constexpr char kModel[] = R"(
name: "m" backend: "b" max_batch_size: 8
input { name: "A" data_type: TYPE_FP32 dims: -1 } input { name: "B" data_type: TYPE_STRING dims: -1 optional: true }
output { name: "A" data_type: TYPE_FP32 dims: -1 } output { name: "B" data_type: TYPE_STRING dims: -1 }
)";

class Answer final : public HttpResponder {
 public:
  ~Answer() override { done_.set_value(); }

  void Send(HttpResponse response) override { Check(response); }
  void StartStream(int status, const Headers&) override { Require(status >= 100 && status < 600); }
  void WriteChunk(std::string_view) override {}
  void Finish() override {}
  void OnDisconnect(std::function<void()>) override {}
  void OnSent(std::function<void()>) override {}

  static void Check(const HttpResponse& response) {
    Require(response.status >= 100 && response.status < 600);
    for (const auto& [name, value] : response.headers) {
      Require(value.find_first_of("\r\n") == value.npos);
      const bool is_json = name == "Content-Type" && value == "application/json";
      if (is_json && !response.body.empty() && response.segments.empty())
        Require(json::Value::Parse(response.body).ok());
    }
  }

  std::future<void> done() { return done_.get_future(); }

 private:
  std::promise<void> done_;
};

// What the handler's threads would do is done here, without waiting for them.
struct World {
  World() {
    server.Add(kModel, Echo);
    handler = kserve_http::MakeHandler(
        server, {.max_input_bytes = kMaxBytes, .max_binary_body_bytes = kMaxBytes});
  }

  PoolPump pump;
  kserve_http::FakeServer server;
  std::unique_ptr<HttpHandler> handler;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World& world = *new World;
  HttpHandler& handler = *world.handler;
  logging::SetLevel(logging::Level::kError);  // a request may have changed it
  http::request_parser<GrowingBody> parser;
  parser.header_limit(16 * 1024);
  parser.body_limit(kMaxBytes);
  parser.eager(true);
  boost::system::error_code ec;
  parser.put(boost::asio::buffer(data, size), ec);
  if (!parser.is_header_done()) return 0;
  const auto& head = parser.get();
  HttpRequest request;
  request.method = std::string(head.method_string());
  request.target = std::string(head.target());
  for (const auto& field : head) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  if (const auto fault = FindFramingFault(head)) {
    Answer::Check(handler.BadRequest(fault->reason));
    return 0;
  }
  if (const auto refusal = handler.RefuseHead(request)) Answer::Check(*refusal);
  (void)handler.MaxBodyBytes(request);
  if (ec || !parser.is_done()) return 0;
  request.body = std::make_shared<const std::string>(std::move(parser.get().body()));
  auto answer = std::make_shared<Answer>();
  const auto done = answer->done();
  handler.Handle(std::move(request), std::move(answer));
  while (world.pump.RunOne(0)) {
  }
  Require(done.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  return 0;
}
