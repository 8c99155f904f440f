// SPDX-License-Identifier: Apache-2.0
// The messages of a request -> what a model's chat template is rendered with, and its prompt.
//
// Texts of clients are texts: where one has that of a special token, it is tokenized as the
// characters it is made of, while the template's own are tokens. A mark that no text of the request
// has stands before each such place while the template is rendered.
#pragma once

#include <string>
#include <string_view>

#include "inflight/status.h"
#include "inflight/tokenizer.h"
#include "protocol/openai/body_fields.h"
#include "protocol/openai/reasoning.h"
#include "serving/core/generation.h"

namespace inflight::openai {

struct Conversation {
  std::string variables;   // for ChatTemplate::RenderJson
  std::string with_texts;  // the same with arguments of calls as texts, which some templates need
  std::string mark;
  std::string continued;  // the last message's text, which the prompt ends with; empty: it does not
};

// As `chat_template` takes them: gpt-oss's has reasoning as "thinking", and beside calls no content
// or no thinking. kInvalidArgument and kUnimplemented name the member: "messages[1].content".
Result<Conversation> ReadConversation(const Asked& asked, const TemplateVariables& variables,
                                      std::string_view body, const Tokenizer& tokenizer,
                                      const ChatTemplate& chat_template);

// kFailedPrecondition: the template refuses the conversation, in its own words, or does not show
// the text that is to be continued.
Result<serving::PromptText> Render(const ChatTemplate& chat_template,
                                   const Conversation& conversation);

}  // namespace inflight::openai
