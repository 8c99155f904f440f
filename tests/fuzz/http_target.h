// SPDX-License-Identifier: Apache-2.0
// Bytes as a request over HTTP to a handler, as a connection reads them, and what is asked of its
// answer: a status, headers on one line each, and JSON where it says so.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/worker_pool.h"
#include "json/json_reader.h"
#include "protocol/http_listener/framing.h"
#include "protocol/http_listener/growing_body.h"
#include "protocol/http_listener/http_message.h"

namespace inflight::fuzz {

inline void Require(bool condition) {
  if (!condition) abort();
}

class Answer final : public http_listener::HttpResponder {
 public:
  ~Answer() override { done_.set_value(); }

  void Send(http_listener::HttpResponse response) override { Check(response); }
  void StartStream(int status, const http_listener::Headers&) override {
    Require(status >= 100 && status < 600);
  }
  void WriteChunk(std::string_view) override {}
  void Finish() override {}
  void OnDisconnect(std::function<void()>) override {}
  void OnSent(std::function<void()>) override {}

  static void Check(const http_listener::HttpResponse& response) {
    Require(response.status >= 100 && response.status < 600);
    for (const auto& [name, value] : response.headers) {
      Require(value.find_first_of("\r\n") == std::string::npos);
      const bool is_json = name == "Content-Type" && value == "application/json";
      if (is_json && !response.body.empty() && response.segments.empty())
        Require(json::Value::Parse(response.body).ok());
    }
  }

  std::future<void> done() { return done_.get_future(); }

 private:
  std::promise<void> done_;
};

// What the handler's threads would do is done here, by `pump`.
inline void AskOverHttp(http_listener::HttpHandler& handler, PoolPump& pump, size_t max_bytes,
                        const uint8_t* data, size_t size) {
  namespace http = boost::beast::http;
  http::request_parser<http_listener::GrowingBody> parser;
  parser.header_limit(16 * 1024);
  parser.body_limit(max_bytes);
  parser.eager(true);
  boost::system::error_code ec;
  parser.put(boost::asio::buffer(data, size), ec);
  if (!parser.is_header_done()) return;
  const auto& head = parser.get();
  http_listener::HttpRequest request;
  request.method = std::string(head.method_string());
  request.target = std::string(head.target());
  for (const auto& field : head) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  if (const auto fault = http_listener::FindFramingFault(head)) {
    Answer::Check(handler.BadRequest(fault->reason));
    return;
  }
  if (const auto refusal = handler.RefuseHead(request)) Answer::Check(*refusal);
  (void)handler.MaxBodyBytes(request);
  if (ec || !parser.is_done()) return;
  request.body = std::make_shared<const std::string>(std::move(parser.get().body()));
  auto answer = std::make_shared<Answer>();
  const auto done = answer->done();
  handler.Handle(std::move(request), std::move(answer));
  while (pump.RunOne(0)) {
  }
  Require(done.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
}

}  // namespace inflight::fuzz
