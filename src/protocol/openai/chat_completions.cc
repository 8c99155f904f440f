// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions.
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "protocol/openai/answer.h"
#include "protocol/openai/chat_question.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/error.h"

namespace inflight::openai {
namespace {

Status Chat(const Context& context, const http_listener::HttpRequest& request,
            const std::shared_ptr<http_listener::HttpResponder>& responder) {
  ASSIGN_OR_RETURN(const Asked asked, ParseBody(*request.body, kChat));
  ASSIGN_OR_RETURN(const ServedModel served, context.models.Find(asked.model));
  ASSIGN_OR_RETURN(Question question, AskChat(context, asked, served, *request.body));
  return StartAnswer(context, served, asked, std::move(question), request, *responder,
                     AnswerTo(asked, served, {.is_chat = true}, responder));
}

}  // namespace

void HandleChatCompletions(const Context& context, const std::string& /*model*/,
                           const http_listener::HttpRequest& request,
                           std::shared_ptr<http_listener::HttpResponder> responder) {
  if (Status status = Chat(context, request, responder); !status.ok())
    responder->Send(Error(status));
}

}  // namespace inflight::openai
