// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_request.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "contract/llm_inputs.h"
#include "contract/lora_tensors.h"
#include "contract/tensor_values.h"
#include "parameters/engine_limits.h"
#include "parameters/parameters.h"

namespace inflight::contract {
namespace {

// What the client calls an input of `tensorrt_llm`.
std::string NameOf(std::span<const NamedInput> inputs, std::string_view llm_name) {
  for (const NamedInput& input : inputs) {
    if (input.name == llm_name) return input.tensor->name;
  }
  return std::string(llm_name);
}

// What the model's configuration bounds beyond the engine.
Status CheckBeams(const LlmParse& parse, std::span<const NamedInput> inputs) {
  const int width = parse.out.request.sampling.beam_width;
  const int limit = parse.defaults.max_beam_width;
  if (limit == 0 || width <= limit) return Status::Ok();
  const std::string name = NameOf(inputs, "beam_width");
  return InvalidArgument("Requested beam width " + std::to_string(width) +
                         " is larger than configured max beam width " + std::to_string(limit) +
                         " (" + name + ")")
      .WithField(name);
}

// Each sequence is answered by itself, beams together.
Status CheckSequences(const LlmParse& parse, std::span<const NamedInput> inputs) {
  const SamplingParams& sampling = parse.out.request.sampling;
  if (sampling.num_return_sequences.value_or(1) == 1 || sampling.beam_width > 1)
    return Status::Ok();
  if (parse.defaults.decoupled) return Status::Ok();
  return InvalidArgument(NameOf(inputs, "num_return_sequences"),
                         "got " + std::to_string(*sampling.num_return_sequences) +
                             ", more than 1 needs a model in decoupled mode (set "
                             "model_transaction_policy.decoupled)");
}

// An id alone names an adapter that came before.
Status TakeAdapter(LlmParse& parse) {
  const Tensor* const weights = parse.lora_weights;
  const Tensor* const config = parse.lora_config;
  if (!parse.lora_task_id) {
    const Tensor* const alone = weights != nullptr ? weights : config;
    if (alone == nullptr) return Status::Ok();
    return InvalidArgument("lora_task_id must be set for LoRA inference: got " + alone->name +
                           " without it")
        .WithField(alone->name);
  }
  LoraUse& use = parse.out.request.lora.emplace(LoraUse{.id = *parse.lora_task_id});
  if (weights == nullptr && config == nullptr) return Status::Ok();
  if (weights == nullptr || config == nullptr) {
    const std::string& name = (weights != nullptr ? weights : config)->name;
    return InvalidArgument(
               "Request for LoRA inference must have both lora_weights and lora_config: got " +
               name + " alone")
        .WithField(name);
  }
  ASSIGN_OR_RETURN(use.tensors, ReadLoraTensors(*weights, *config, parse.memory));
  return Status::Ok();
}

// The table, now that the number of its rows and that of the prompt's ids are known.
Status FinishPromptTuning(const LlmParse& parse, std::span<const NamedInput> inputs) {
  const size_t num_extra_ids = parse.out.prompt_tuning.extra_ids.size();
  const size_t num_ids = parse.out.request.input_ids.size();
  if (num_extra_ids > 1 && num_extra_ids != num_ids)
    return InvalidArgument(NameOf(inputs, "prompt_table_extra_ids"),
                           "got " + std::to_string(num_extra_ids) +
                               ", must be one for each id of the prompt, " +
                               std::to_string(num_ids) + ", or one for all rows");
  if (parse.prompt_table == nullptr) {
    if (parse.prompt_vocab_size == 0) return Status::Ok();
    return InvalidArgument(
               "Prompt embedding table and prompt vocab size tensors must both be provided for "
               "requests with prompt tuning enabled. (" +
               NameOf(inputs, "prompt_vocab_size") + " is " +
               std::to_string(parse.prompt_vocab_size) + " without a table)")
        .WithField(NameOf(inputs, "prompt_vocab_size"));
  }
  ASSIGN_OR_RETURN(KnownTable known,
                   ReadPromptTable(*parse.prompt_table, parse.prompt_vocab_size, parse.memory));
  parse.out.request.prompt_table = std::move(known.table);
  parse.out.prompt_tuning.digest = std::move(known.digest);
  return Status::Ok();
}

bool IsInVocabulary(const ExecutorLimits& limits, TokenId id) {
  return id >= 0 && id < limits.vocab_size;
}

// Benchmarks of the first releases send ids that no vocabulary has.
void ClampIds(const ExecutorLimits& limits, Request& request) {
  const TokenId end = parameters::PromptIdEnd(limits, request);
  int num_clamped = 0;
  for (TokenId& id : request.input_ids) {
    if (id >= 0 && id < end) continue;
    id = std::clamp(id, 0, limits.vocab_size - 1);
    ++num_clamped;
  }
  if (num_clamped == 0) return;
  logging::Warning(
      "ids of input_ids are not in the vocabulary, and are taken for its first or last",
      {{"count", num_clamped}, {"vocab_size", limits.vocab_size}});
}

void ApplyOwnRules(const OwnRules& own, LlmRequest& out) {
  Request& request = out.request;
  if (request.max_tokens == 0)
    request.max_tokens = own.model.max_new_tokens.value_or(parameters::kDefaultMaxTokens);
  const bool has_seed = request.sampling.seed.has_value();
  parameters::SetSampling(own.model, request.sampling);
  if (has_seed || !parameters::IsDrawn(request.sampling)) return;
  out.seed_by_chance = request.sampling.seed = parameters::RandomSeed();
}

}  // namespace

Result<LlmRequest> ParseLlmRequest(std::span<const NamedInput> inputs,
                                   const LlmRequestDefaults& defaults,
                                   const std::shared_ptr<AccountShare>& memory) {
  LlmRequest out;
  out.exclude_input = defaults.exclude_input_in_output;
  out.request.output.normalize_log_probs = defaults.normalize_log_probs;
  for (const NamedInput& input : inputs) {
    if (input.name != "stop") continue;
    ASSIGN_OR_RETURN(out.is_stop, ReadBool(*input.tensor));
    if (out.is_stop) return out;
  }
  LlmParse parse{.out = out, .defaults = defaults, .memory = memory};
  for (const NamedInput& input : inputs) {
    const LlmInput* known = FindLlmInput(input.name);
    if (known == nullptr) {
      const std::string& name = input.tensor->name;
      return Unimplemented(name + " is not supported; leave it out").WithField(name);
    }
    RETURN_IF_ERROR(known->read(*input.tensor, *known, parse));
  }
  RETURN_IF_ERROR(TakeAdapter(parse));
  ASSIGN_OR_RETURN(out.guide, ReadGuide(parse.guide_type, parse.guide));
  RETURN_IF_ERROR(CheckBeams(parse, inputs));
  RETURN_IF_ERROR(CheckSequences(parse, inputs));
  RETURN_IF_ERROR(
      CheckDecodingMode(defaults.decoding_mode, out.request.sampling,
                        [inputs](std::string_view name) { return NameOf(inputs, name); }));
  RETURN_IF_ERROR(FinishPromptTuning(parse, inputs));
  auto& ids = out.request.input_ids;
  if (parse.input_length >= 0 && !ids.empty()) {
    if (static_cast<size_t>(parse.input_length) > ids.size()) {
      return InvalidArgument(parse.input_lengths_name + ": got " +
                             std::to_string(parse.input_length) + ", must be at most " +
                             std::to_string(ids.size()) + ", the number of input ids");
    }
    ids.resize(static_cast<size_t>(parse.input_length));  // the rest is padding
    auto& extra_ids = out.prompt_tuning.extra_ids;
    if (extra_ids.size() > ids.size() && extra_ids.size() > 1) extra_ids.resize(ids.size());
  }
  if (defaults.own) ApplyOwnRules(*defaults.own, out);
  return out;
}

Status FitToEngine(Request& request, const ExecutorLimits& limits,
                   const LlmRequestDefaults& defaults) {
  if (request.input_ids.empty()) return InvalidArgument("input_ids is not present in the request");
  if (request.max_tokens == 0) {
    return InvalidArgument("request_output_len is not present in the request");
  }
  if (parameters::IsPromptTooLong(limits, request)) {
    return InvalidArgument("Prompt length (" + std::to_string(request.input_ids.size()) +
                           ") exceeds maximum input length (" +
                           std::to_string(limits.max_input_len) + ").")
        .WithReason(Reason::kPromptTooLong);
  }
  if (defaults.clamps_input_ids) ClampIds(limits, request);
  if (defaults.takes_any_end_id)
    std::erase_if(request.end_ids, [&](TokenId id) { return !IsInVocabulary(limits, id); });
  if (const auto bad = parameters::FindOutsidePrompt(limits, request)) {
    const TokenId end = parameters::PromptIdEnd(limits, request);
    std::string what = "got token id " + std::to_string(request.input_ids[*bad]) +
                       ", must be in [0, " + std::to_string(end) + ")";
    if (end > limits.vocab_size)
      what += ": ids from " + std::to_string(limits.vocab_size) + " on are the " +
              std::to_string(end - limits.vocab_size) + " rows of prompt_embedding_table";
    return InvalidArgument("input_ids", what);
  }
  if (const auto bad = parameters::FindOutsideVocabulary(limits, request.end_ids)) {
    return InvalidArgument("EndId (" + std::to_string(request.end_ids[*bad]) +
                           ") is not within vocabulary range [0, " +
                           std::to_string(limits.vocab_size) + ").");
  }
  const int asked = request.max_tokens;
  if (parameters::ShortenToSequence(limits, request)) {
    logging::Verbose("max_tokens shortened to the engine's max_seq_len",
                     {{"asked", asked}, {"given", request.max_tokens}});
  }
  return Status::Ok();
}

}  // namespace inflight::contract
