// SPDX-License-Identifier: Apache-2.0
// A handler together with the listener that serves it: what the HTTP servers are made of.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "protocol/http_listener/http_listener.h"

namespace inflight::http_listener {

class ListeningServer {
 public:
  int port() const { return listener_->port(); }

  // As HttpListener::Stop; the destructor does Stop(0).
  void Stop(std::chrono::milliseconds drain) { listener_->Stop(drain); }

 protected:
  explicit ListeningServer(std::unique_ptr<HttpHandler> handler) : handler_(std::move(handler)) {}

  // Before anything else is called.
  Status Listen(const ListenerOptions& options) {
    ASSIGN_OR_RETURN(listener_, HttpListener::Start(*handler_, options));
    return Status::Ok();
  }

 private:
  std::unique_ptr<HttpHandler> handler_;
  std::unique_ptr<HttpListener> listener_;  // stops before the handler goes
};

}  // namespace inflight::http_listener
