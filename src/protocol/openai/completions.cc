// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions.
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
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

}  // namespace

void HandleCompletions(const Context& context, const std::string& /*model*/,
                       const http_listener::HttpRequest& request,
                       std::shared_ptr<http_listener::HttpResponder> responder) {
  const auto asked = ParseBody(*request.body, kCompletion);
  if (!asked.ok()) return responder->Send(Error(asked.status()));
  const auto served = context.models.Find(asked->model);
  if (!served.ok()) return responder->Send(Error(served.status()));
  auto prompts = ReadAll(*asked, *served);
  if (!prompts.ok()) return responder->Send(Error(prompts.status()));
  StartAnswer(context, *served, *asked, std::move(prompts->sources),
              {.default_max_tokens = kDefaultMaxTokens, .echoes = std::move(prompts->echoes)},
              request, std::move(responder));
}

}  // namespace inflight::openai
