// SPDX-License-Identifier: Apache-2.0
// Requests to other servers, over HTTP or HTTPS, each on a connection of its own. A server over
// HTTPS shows a certificate of an authority that this machine trusts, for its host's name.
// Redirects are not followed.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/status.h"

namespace inflight::http_client {

struct Url {
  bool is_tls = false;
  std::string host;  // without brackets
  std::string port;  // 80 or 443 where the text has none
  std::string path;  // from the slash on, with the query
};

// kInvalidArgument for anything but http[s]://host[:port][/path].
Result<Url> ParseUrl(const std::string& text);

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Answer {
  int status = 0;
  Headers headers;   // in order, names as sent
  std::string body;  // without transfer coding
};

struct Request {
  Url url;
  std::string method = "POST";
  Headers headers;  // beside Host, Connection and Content-Length
  std::string body;
  std::chrono::milliseconds timeout{10'000};  // of all of it
  // Of the answer's body; a longer one is an error. 0: it is not read, its head is the answer.
  size_t max_answer_bytes = 0;
  // Asked of each address that the host's name has; null: any may be called.
  std::function<bool(const boost::asio::ip::address&)> may_reach;
  // Called as the answer comes: once with its head, then with the bytes of its body. May be null.
  std::function<void(const Answer& head)> on_head;
  std::function<void(std::string_view bytes)> on_bytes;
};

// kUnavailable says why there is no answer; kPermissionDenied that the host has no address which
// may be reached.
using Handler = std::function<void(Result<Answer> answer)>;

// Calls the handler once, from a thread that runs `io`, unless that ends before.
void Send(boost::asio::io_context& io, Request request, Handler handler);

// Waits for the answer.
Result<Answer> Ask(Request request);

// Posts JSON and waits. kUnavailable also for a status but 2xx.
Status PostJson(Request request);

}  // namespace inflight::http_client
