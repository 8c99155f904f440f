// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions.
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "protocol/openai/conversation.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/error.h"
#include "protocol/openai/prompts.h"
#include "protocol/openai/start_answer.h"

namespace inflight::openai {
namespace {

using http_listener::HttpRequest;

// Rendered where it is tokenized: a long conversation is not for this thread.
Result<PromptSource> ReadPrompt(const Asked& asked, const ServedModel& served,
                                const HttpRequest& request) {
  if (!asked.messages) return InvalidArgument("messages", "is missing");
  RETURN_IF_ERROR(TemplateOf(*served.text).status());
  ASSIGN_OR_RETURN(Conversation read,
                   ReadConversation(asked, *request.body, *served.text->tokenizer));
  PromptSource prompt;
  prompt.text_bytes = read.variables.size();
  prompt.make = [text = served.text,
                 conversation = std::make_shared<const Conversation>(std::move(read))] {
    return Render(*text->chat_template, *conversation);
  };
  return prompt;
}

}  // namespace

void HandleChatCompletions(const Context& context, const std::string& /*model*/,
                           const HttpRequest& request,
                           std::shared_ptr<http_listener::HttpResponder> responder) {
  const auto asked = ParseBody(*request.body, kChat);
  if (!asked.ok()) return responder->Send(Error(asked.status()));
  const auto served = context.models.Find(asked->model);
  if (!served.ok()) return responder->Send(Error(served.status()));
  auto prompt = ReadPrompt(*asked, *served, request);
  if (!prompt.ok()) return responder->Send(Error(prompt.status()));
  StartAnswer(context, *served, *asked, {*std::move(prompt)}, {.is_chat = true}, request,
              std::move(responder));
}

}  // namespace inflight::openai
