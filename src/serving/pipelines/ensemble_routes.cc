// SPDX-License-Identifier: Apache-2.0
// How an ensemble's configuration is understood: which of its tensors plays which part. Graphs of
// all releases differ only in names and in which tensors pass through postprocessing.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/letter_case.h"
#include "base/status_macros.h"
#include "contract/outputs.h"
#include "contract/text_inputs.h"
#include "serving/configuration/model_config.h"
#include "serving/pipelines/pipeline_routes.h"

namespace inflight::serving {
namespace {

using ::inference::ModelConfig;
using ::inference::ModelEnsembling;

// Who writes an ensemble tensor that is not an input: the member and its output.
struct Producer {
  std::string model;
  std::string output;
};

const ModelEnsembling::Step* FindStep(const ModelConfig& config, const std::string& model) {
  for (const auto& step : config.ensemble_scheduling().step()) {
    if (step.model_name() == model) return &step;
  }
  return nullptr;
}

std::map<std::string, Producer> Producers(const ModelConfig& config) {
  std::map<std::string, Producer> producers;
  for (const auto& step : config.ensemble_scheduling().step()) {
    for (const auto& [output, tensor] : step.output_map()) {
      producers[tensor] = {step.model_name(), output};
    }
  }
  return producers;
}

// The ensemble tensor that feeds `input` of a step; empty if none does.
std::string Feed(const ModelEnsembling::Step& step, const std::string& input) {
  const auto found = step.input_map().find(input);
  return found == step.input_map().end() ? std::string() : found->second;
}

Status NotThisGraph(const ModelConfig& config, const std::string& why) {
  return Unimplemented("ensemble '" + config.name() + "': " + why +
                       "; only preprocessing -> tensorrt_llm -> postprocessing is supported");
}

// What only passes through preprocessing on its way to the LLM: its names at both.
struct PassedInput {
  std::string_view preprocessing_input;
  std::string_view llm_input;
};
constexpr auto kPassedInputs = std::to_array<PassedInput>({
    {"REQUEST_OUTPUT_LEN", "request_output_len"},
    {"END_ID", "end_id"},
    {"PAD_ID", "pad_id"},
    {"PROMPT_EMBEDDING_TABLE", "prompt_embedding_table"},  // of 0.12 alone
    {"PROMPT_TABLE_EXTRA_ID", "prompt_table_extra_ids"},
});

// The part that an input of preprocessing plays. One that no text needs (a picture, a video, what a
// later release brings) is refused where it is sent.
InputRole PreprocessingRole(const std::string& input) {
  for (const contract::TextInput& text : contract::TextInputTable()) {
    if (text.preprocessing_name == input && text.role != InputRole::kLlm) return text.role;
  }
  return InputRole::kUnsupported;
}

// The row of an output by its name at postprocessing, or at the LLM.
const contract::Output* OutputOf(std::string name) {
  if (name.starts_with("OUT_")) name.erase(0, 4);
  name = AsciiLower(name);
  return contract::FindTextOutput(name == "output" ? "text_output" : name);
}

bool HasInputRoute(const PipelineRoutes& routes, std::string_view name) {
  return std::any_of(routes.inputs.begin(), routes.inputs.end(),
                     [&](const InputRoute& route) { return route.name == name; });
}

// The steps of the only graph that there is.
struct Steps {
  const ModelEnsembling::Step* preprocessing = nullptr;
  const ModelEnsembling::Step* llm = nullptr;
  const ModelEnsembling::Step* postprocessing = nullptr;
};

Status RouteInputs(const ModelConfig& config, const Steps& steps, PipelineRoutes& routes) {
  for (const auto& [input, tensor] : steps.preprocessing->input_map()) {
    if (!HasInput(config, tensor)) continue;
    const auto pass = std::ranges::find(kPassedInputs, input, &PassedInput::preprocessing_input);
    routes.inputs.push_back(
        pass == kPassedInputs.end()
            ? InputRoute{tensor, PreprocessingRole(input), {}}
            : InputRoute{tensor, InputRole::kLlm, std::string(pass->llm_input)});
  }
  for (const auto& [input, tensor] : steps.llm->input_map()) {
    if (HasInput(config, tensor) && !HasInputRoute(routes, tensor)) {
      routes.inputs.push_back({tensor, InputRole::kLlm, input});
    }
  }
  bool has_query = false;
  for (const InputRoute& route : routes.inputs) has_query |= route.role == InputRole::kQuery;
  if (!has_query) return NotThisGraph(config, "no input feeds QUERY");
  for (const auto& input : config.input()) {
    if (!HasInputRoute(routes, input.name())) {
      return InvalidArgument("ensemble '" + config.name() + "': input '" + input.name() +
                             "' feeds no step");
    }
  }
  return Status::Ok();
}

Status RouteOutputs(const ModelConfig& config, const Steps& steps, PipelineRoutes& routes) {
  const auto producers = Producers(config);
  for (const auto& output : config.output()) {
    const auto found = producers.find(output.name());
    if (found == producers.end()) {
      return InvalidArgument("ensemble '" + config.name() + "': output '" + output.name() +
                             "' is written by no step");
    }
    const contract::Output* known = OutputOf(found->second.output);
    if (routes.has_ids && found->second.output == "OUTPUT" &&
        found->second.model == steps.postprocessing->model_name()) {
      known = &contract::IdsOutput();
    }
    if (known == nullptr && found->second.model == steps.postprocessing->model_name()) {
      return NotThisGraph(config, "output '" + output.name() + "' is " + found->second.output +
                                      " of '" + found->second.model + "'");
    }
    OutputRoute& route = routes.outputs.emplace_back(OutputRoute{output.name(), known});
    if (known != nullptr && contract::IsLogits(*known)) {
      ASSIGN_OR_RETURN(route.type, LogitsTypeOf(config, output));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<PipelineRoutes> EnsembleRoutes(const ModelConfig& config, const PipelineMembers& members) {
  const std::string& pre = members.preprocessing->name();
  const std::string& llm = members.llm->name();
  const std::string& post = members.postprocessing->name();
  const Steps steps = {FindStep(config, pre), FindStep(config, llm), FindStep(config, post)};
  if (steps.preprocessing == nullptr || steps.llm == nullptr || steps.postprocessing == nullptr ||
      config.ensemble_scheduling().step_size() != 3) {
    return NotThisGraph(config, "it has other steps");
  }
  const auto producers = Producers(config);
  const auto is_from = [&](const std::string& tensor, const std::string& model,
                           const char* output) {
    const auto found = producers.find(tensor);
    return found != producers.end() && found->second.model == model &&
           found->second.output == output;
  };
  if (!is_from(Feed(*steps.llm, "input_ids"), pre, "INPUT_ID")) {
    return NotThisGraph(config, "input_ids of '" + llm + "' is not INPUT_ID of '" + pre + "'");
  }
  if (!is_from(Feed(*steps.postprocessing, "TOKENS_BATCH"), llm, "output_ids")) {
    return NotThisGraph(config,
                        "TOKENS_BATCH of '" + post + "' is not output_ids of '" + llm + "'");
  }
  PipelineRoutes routes;
  routes.has_default_end_id = is_from(Feed(*steps.llm, "end_id"), pre, "OUT_END_ID");
  // From 0.14 on these tensors do not pass through postprocessing, and zeros are not sent.
  routes.with_dummies = HasOutput(members.postprocessing->config(), "OUT_CUM_LOG_PROBS");
  routes.has_ids = members.postprocessing->passes_ids();
  RETURN_IF_ERROR(RouteInputs(config, steps, routes));
  RETURN_IF_ERROR(RouteOutputs(config, steps, routes));
  return routes;
}

}  // namespace inflight::serving
