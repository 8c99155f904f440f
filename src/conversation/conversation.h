// SPDX-License-Identifier: Apache-2.0
// Messages -> what a model's chat template is rendered with, and its prompt: for all front ends and
// models that take conversations.
//
// Texts of clients are texts: where one has that of a special token, it is tokenized as the
// characters it is made of, while the template's own are tokens. A mark that no text of the request
// has stands before each such place while the template is rendered.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/chat_template.h"
#include "inflight/status.h"
#include "inflight/tokenizer.h"
#include "json/json_reader.h"

namespace inflight::conversation {

// Variables of a template beside those of the conversation: names, and values as JSON.
using TemplateVariables = std::vector<std::pair<std::string_view, std::string>>;

// What a client says; values are views into its text.
struct Said {
  json::Value messages;              // an array
  std::optional<json::Value> tools;  // an array, checked: those that the model is told of
  std::optional<json::Value> chat_template_kwargs;  // an object
  bool add_generation_prompt = true;
  bool continues = false;  // the answer goes on from the last message, the assistant's
};

struct Conversation {
  std::string variables;   // for ChatTemplate::RenderJson
  std::string with_texts;  // the same with arguments of calls as texts, which some templates need
  std::string mark;
  std::string continued;  // the last message's text, which the prompt ends with; empty: it does not
};

// As `chat_template` takes them: gpt-oss's has reasoning as "thinking", and beside calls no content
// or no thinking. `body`: the text that has all that is said. kInvalidArgument and kUnimplemented
// name the member: "messages[1].content".
Result<Conversation> Read(const Said& said, const TemplateVariables& variables,
                          std::string_view body, const Tokenizer& tokenizer,
                          const ChatTemplate& chat_template);

// What Tokenizer::Encode takes. The template has written special tokens itself.
struct Prompt {
  std::string text = {};
  std::vector<size_t> plain_at = {};
};

// kFailedPrecondition: the template refuses the conversation, in its own words, or does not show
// the text that is to be continued.
Result<Prompt> Render(const ChatTemplate& chat_template, const Conversation& conversation);

// Whether `name` stands in a template as a word.
bool KnowsWord(std::string_view template_source, std::string_view name);

// Why messages are refused, by why there is no template; `otherwise` is what to use instead.
Status NoTemplate(const Status& why, std::string_view otherwise);

// A text, or an array of `parts` ("blocks"), each the line of one that `line_of` reads.
Result<std::string> TextOrLines(
    const std::string& where, const json::Value& value, std::string_view parts,
    const std::function<Result<std::string>(const std::string& where, const json::Value& part)>&
        line_of);

}  // namespace inflight::conversation
