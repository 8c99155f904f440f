// SPDX-License-Identifier: Apache-2.0
// A request to an object store and its answer, before they become bytes.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/status.h"

namespace inflight::object_store {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method = "GET";
  std::string origin;  // "https://host:port"
  std::string path;    // percent-encoded, begins with a slash
  Pairs query;         // not encoded
  Pairs headers;       // names in small letters; without host
  std::string body;
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;                            // empty where a sink took it

  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

// Takes the body of an answer of status 200 or 206 bit by bit; an error ends the transfer.
using BodySink = std::function<Status(std::string_view)>;

struct SendOptions {
  int connect_timeout_ms = 10'000;
  int timeout_ms = 0;               // of all of it; 0: as long as bytes come
  bool is_of_this_machine = false;  // a metadata service: no proxy stands before it
  // Called before a sink has the first byte of a body, with the status and the headers; may be
  // null. An error ends the transfer.
  std::function<Status(const HttpResponse&)> begins_body = {};
};

// Sends one request, once. kUnavailable where no answer came, kDeadlineExceeded where it came too
// slowly, kCancelled where the owner has no use for it any more.
using Send = std::function<Result<HttpResponse>(const HttpRequest&, const SendOptions&)>;

// "a=1&b=2", encoded.
std::string EncodeQuery(const Pairs& query);
// GET of "https://host:port/path?query"; the query stays in the path.
HttpRequest RequestTo(const std::string& url);
std::string UrlOf(const HttpRequest& request);
std::string_view HostOf(std::string_view origin);  // "host:port"

}  // namespace inflight::object_store
