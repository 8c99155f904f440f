// SPDX-License-Identifier: Apache-2.0
// Sends requests by libcurl, over connections that it keeps: HTTP/1.1 and HTTP/2, TLS with the
// system's certificates (or SSL_CERT_FILE), proxies of the environment. Redirections are not
// followed: what a store asks for elsewhere would be given its credentials.
//
// Threads: one at a time; each thread has a client of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "object_store/http_message.h"

namespace inflight::object_store {

struct HttpLimits {
  int slow_s = 30;                     // a transfer below kSlowBytesPerS for so long is given up
  std::string ca_file;                 // certificates that are trusted; empty: the system's
  std::function<bool()> is_cancelled;  // asked about once a second; may be null
};

class HttpClient {
 public:
  static constexpr int kSlowBytesPerS = 1024;
  static constexpr size_t kMaxBodyBytes = size_t{32} << 20;  // of what no sink takes

  // kFailedPrecondition where libcurl is not there.
  static Result<std::unique_ptr<HttpClient>> Make(HttpLimits limits);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // As the function type Send says; `sink` has the body of 200 and 206.
  Result<HttpResponse> Send(const HttpRequest& request, const SendOptions& options,
                            const BodySink& sink = {});

 private:
  struct Transfer;

  HttpClient(void* handle, HttpLimits limits) : handle_(handle), limits_(std::move(limits)) {}
  void SetOptions(const SendOptions& options);
  static size_t TakeHeader(char* data, size_t size, size_t count, void* transfer);
  static size_t TakeBody(char* data, size_t size, size_t count, void* transfer);

  void* const handle_;  // CURL*
  const HttpLimits limits_;
};

}  // namespace inflight::object_store
