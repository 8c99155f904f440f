// SPDX-License-Identifier: Apache-2.0
// Two handlers behind one listener: which of them a request is for, its head says.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "protocol/http_listener/http_message.h"

namespace inflight::http_listener {

class PathHandler : public HttpHandler {
 public:
  virtual bool Serves(const HttpRequest& head) const = 0;
};

class BesidePaths final : public HttpHandler {
 public:
  BesidePaths(std::unique_ptr<PathHandler> first, std::unique_ptr<HttpHandler> rest)
      : first_(std::move(first)), rest_(std::move(rest)) {}

  // `rest` itself where `first` is null.
  static std::unique_ptr<HttpHandler> Make(std::unique_ptr<PathHandler> first,
                                           std::unique_ptr<HttpHandler> rest) {
    if (first == nullptr) return rest;
    return std::make_unique<BesidePaths>(std::move(first), std::move(rest));
  }

  size_t MaxBodyBytes(const HttpRequest& head) const override {
    return For(head).MaxBodyBytes(head);
  }
  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) const override {
    return For(head).RefuseHead(head);
  }
  HttpResponse BodyTooLarge(const HttpRequest& head, std::optional<uint64_t> size) const override {
    return For(head).BodyTooLarge(head, size);
  }
  HttpResponse BadRequest(std::string_view reason) const override {
    return rest_->BadRequest(reason);
  }
  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    HttpHandler& handler = For(request);
    handler.Handle(std::move(request), std::move(responder));
  }

 private:
  HttpHandler& For(const HttpRequest& head) const {
    return first_->Serves(head) ? *first_ : *rest_;
  }

  const std::unique_ptr<PathHandler> first_;
  const std::unique_ptr<HttpHandler> rest_;
};

}  // namespace inflight::http_listener
