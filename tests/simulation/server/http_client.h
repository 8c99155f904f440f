// SPDX-License-Identifier: Apache-2.0
// A client of HTTP/1.1 over a connected socket that never waits: one request at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "bench/load/http_answer.h"

namespace inflight::testing {

std::string HttpPost(std::string_view path, std::string_view body);

class HttpClient {
 public:
  explicit HttpClient(Descriptor connected_socket) : socket_(std::move(connected_socket)) {}

  void Send(std::string_view bytes) { out_.append(bytes); }
  void PollOnce();  // sends and receives what can be
  // The next whole answer, once.
  std::optional<bench::HttpAnswer> TakeAnswer();
  // The server has closed, or sent what is no answer.
  bool IsOver() const { return has_ended_; }

 private:
  const Descriptor socket_;
  std::string out_, in_;
  bench::HttpAnswer answer_;  // the next
  bool has_ended_ = false;
};

}  // namespace inflight::testing
