// SPDX-License-Identifier: Apache-2.0
// What both endpoints of completions do once their prompts are known: ask the model for each, and
// answer by what it says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "protocol/openai/answer.h"
#include "protocol/openai/body_fields.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/served_models.h"

namespace inflight::openai {

// One prompt, as serving::Generation has it.
struct PromptSource {
  std::vector<TokenId> ids = {};
  std::function<Result<serving::PromptText>()> make = {};
  size_t text_bytes = 0;
};

struct AnswerForm {
  bool is_chat = false;
  int default_max_tokens = 0;  // 0: what the sequence has room for
  std::vector<std::string> echoes = {};
  answer_parts::AnswerFormat format = {};  // of chat
  // Of chat: how the text begins, which is set when the prompt is made.
  std::shared_ptr<const answer_parts::BeginsIn> begins_in = {};
};

// Answers an error, too.
void StartAnswer(const Context& context, const ServedModel& served, const Asked& asked,
                 std::vector<PromptSource> prompts, AnswerForm form,
                 const http_listener::HttpRequest& request,
                 std::shared_ptr<http_listener::HttpResponder> responder);

}  // namespace inflight::openai
