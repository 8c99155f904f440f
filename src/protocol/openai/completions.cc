// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions.
#include <cstdint>
#include <memory>
#include <string>
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
  size_t echo_bytes = 0;
  MemoryCharge charge;
};

// Ids beyond what the model takes are not looked at further; texts are when they are tokenized.
Status CheckLength(const Prompt& prompt, int most) {
  const auto count = static_cast<int64_t>(prompt.ids.size());
  if (count <= most) return Status::Ok();
  return InvalidArgument("prompt", "has " + std::to_string(count) + " tokens, " +
                                       std::to_string(count - most) + " more than the " +
                                       std::to_string(most) + " that this model takes; shorten it")
      .WithReason(Reason::kPromptTooLong);
}

// Of echoes as long as they may be: few ids may have a long text.
size_t EchoBytes(const Prompt& prompt, const Tokenizer& tokenizer) {
  return prompt.ids.empty() ? prompt.text.size() : MostTextBytes(tokenizer, prompt.ids);
}

Result<CompletionPrompts> ReadAll(const Asked& asked, const ServedModel& served,
                                  const http_listener::HttpRequest& request) {
  if (!asked.prompt) return InvalidArgument("prompt", "is missing");
  const serving::TextModel& model = *served.text;
  CompletionPrompts read;
  read.charge = MemoryCharge(request.memory);
  const size_t id_bytes = request.body->size() * kIdBytesPerByte;
  RETURN_IF_ERROR(read.charge.Resize(id_bytes));
  ASSIGN_OR_RETURN(std::vector<Prompt> prompts,
                   ReadPrompts(*asked.prompt, model.limits.vocab_size));
  for (const Prompt& prompt : prompts) {
    RETURN_IF_ERROR(CheckLength(prompt, model.limits.max_input_len));
    if (asked.echo) read.echo_bytes += EchoBytes(prompt, *model.tokenizer);
  }
  // Each answer begins with its own.
  read.echo_bytes *= 1 + static_cast<size_t>(asked.best_of.value_or(asked.n));
  RETURN_IF_ERROR(read.charge.Resize(id_bytes + read.echo_bytes));
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
  ASSIGN_OR_RETURN(CompletionPrompts prompts, ReadAll(asked, served, request));
  return StartAnswer(context, served, asked,
                     {.prompts = std::move(prompts.sources),
                      .body_bytes = request.body->size(),
                      .held_bytes = prompts.echo_bytes,
                      .charge = std::move(prompts.charge),
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
