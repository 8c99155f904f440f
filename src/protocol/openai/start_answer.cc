// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/start_answer.h"

#include <ctime>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "protocol/kserve/http/traced.h"
#include "protocol/openai/error.h"
#include "protocol/openai/generation_request.h"
#include "serving/core/cache_salt.h"

namespace inflight::openai {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;

// What a conversation and its rendering take beside the body, for each of its bytes.
constexpr size_t kBytesPerBodyByte = 4;
constexpr size_t kMostSequences = 1024;  // of one request

// 53 bits, which every reader of JSON keeps.
uint64_t RandomSeed() {
  thread_local std::mt19937_64 random{std::random_device()()};
  return random() >> 11;
}

Result<std::vector<serving::Request>> MakeRequests(const Context& context,
                                                   const ServedModel& served, const Asked& asked,
                                                   std::vector<PromptSource> prompts,
                                                   const AnswerForm& form, uint64_t seed,
                                                   const HttpRequest& request) {
  const auto best_of = static_cast<size_t>(asked.best_of.value_or(asked.n));
  if (prompts.size() * best_of > kMostSequences)
    return InvalidArgument("n", "got " + std::to_string(prompts.size()) + " prompts of " +
                                    std::to_string(best_of) + " answers, at most " +
                                    std::to_string(kMostSequences) + " answers may be asked");
  ASSIGN_OR_RETURN(const serving::Generation generation,
                   MakeGeneration(asked, *served.text, form.default_max_tokens, seed));
  const std::vector<TokenId> shown = ShownTokens(form.format, *served.text->tokenizer);
  MemoryCharge charge(request.memory);
  RETURN_IF_ERROR(charge.Resize(request.body->size() * kBytesPerBodyByte));
  const auto shared_charge = std::make_shared<const MemoryCharge>(std::move(charge));
  const int64_t received_ns = Clock::System().NowNs();
  std::vector<serving::Request> requests(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    serving::Request& made = requests[i];
    made.model_name = served.model->name();
    made.generation = std::make_shared<serving::Generation>(generation);
    made.generation->shown_special_tokens = shown;
    made.generation->llm.input_ids = std::move(prompts[i].ids);
    made.generation->make_prompt = std::move(prompts[i].make);
    made.generation->text_bytes = prompts[i].text_bytes;
    if (!asked.cache_salt.empty())
      made.parameters.emplace(std::string(serving::kCacheSalt), asked.cache_salt);
    made.received_ns = received_ns;
    made.memory = request.memory;
    made.client = request.caller;
    made.tally = request.tally;
    made.charge = shared_charge;
    made.is_of_stream = i > 0;  // the client's rate counted the first one when it came in
    if (i == 0) made.trace = kserve_http::SampleTrace(context.server, made.model_name, request);
  }
  return requests;
}

}  // namespace

void StartAnswer(const Context& context, const ServedModel& served, const Asked& asked,
                 std::vector<PromptSource> prompts, AnswerForm form, const HttpRequest& request,
                 std::shared_ptr<HttpResponder> responder) {
  if (request.tally != nullptr) request.tally->SetModel(served.name);
  const uint64_t seed = asked.seed.value_or(RandomSeed());
  auto requests = MakeRequests(context, served, asked, std::move(prompts), form, seed, request);
  if (!requests.ok()) return responder->Send(Error(requests.status()));
  std::vector<std::shared_ptr<serving::CancelToken>> cancels;
  for (const serving::Request& made : *requests) cancels.push_back(made.cancel);
  responder->OnDisconnect([cancels] {
    for (const auto& cancel : cancels) cancel->Cancel();
  });
  AnswerOptions options = {.is_chat = form.is_chat,
                           .is_stream = asked.stream,
                           .include_usage = asked.include_usage,
                           .logprobs = asked.logprobs,
                           .top_logprobs = asked.top_logprobs,
                           .n = asked.n,
                           .best_of = asked.best_of.value_or(asked.n),
                           .model = served.name,
                           .created_s = std::time(nullptr),
                           .seed = seed,
                           .echoes = std::move(form.echoes),
                           .format = std::move(form.format),
                           .begins_in = std::move(form.begins_in)};
  const auto answer = std::make_shared<Answer>(std::move(options), served.text->tokenizer,
                                               std::move(cancels), std::move(responder));
  for (size_t i = 0; i < requests->size(); ++i)
    context.server.Infer(
        served.model, std::move((*requests)[i]),
        [answer, i](const serving::Response& response) { answer->OnResponse(i, response); });
}

}  // namespace inflight::openai
