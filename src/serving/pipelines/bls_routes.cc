// SPDX-License-Identifier: Apache-2.0
// The tensors of `tensorrt_llm_bls` and of models of the LLM API: upstream's scripts give them a
// meaning by their names.
#include <string>
#include <string_view>

#include "base/status_macros.h"
#include "contract/llm_api.h"
#include "contract/outputs.h"
#include "contract/text_inputs.h"
#include "serving/configuration/model_config.h"
#include "serving/pipelines/pipeline_routes.h"

namespace inflight::serving {
namespace {

InputRoute RouteOf(const std::string& name) {
  if (const contract::TextInput* input = contract::FindTextInput(name)) {
    return {name, input->role, std::string(input->llm_name)};
  }
  // One that the LLM does not know is refused when it is sent.
  return {name, InputRole::kLlm, name};
}

// What a model of the LLM API declares and never sends here.
constexpr std::string_view kNeverSent = "stop_reason";

}  // namespace

Result<PipelineRoutes> LlmApiRoutes(const ::inference::ModelConfig& config) {
  PipelineRoutes routes{.has_default_end_id = true, .with_dummies = false};
  for (const auto& input : config.input()) {
    const contract::LlmApiInput known = contract::LlmApiInputOf(input.name());
    routes.inputs.push_back({input.name(), known.role, std::string(known.llm_name)});
  }
  for (const auto& output : config.output()) {
    const contract::Output* known = contract::FindLlmApiOutput(output.name());
    if (known == nullptr && output.name() != kNeverSent) {
      return InvalidArgument("model '" + config.name() + "': output '" + output.name() +
                             "' is none that a model of the LLM API has");
    }
    routes.outputs.push_back(
        OutputRoute{output.name(), known, known == nullptr ? DataType::kInvalid : known->type});
  }
  return routes;
}

Result<PipelineRoutes> BlsRoutes(const ::inference::ModelConfig& config) {
  PipelineRoutes routes;
  for (const auto& input : config.input()) routes.inputs.push_back(RouteOf(input.name()));
  for (const auto& output : config.output()) {
    const contract::Output* known = contract::FindTextOutput(output.name());
    if (known == nullptr) {
      return InvalidArgument("model '" + config.name() + "': output '" + output.name() +
                             "' is none that a BLS model of upstream has");
    }
    OutputRoute& route =
        routes.outputs.emplace_back(OutputRoute{output.name(), known, known->type});
    if (contract::IsLogits(*known)) {
      ASSIGN_OR_RETURN(route.type, LogitsTypeOf(config, output));
    }
  }
  return routes;
}

bool BlsHasDefaultEndId(const PipelineMembers& members) {
  return HasOutput(members.preprocessing->config(), "OUT_END_ID");
}

}  // namespace inflight::serving
