// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/cross_origin.h"

#include <algorithm>

#include "base/letter_case.h"
#include "protocol/http_listener/router.h"

namespace inflight::http_listener {
namespace {

constexpr size_t kMaxQuotedOrigin = 100;      // bytes of an origin in an error
constexpr size_t kMaxAskedHeaders = 1024;     // bytes of the names that a preflight asks for
constexpr std::string_view kSeconds = "600";  // for which a browser keeps the answer to a preflight
// Of answers, beside those that any page may read.
constexpr std::string_view kReadable =
    "Inference-Header-Content-Length, Inflight-Seed, Inflight-Warning, Retry-After, "
    "WWW-Authenticate";

bool IsOrigin(std::string_view text) {
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos || scheme_end == 0) return false;
  const std::string_view rest = text.substr(scheme_end + 3);
  return !rest.empty() && rest.find_first_of("/?#@* \"\\") == std::string_view::npos;
}

// What needs no escape in JSON.
std::string Quoted(std::string_view origin) {
  std::string text(origin.substr(0, kMaxQuotedOrigin));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\\'; },
      '?');
  return text;
}

HttpResponse RefusedPreflight(std::string_view origin) {
  const std::string quoted = Quoted(origin);
  const std::string remedy = IsOrigin(origin) ? quoted : "ORIGIN";
  return {.status = 403,
          .headers = {{"Content-Type", "application/json"}, {"Vary", "Origin"}},
          .body = R"({"error":"Origin: got ')" + quoted +
                  "', pages of this origin may not read the server's answers; start it with "
                  "--cors-origin " +
                  remedy + " for those that may\"}"};
}

class AcrossOrigins final : public HttpHandler {
 public:
  AcrossOrigins(CrossOrigins origins, std::unique_ptr<HttpHandler> handler)
      : origins_(std::move(origins)), handler_(std::move(handler)) {}

  size_t MaxBodyBytes(const HttpRequest& head) const override {
    return handler_->MaxBodyBytes(head);
  }
  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) const override {
    auto response = handler_->RefuseHead(head);
    if (response) Open(AllowedOrigin(head), response->headers);
    return response;
  }
  HttpResponse BodyTooLarge(const HttpRequest& head, std::optional<uint64_t> size) const override {
    HttpResponse response = handler_->BodyTooLarge(head, size);
    Open(AllowedOrigin(head), response.headers);
    return response;
  }
  HttpResponse BadRequest(std::string_view reason) const override {
    return handler_->BadRequest(reason);
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    if (IsPreflight(request)) return responder->Send(Preflight(request));
    if (std::string origin = AllowedOrigin(request); !origin.empty())
      responder = std::make_shared<OpenResponder>(std::move(responder), std::move(origin));
    handler_->Handle(std::move(request), std::move(responder));
  }

 private:
  // Adds the headers of CORS to an answer on its way.
  class OpenResponder final : public HttpResponder {
   public:
    OpenResponder(std::shared_ptr<HttpResponder> responder, std::string origin)
        : responder_(std::move(responder)), origin_(std::move(origin)) {}

    void Send(HttpResponse response) override {
      Open(origin_, response.headers);
      responder_->Send(std::move(response));
    }
    void StartStream(int status, const Headers& headers) override {
      Headers open = headers;
      Open(origin_, open);
      responder_->StartStream(status, open);
    }
    void WriteChunk(std::string_view bytes) override { responder_->WriteChunk(bytes); }
    void Finish() override { responder_->Finish(); }
    void OnDisconnect(std::function<void()> callback) override {
      responder_->OnDisconnect(std::move(callback));
    }
    void OnSent(std::function<void()> callback) override {
      responder_->OnSent(std::move(callback));
    }

   private:
    const std::shared_ptr<HttpResponder> responder_;
    const std::string origin_;
  };

  // Empty: none.
  std::string AllowedOrigin(const HttpRequest& head) const {
    const std::string* origin = head.FindHeader("Origin");
    if (origin == nullptr || !origins_.Allows(*origin)) return {};
    return origins_.is_any() ? "*" : *origin;
  }

  static void Open(const std::string& origin, Headers& headers) {
    if (origin.empty()) return;
    headers.emplace_back("Access-Control-Allow-Origin", origin);
    headers.emplace_back("Access-Control-Expose-Headers", kReadable);
    if (origin != "*") headers.emplace_back("Vary", "Origin");
  }

  static bool IsPreflight(const HttpRequest& request) {
    return request.method == "OPTIONS" && request.FindHeader("Origin") != nullptr &&
           request.FindHeader("Access-Control-Request-Method") != nullptr;
  }

  HttpResponse Preflight(const HttpRequest& request) const {
    const std::string origin = AllowedOrigin(request);
    if (origin.empty()) return RefusedPreflight(*request.FindHeader("Origin"));
    HttpResponse response{.status = 204};
    Open(origin, response.headers);
    response.headers.emplace_back("Access-Control-Allow-Methods", MethodNames(kAllMethods));
    const std::string* asked = request.FindHeader("Access-Control-Request-Headers");
    if (asked != nullptr && asked->size() <= kMaxAskedHeaders)
      response.headers.emplace_back("Access-Control-Allow-Headers", *asked);
    response.headers.emplace_back("Access-Control-Max-Age", kSeconds);
    return response;
  }

  const CrossOrigins origins_;
  const std::unique_ptr<HttpHandler> handler_;
};

}  // namespace

Result<CrossOrigins> CrossOrigins::Make(std::vector<std::string> origins) {
  CrossOrigins made;
  for (std::string& origin : origins) {
    if (origin == "*") {
      made.is_any_ = true;
    } else if (IsOrigin(origin)) {
      made.origins_.push_back(std::move(origin));
    } else {
      return InvalidArgument("--cors-origin",
                             "got '" + origin +
                                 "', needed is * or scheme, name and port of a page, such as "
                                 "https://ui.example.com");
    }
  }
  return made;
}

bool CrossOrigins::Names(std::string_view origin) const {
  return std::ranges::any_of(
      origins_, [&](const std::string& named) { return EqualInAnyCase(named, origin); });
}

std::unique_ptr<HttpHandler> MakeAcrossOrigins(CrossOrigins origins,
                                               std::unique_ptr<HttpHandler> handler) {
  return std::make_unique<AcrossOrigins>(std::move(origins), std::move(handler));
}

}  // namespace inflight::http_listener
