// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/chat_question.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "protocol/openai/conversation.h"
#include "protocol/openai/prompts.h"
#include "protocol/openai/reasoning.h"
#include "protocol/openai/shorter_conversation.h"
#include "protocol/openai/tools.h"

namespace inflight::openai {

Result<Question> AskChat(const Context& context, const Asked& asked, const ServedModel& served,
                         std::string_view text) {
  if (!asked.messages) return InvalidArgument("messages", "is missing");
  ASSIGN_OR_RETURN(const ChatTemplate* chat_template, TemplateOf(*served.text));
  Question question;
  question.is_chat = true;
  ASSIGN_OR_RETURN(question.format, ChooseFormat(context.formats, asked, *chat_template));
  const auto begins_in = std::make_shared<answer_parts::BeginsIn>();
  question.begins_in = begins_in;
  const auto* tags =
      asked.add_generation_prompt && !asked.continues ? question.format.reasoning : nullptr;
  ASSIGN_OR_RETURN(const TemplateVariables variables,
                   ReasoningVariables(asked, question.format.reasoning, chat_template->source()));
  ASSIGN_OR_RETURN(Conversation read, ReadConversation(asked, variables, text,
                                                       *served.text->tokenizer, *chat_template));
  question.body_bytes = text.size();
  PromptSource& prompt = question.prompts.emplace_back();
  prompt.text_bytes = read.variables.size();
  const auto conversation = std::make_shared<const Conversation>(std::move(read));
  const auto make = [model = served.text, begins_in, tags](const Conversation& of) {
    auto rendered = Render(*model->chat_template, of);
    if (rendered.ok() && tags != nullptr)
      *begins_in = answer_parts::FindBegin(*tags, rendered->text);
    if (rendered.ok() && tags != nullptr && *begins_in != answer_parts::BeginsIn::kContent)
      rendered->guide_begins_after = tags->end;
    if (rendered.ok() && tags != nullptr && *begins_in == answer_parts::BeginsIn::kAnything)
      rendered->guide_opening = tags->begin;
    return rendered;
  };
  prompt.make = [make, conversation] { return make(*conversation); };
  if (!asked.truncates) return question;
  std::vector<size_t> begins = LaterBegins(*conversation);
  prompt.num_shorter = begins.size();
  prompt.make_shorter = [make, conversation, begins = std::move(begins)](size_t index) {
    return make(BeginningAt(*conversation, begins[index]));
  };
  return question;
}

Result<std::vector<TokenId>> ChatIds(const Context& context, const Asked& asked,
                                     const ServedModel& served, std::string_view text) {
  RETURN_IF_ERROR(ReadTools(asked).status());
  ASSIGN_OR_RETURN(const ChatTemplate* chat_template, TemplateOf(*served.text));
  ASSIGN_OR_RETURN(const auto* reasoning, ReasoningOf(context.formats, *chat_template));
  ASSIGN_OR_RETURN(const TemplateVariables variables,
                   ReasoningVariables(asked, reasoning, chat_template->source()));
  ASSIGN_OR_RETURN(
      const Conversation conversation,
      ReadConversation(asked, variables, text, *served.text->tokenizer, *chat_template));
  ASSIGN_OR_RETURN(const serving::PromptText prompt, Render(*chat_template, conversation));
  return served.text->tokenizer->Encode(
      prompt.text, asked.add_special_tokens.value_or(prompt.add_special_tokens), prompt.plain_at);
}

}  // namespace inflight::openai
