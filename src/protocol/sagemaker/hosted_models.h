// SPDX-License-Identifier: Apache-2.0
// Models that SageMaker loads and unloads (docs/reference/protocol/sagemaker.md): each from a
// directory of its own, which is a model repository as long as the model is loaded.
//
// Threads: all methods from any; Load and Unload block, and must not run at the same time.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "protocol/http_listener/http_message.h"
#include "serving/server/server.h"

namespace inflight::sagemaker {

class HostedModels {
 public:
  // `unload_timeout`: how long an unload waits for requests that run.
  HostedModels(serving::Server& server, std::chrono::milliseconds unload_timeout)
      : server_(server), unload_timeout_(unload_timeout) {}

  http_listener::HttpResponse List() const;
  http_listener::HttpResponse Describe(const std::string& name) const;
  http_listener::HttpResponse Load(const http_listener::HttpRequest& request);
  // Gives up with an error when `stop` is requested.
  http_listener::HttpResponse Unload(const std::string& name, const std::stop_token& stop);

  // The name under which the model is served; none for models that are not loaded here.
  std::optional<std::string> ServedName(const std::string& name) const;

 private:
  struct Hosted {
    std::string url;
    std::string served_name;
    std::string repository;
  };

  std::optional<Hosted> Find(const std::string& name) const;
  Status Serve(const Hosted& hosted, const std::string& directory);
  bool IsReady(const Hosted& hosted) const;
  bool IsUnloaded(const Hosted& hosted) const;

  serving::Server& server_;
  const std::chrono::milliseconds unload_timeout_;
  mutable std::mutex mutex_;
  std::map<std::string, Hosted> hosted_;  // by the platform's name
};

}  // namespace inflight::sagemaker
