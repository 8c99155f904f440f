// SPDX-License-Identifier: Apache-2.0
// A client of HTTP/1.1 over a connected socket that never waits: one request at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace inflight::testing {

struct HttpAnswer {
  int status = 0;
  std::string body;  // of a chunked answer the chunks' bytes
  bool is_chunked = false;
  bool closes = false;  // the connection
};

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
  std::optional<HttpAnswer> TakeAnswer();
  // The server has closed, and what came before was taken.
  bool IsOver() const { return has_ended_; }
  // Bytes that are no part of an answer, or that belong to one that is not whole.
  const std::string& rest() const { return in_; }

 private:
  const int socket_;
  std::string out_, in_;
  bool has_ended_ = false;
};

}  // namespace inflight::testing
