// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions.
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "protocol/openai/answer.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/error.h"
#include "protocol/openai/prompts.h"
#include "protocol/openai/start_answer.h"

namespace inflight::openai {
namespace {

constexpr int kDefaultMaxTokens = 16;  // of OpenAI's API

struct CompletionPrompts {
  std::vector<PromptSource> sources;
  std::vector<std::string> echoes;
};

Result<CompletionPrompts> ReadAll(const Asked& asked, const ServedModel& served) {
  if (!asked.prompt) return InvalidArgument("prompt", "is missing");
  const serving::TextModel& model = *served.text;
  ASSIGN_OR_RETURN(std::vector<Prompt> prompts,
                   ReadPrompts(*asked.prompt, model.limits.vocab_size));
  CompletionPrompts read;
  for (Prompt& prompt : prompts) {
    if (asked.echo)
      read.echoes.push_back(
          prompt.ids.empty() ? prompt.text
                             : model.tokenizer->Decode(prompt.ids, /*skip_special_tokens=*/false));
    PromptSource& source = read.sources.emplace_back();
    source.ids = std::move(prompt.ids);
    source.text_bytes = prompt.text.size();
    source.make = [text = std::make_shared<const std::string>(std::move(prompt.text))] {
      return Result<serving::PromptText>(serving::PromptText{.text = *text});
    };
  }
  return read;
}

Status Complete(const Context& context, const http_listener::HttpRequest& request,
                const std::shared_ptr<http_listener::HttpResponder>& responder) {
  ASSIGN_OR_RETURN(const Asked asked, ParseBody(*request.body, kCompletion));
  ASSIGN_OR_RETURN(const ServedModel served, context.models.Find(asked.model));
  ASSIGN_OR_RETURN(CompletionPrompts prompts, ReadAll(asked, served));
  return StartAnswer(context, served, asked,
                     {.prompts = std::move(prompts.sources),
                      .body_bytes = request.body->size(),
                      .default_max_tokens = kDefaultMaxTokens},
                     request, *responder,
                     AnswerTo(asked, served, {.echoes = std::move(prompts.echoes)}, responder));
}

}  // namespace

void HandleCompletions(const Context& context, const std::string& /*model*/,
                       const http_listener::HttpRequest& request,
                       std::shared_ptr<http_listener::HttpResponder> responder) {
  if (Status status = Complete(context, request, responder); !status.ok())
    responder->Send(Error(status));
}

}  // namespace inflight::openai
