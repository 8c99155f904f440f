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
Result<PromptSource> ReadPrompt(const Context& context, const Asked& asked,
                                const ServedModel& served, const HttpRequest& request,
                                AnswerForm& form) {
  if (!asked.messages) return InvalidArgument("messages", "is missing");
  ASSIGN_OR_RETURN(const ChatTemplate* chat_template, TemplateOf(*served.text));
  ASSIGN_OR_RETURN(form.format, ChooseFormat(context.formats, asked, *chat_template));
  const auto begins_in = std::make_shared<answer_parts::BeginsIn>();
  form.begins_in = begins_in;
  const auto* tags = asked.add_generation_prompt ? form.format.reasoning : nullptr;
  ASSIGN_OR_RETURN(Conversation read,
                   ReadConversation(asked, *request.body, *served.text->tokenizer));
  PromptSource prompt;
  prompt.text_bytes = read.variables.size();
  prompt.make = [text = served.text, begins_in, tags,
                 conversation = std::make_shared<const Conversation>(std::move(read))] {
    auto rendered = Render(*text->chat_template, *conversation);
    if (rendered.ok() && tags != nullptr)
      *begins_in = answer_parts::FindBegin(*tags, rendered->text);
    return rendered;
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
  AnswerForm form{.is_chat = true};
  auto prompt = ReadPrompt(context, *asked, *served, request, form);
  if (!prompt.ok()) return responder->Send(Error(prompt.status()));
  StartAnswer(context, *served, *asked, {*std::move(prompt)}, std::move(form), request,
              std::move(responder));
}

}  // namespace inflight::openai
