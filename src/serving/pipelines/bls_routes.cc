// SPDX-License-Identifier: Apache-2.0
// The tensors of `tensorrt_llm_bls`, of all releases. Upstream's script copies them to its inner
// requests by name; those that keep their name need no entry here.
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "contract/request_facts.h"
#include "serving/configuration/model_config.h"
#include "serving/pipelines/pipeline_routes.h"

namespace inflight::serving {
namespace {

using Role = InputRole;

struct Entry {
  std::string_view name;
  Role role;
  std::string_view llm_name = {};
};

constexpr auto kInputs = std::to_array<Entry>({
    {"bad_words", Role::kBadWords},
    {"decoder_text_input", Role::kUnsupportedText},
    {"embedding_bias_weights", Role::kBiasWeights},
    {"embedding_bias_words", Role::kBiasWords},
    {"image_bytes_input", Role::kUnsupportedData},
    {"image_input", Role::kUnsupportedData},
    {"image_url_input", Role::kUnsupportedText},
    {"length_penalty", Role::kLlm, "len_penalty"},
    {"max_tokens", Role::kLlm, "request_output_len"},
    {"num_draft_tokens", Role::kSpeculation},
    {"prompt_table_extra_id", Role::kLlm, "prompt_table_extra_ids"},
    {"stop_words", Role::kStopWords},
    {"stream", Role::kLlm, "streaming"},
    {"text_input", Role::kQuery},
    {"top_k", Role::kLlm, "runtime_top_k"},
    {"top_p", Role::kLlm, "runtime_top_p"},
    {"top_p_decay", Role::kLlm, "runtime_top_p_decay"},
    {"top_p_min", Role::kLlm, "runtime_top_p_min"},
    {"top_p_reset_ids", Role::kLlm, "runtime_top_p_reset_ids"},
    {"use_draft_logits", Role::kSpeculation},
    {"video_bytes_input", Role::kUnsupportedData},
});

InputRoute RouteOf(const std::string& name) {
  for (const Entry& entry : kInputs) {
    if (entry.name == name) return {name, entry.role, std::string(entry.llm_name)};
  }
  return {name, Role::kLlm, name};  // one that the LLM does not know is refused when it is sent
}

struct Output {
  std::string_view name;
  OutputKind kind;
};

constexpr auto kOutputs = std::to_array<Output>({
    {"text_output", OutputKind::kText},
    {"cum_log_probs", OutputKind::kCumLogProbs},
    {"output_log_probs", OutputKind::kOutputLogProbs},
    {"context_logits", OutputKind::kContextLogits},
    {"generation_logits", OutputKind::kGenerationLogits},
    {"top_log_prob_ids", OutputKind::kTopLogProbIds},
    {"top_log_probs", OutputKind::kTopLogProbs},
    {"batch_index", OutputKind::kBatchIndex},
    {"sequence_index", OutputKind::kSequenceIndex},
});

std::optional<OutputKind> KindOf(std::string_view name) {
  for (const Output& output : kOutputs) {
    if (output.name == name) return output.kind;
  }
  if (contract::IsFact(name)) return OutputKind::kFact;
  return std::nullopt;
}

}  // namespace

Result<PipelineRoutes> BlsRoutes(const ::inference::ModelConfig& config,
                                 const PipelineMembers& members) {
  PipelineRoutes routes;
  for (const auto& input : config.input()) routes.inputs.push_back(RouteOf(input.name()));
  for (const auto& output : config.output()) {
    const auto kind = KindOf(output.name());
    if (!kind) {
      return InvalidArgument("model '" + config.name() + "': output '" + output.name() +
                             "' is none that a BLS model of upstream has");
    }
    OutputRoute& route =
        routes.outputs.emplace_back(OutputRoute{output.name(), *kind, output.name()});
    if (*kind == OutputKind::kContextLogits || *kind == OutputKind::kGenerationLogits) {
      ASSIGN_OR_RETURN(route.logits_type, LogitsTypeOf(config, output));
    }
  }
  // 0.7 forwards the end id of the request and has no other.
  routes.has_default_end_id = HasOutput(members.preprocessing->config(), "OUT_END_ID");
  routes.with_dummies = members.llm->with_dummies();
  return routes;
}

}  // namespace inflight::serving
