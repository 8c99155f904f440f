// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages and /v1/messages/count_tokens.
#include "protocol/anthropic/messages.h"

#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "json/json_writer.h"
#include "protocol/anthropic/conversation.h"
#include "protocol/anthropic/error.h"
#include "protocol/anthropic/message_writer.h"
#include "protocol/kserve/access/api.h"
#include "protocol/kserve/http/response.h"
#include "protocol/openai/chat_document.h"
#include "protocol/openai/chat_question.h"

namespace inflight::anthropic {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using openai::Asked;
using openai::Context;
using openai::ServedModel;

// Errors name members of chat.
Status AskAsChat(const Context& context, Asked& asked, const ServedModel& served,
                 const std::string& document, const HttpRequest& request,
                 const std::shared_ptr<HttpResponder>& responder) {
  RETURN_IF_ERROR(openai::TakeDocument(document, asked));
  ASSIGN_OR_RETURN(openai::Question question, openai::AskChat(context, asked, served, document));
  question.body_bytes += request.body->size();
  return openai::StartAnswer(
      context, served, asked, std::move(question), request, *responder,
      openai::AnswerByMessage(WriteMessage(asked.stream, served.name, responder)));
}

Status Answer(const Context& context, const HttpRequest& request,
              const std::shared_ptr<HttpResponder>& responder) {
  ASSIGN_OR_RETURN(Asked asked, openai::ParseBody(*request.body, openai::kMessages));
  if (!asked.max_tokens) return InvalidArgument("max_tokens", "is missing");
  ASSIGN_OR_RETURN(const ServedModel served, context.models.Find(asked.model));
  ASSIGN_OR_RETURN(const std::string document, ToChat(asked));
  return openai::ByOwnNames(FieldNames(),
                            AskAsChat(context, asked, served, document, request, responder));
}

Result<std::string> CountTokens(const Context& context, const HttpRequest& request) {
  ASSIGN_OR_RETURN(Asked asked, openai::ParseBody(*request.body, openai::kCountTokens));
  ASSIGN_OR_RETURN(const ServedModel served, context.models.Find(asked.model));
  ASSIGN_OR_RETURN(const std::string document, ToChat(asked));
  RETURN_IF_ERROR(openai::TakeDocument(document, asked));
  const auto ids = openai::ChatIds(context, asked, served, document);
  if (!ids.ok()) return openai::ByOwnNames(FieldNames(), ids.status());
  std::string body;
  json::Writer(body).BeginObject().Key("input_tokens").Int(std::ssize(*ids)).EndObject();
  return body;
}

// NOLINTBEGIN(performance-unnecessary-value-param): endpoints have one signature
void HandleMessages(const Context& context, const std::string&, const HttpRequest& request,
                    std::shared_ptr<HttpResponder> responder) {
  if (const Status status = Answer(context, request, responder); !status.ok())
    responder->Send(Error(status));
}

void HandleCountTokens(const Context& context, const std::string&, const HttpRequest& request,
                       std::shared_ptr<HttpResponder> responder) {
  auto body = CountTokens(context, request);
  if (!body.ok()) return responder->Send(Error(body.status()));
  responder->Send(kserve_http::Answer(200, kserve_http::kJson, *std::move(body)));
}
// NOLINTEND(performance-unnecessary-value-param)

using http_listener::kPost;
using kserve::Api;

// clang-format off
constexpr openai::Route kRoutes[] = {
    {"/v1/messages", kPost, Api::kInference, HandleMessages, openai::Work::kReadBody, Error},
    {"/v1/messages/count_tokens", kPost, Api::kInference, HandleCountTokens, openai::Work::kTokenize, Error},
};
// clang-format on

}  // namespace

std::span<const openai::Route> Routes() { return kRoutes; }

}  // namespace inflight::anthropic
