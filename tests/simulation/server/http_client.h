// SPDX-License-Identifier: Apache-2.0
// A client of HTTP/1.1 over a connected socket that never waits: one request at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bench/load/http_answer.h"

namespace inflight::testing {

std::string HttpPost(std::string_view path, std::string_view body);

class HttpClient {
 public:
  explicit HttpClient(int connected_socket);  // its own from now on
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void Send(std::string_view bytes) { out_.append(bytes); }
  void PollOnce();  // sends and receives what can be
  // The next whole answer, once.
  std::optional<bench::HttpAnswer> TakeAnswer();
  // The server has closed, or sent what is no answer.
  bool IsOver() const { return has_ended_; }

 private:
  const int socket_;
  std::string out_, in_;
  bench::HttpAnswer answer_;  // the next
  bool has_ended_ = false;
};

}  // namespace inflight::testing
