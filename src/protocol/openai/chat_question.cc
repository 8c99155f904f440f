// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/chat_question.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "conversation/conversation.h"
#include "conversation/shorter_conversation.h"
#include "protocol/openai/guided_calls.h"
#include "protocol/openai/prompts.h"
#include "protocol/openai/reasoning.h"
#include "protocol/openai/tools.h"

namespace inflight::openai {
namespace {

using conversation::Conversation;

// Of a body that has messages, and whose tools are checked.
conversation::Said SaidIn(const Asked& asked) {
  return {.messages = *asked.messages,
          .tools = ShowsTools(asked) ? asked.tools : std::nullopt,
          .chat_template_kwargs = asked.chat_template_kwargs,
          .add_generation_prompt = asked.add_generation_prompt,
          .continues = asked.continues};
}

serving::PromptText AsPromptText(conversation::Prompt prompt) {
  return {.text = std::move(prompt.text),
          .plain_at = std::move(prompt.plain_at),
          .add_special_tokens = false};
}

// What follows reasoning that is cut is the answer, or the call that must be made; a model that may
// call chooses that itself, if it does not reason on.
std::optional<serving::PromptText::ReasoningMessages> ReasoningMessagesOf(
    const answer_parts::AnswerFormat& format, const Asked& asked) {
  const answer_parts::ReasoningTags& tags = *format.reasoning;
  if (tags.message_end.empty()) return std::nullopt;
  const bool must_call = format.calls != nullptr && ForcesCalls(asked);
  const std::string end = std::string(tags.message_end).append(tags.next_message);
  std::string last = end;
  last.append(must_call ? format.calls->written.before_name : tags.end);
  return serving::PromptText::ReasoningMessages{
      .end = std::string(tags.message_end),
      .next = std::string(tags.next_message).append(tags.begin),
      .cut = ShowsTools(asked) && !must_call ? end : last,
      .cut_again = last};
}

}  // namespace

Result<Question> AskChat(const Context& context, const Asked& asked, const ServedModel& served,
                         std::string_view text) {
  if (!asked.messages) return InvalidArgument("messages", "is missing");
  ASSIGN_OR_RETURN(const ChatTemplate* chat_template, TemplateOf(*served.text));
  Question question;
  question.is_chat = true;
  ASSIGN_OR_RETURN(question.format, ChooseFormat(context.formats, asked, *chat_template));
  // Where a member says whether the model reasons, one that does not keeps any budget.
  if (asked.thinking_budget && !asked.reasons && question.format.reasoning == nullptr)
    return Unimplemented("thinking_budget",
                         "is not supported by this model, whose chat template shows no reasoning; "
                         "leave it out");
  const auto begins_in = std::make_shared<answer_parts::BeginsIn>();
  question.begins_in = begins_in;
  const auto* tags =
      asked.add_generation_prompt && !asked.continues ? question.format.reasoning : nullptr;
  ASSIGN_OR_RETURN(const TemplateVariables variables,
                   ReasoningVariables(asked, question.format.reasoning, chat_template->source()));
  ASSIGN_OR_RETURN(Conversation read, conversation::Read(SaidIn(asked), variables, text,
                                                         *served.text->tokenizer, *chat_template));
  question.body_bytes = text.size();
  PromptSource& prompt = question.prompts.emplace_back();
  prompt.text_bytes = read.variables.size();
  const auto whole = std::make_shared<const Conversation>(std::move(read));
  const auto make = [model = served.text, begins_in, tags,
                     messages = tags == nullptr ? std::nullopt
                                                : ReasoningMessagesOf(question.format, asked)](
                        const Conversation& of) -> Result<serving::PromptText> {
    ASSIGN_OR_RETURN(conversation::Prompt rendered, Render(*model->chat_template, of));
    serving::PromptText made = AsPromptText(std::move(rendered));
    if (tags == nullptr) return made;
    *begins_in = answer_parts::FindBegin(*tags, made.text);
    if (*begins_in != answer_parts::BeginsIn::kContent) made.guide_begins_after = tags->end;
    if (*begins_in == answer_parts::BeginsIn::kAnything) made.guide_opening = tags->begin;
    made.reasoning_messages = messages;
    return made;
  };
  prompt.make = [make, whole] { return make(*whole); };
  if (!asked.truncates) return question;
  std::vector<size_t> begins = LaterBegins(*whole);
  prompt.num_shorter = begins.size();
  prompt.make_shorter = [make, whole, begins = std::move(begins)](size_t index) {
    return make(BeginningAt(*whole, begins[index]));
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
      const Conversation read,
      conversation::Read(SaidIn(asked), variables, text, *served.text->tokenizer, *chat_template));
  ASSIGN_OR_RETURN(const conversation::Prompt prompt, Render(*chat_template, read));
  return served.text->tokenizer->Encode(prompt.text, asked.add_special_tokens.value_or(false),
                                        prompt.plain_at);
}

}  // namespace inflight::openai
