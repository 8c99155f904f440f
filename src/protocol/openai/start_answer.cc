// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/start_answer.h"

#include <optional>
#include <utility>

#include "answer_parts/call_guide.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "parameters/model_defaults.h"
#include "protocol/kserve/http/traced.h"
#include "protocol/openai/answer_guide.h"
#include "protocol/openai/generation_request.h"
#include "protocol/openai/guided_calls.h"
#include "protocol/openai/tools.h"
#include "serving/core/cache_salt.h"

namespace inflight::openai {
namespace {

using Guided = serving::Generation::Guided;
using http_listener::HttpRequest;

constexpr size_t kMostSequences = 1024;  // of one request

// What the request of each prompt has for itself, beside its prompt.
size_t BytesOfEach(const Asked& asked, const serving::Generation& generation) {
  size_t bytes = asked.cache_salt.size();
  if (const auto& guided = generation.guided) {
    bytes += guided->spec.text.size();
    if (guided->as_messages) bytes += guided->as_messages->text.size();
  }
  for (const std::string& text : generation.stop_texts) bytes += text.size();
  return bytes;
}

// The guide of an answer in channels is that of its last message.
Status PutInChannels(answer_parts::AnswerFormat& format, Guided& said) {
  format.is_guided = true;
  const answer_parts::CallFormat& channels = *format.channels();
  const bool reasons = format.reasoning != nullptr;
  auto text = answer_parts::LastMessageGuideText(channels, said.spec, reasons);
  if (!text.ok()) return text.status().WithPrefix(said.field).WithField(said.field);
  GuideSpec whole{.kind = GuideSpec::Kind::kTagged, .text = *std::move(text)};
  if (!reasons) {
    said.spec = std::move(whole);
    return Status::Ok();
  }
  whole.begins_after = channels.written.preamble_end;
  said.may_begin_later = true;
  said.as_messages = std::move(whole);
  return Status::Ok();
}

// What the answer must be: calls, or what else the body says; none: it may be anything. `format`
// learns what its readers need to know of it.
Result<std::optional<Guided>> GuideOf(const Asked& asked, answer_parts::AnswerFormat& format) {
  ASSIGN_OR_RETURN(auto said, ReadAnswerGuide(asked));
  if (ForcesCalls(asked)) said.reset();  // it is of a text, and the answer has none
  const answer_parts::CallFormat* const channels = format.channels();
  const bool has_begun = !asked.add_generation_prompt || asked.continues;
  if (said && channels != nullptr && has_begun) {  // a message of text
    format = {};
    return said;
  }
  ASSIGN_OR_RETURN(auto calls, ReadGuidedCalls(asked, format, said ? &said->spec : nullptr));
  if (!said && !calls) return std::optional<Guided>();
  if (said && calls) {
    format.is_guided = true;
    calls->field += " and " + said->field;
  } else if (said && channels != nullptr) {
    RETURN_IF_ERROR(PutInChannels(format, *said));
  }
  std::optional<Guided> guided = calls ? std::move(calls) : std::move(said);
  // Guides of calls in channels have the reasoning before them in themselves.
  if (channels == nullptr) guided->may_begin_later = format.reasoning != nullptr;
  return guided;
}

Result<std::vector<serving::Request>> MakeRequests(const Context& context,
                                                   const ServedModel& served, const Asked& asked,
                                                   Question& question, uint64_t seed,
                                                   const HttpRequest& request) {
  std::vector<PromptSource>& prompts = question.prompts;
  const auto best_of = static_cast<size_t>(asked.best_of.value_or(asked.n));
  if (prompts.size() * best_of > kMostSequences)
    return InvalidArgument("n", "got " + std::to_string(prompts.size()) + " prompts of " +
                                    std::to_string(best_of) + " answers, at most " +
                                    std::to_string(kMostSequences) + " answers may be asked");
  ASSIGN_OR_RETURN(serving::Generation generation,
                   MakeGeneration(asked, *served.text, question.default_max_tokens, seed));
  ASSIGN_OR_RETURN(generation.guided, GuideOf(asked, question.format));
  const std::vector<TokenId> shown = ShownTokens(question.format, *served.text->tokenizer);
  MemoryCharge charge = std::move(question.charge);
  if (charge.share() == nullptr) charge = MemoryCharge(request.memory);
  RETURN_IF_ERROR(charge.Resize(question.held_bytes + question.body_bytes * kBytesPerBodyByte +
                                (prompts.size() - 1) * BytesOfEach(asked, generation)));
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
    made.generation->num_shorter_prompts = prompts[i].num_shorter;
    made.generation->make_shorter_prompt = std::move(prompts[i].make_shorter);
    if (!asked.cache_salt.empty())
      made.parameters.emplace(std::string(serving::kCacheSalt), asked.cache_salt);
    if (!served.adapter.empty())
      made.parameters.emplace(std::string(serving::kLoraName), served.adapter);
    made.adapter = served.found;
    made.received_ns = received_ns;
    made.memory = request.memory;
    made.client = request.caller;
    made.tally = request.tally;
    made.charge = shared_charge;
    made.is_of_stream = i > 0;  // the client's rate counted the first one when it came in
    if (i == 0) made.trace = kserve_http::SampleTrace(context.server, made.model_name, request);
    if (question.is_chat) made.trace.SetChat();
  }
  return requests;
}

}  // namespace

Status StartAnswer(const Context& context, const ServedModel& served, const Asked& asked,
                   Question question, const HttpRequest& request,
                   http_listener::HttpResponder& responder, const MakeSink& make_sink) {
  if (request.tally != nullptr) request.tally->SetModel(served.name);
  const uint64_t seed = asked.seed.value_or(parameters::RandomSeed());
  ASSIGN_OR_RETURN(std::vector<serving::Request> requests,
                   MakeRequests(context, served, asked, question, seed, request));
  std::vector<std::shared_ptr<serving::CancelToken>> cancels;
  for (const serving::Request& made : requests) cancels.push_back(made.cancel);
  responder.OnDisconnect([cancels] {
    for (const auto& cancel : cancels) cancel->Cancel();
  });
  const std::shared_ptr<AnswerSink> sink = make_sink({.seed = seed,
                                                      .cancels = std::move(cancels),
                                                      .format = std::move(question.format),
                                                      .begins_in = std::move(question.begins_in),
                                                      .memory = request.memory});
  for (size_t i = 0; i < requests.size(); ++i)
    context.server.Infer(
        served.model, std::move(requests[i]),
        [sink, i](const serving::Response& response) { sink->OnResponse(i, response); });
  return Status::Ok();
}

}  // namespace inflight::openai
