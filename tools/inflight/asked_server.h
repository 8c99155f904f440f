// SPDX-License-Identifier: Apache-2.0
// A running server that a command asks over HTTP, with a key where it wants one.
#pragma once

#include <memory>
#include <string>

#include "object_store/http_client.h"

namespace inflight::tool {

// Behind the error of who finds nobody at an address.
inline constexpr char kNoServer[] = "; `inflight serve DIR` starts a server";

// The key in a file's first line; empty where `path` is.
Result<std::string> KeyIn(const std::string& path);

class AskedServer {
 public:
  // `api_key_file`: its first line is the key; empty: none. `patience_s`: how long an answer may
  // take.
  static Result<AskedServer> Of(const std::string& api_key_file, int patience_s);

  Result<object_store::HttpResponse> Ask(const std::string& url, const char* method = "GET");

 private:
  AskedServer(std::unique_ptr<object_store::HttpClient> http, std::string key, int patience_s)
      : http_(std::move(http)), key_(std::move(key)), patience_s_(patience_s) {}

  std::unique_ptr<object_store::HttpClient> http_;
  std::string key_;
  int patience_s_;
};

}  // namespace inflight::tool
