// SPDX-License-Identifier: Apache-2.0
// What the step loops do for a while (docs/reference/protocol/http.md, "Profiles").
#include <span>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "json/json_reader.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

using json::Value;

constexpr size_t kMaxShownBytes = 64;

Status WrongMember(std::string_view name, const Value& value, std::string_view rule) {
  return InvalidArgument(name, "got " + std::string(value.text().substr(0, kMaxShownBytes)) +
                                   ", must be " + std::string(rule));
}

Status ReadMember(std::string_view name, const Value& value, serving::ProfileRequest& asked) {
  if (name == "duration_ms") {
    const auto duration_ms = value.AsInt();
    if (!duration_ms.ok() || *duration_ms < 1 || *duration_ms > serving::kMaxProfileMs) {
      return WrongMember(name, value,
                         "an integer in [1, " + std::to_string(serving::kMaxProfileMs) + "]");
    }
    asked.duration_ms = *duration_ms;
    return Status::Ok();
  }
  if (name == "model") {
    auto model = value.AsString();
    if (!model.ok() || model->empty()) return WrongMember(name, value, "a model's name");
    asked.model = *std::move(model);
    return Status::Ok();
  }
  return InvalidArgument(name, "is not known here; a profile has duration_ms and model");
}

Result<serving::ProfileRequest> ParseProfile(const std::string& body) {
  serving::ProfileRequest asked;
  if (body.empty()) return asked;
  ASSIGN_OR_RETURN(const Value root, Value::Parse(body));
  RETURN_IF_ERROR(root.ForEachMember(
      [&](std::string_view name, Value value) { return ReadMember(name, value, asked); }));
  return asked;
}

}  // namespace

void HandleProfile(const Context& context, const Route&, const http_listener::HttpRequest& request,
                   std::shared_ptr<http_listener::HttpResponder> responder) {
  auto asked = ParseProfile(*request.body);
  if (!asked.ok()) return responder->Send(Error(asked.status()));
  asked->memory = request.memory;
  responder->OnDisconnect([cancel = asked->cancel] { cancel->Cancel(); });
  context.server.CaptureProfile(*std::move(asked), [responder = std::move(responder)](
                                                       const Result<serving::ProfileText>& text) {
    if (!text.ok()) return responder->Send(Error(text.status()));
    auto response = Answer(200, kJson);
    response.segments.push_back({std::as_bytes(std::span(**text)), *text});
    responder->Send(std::move(response));
  });
}

}  // namespace inflight::kserve_http
