// SPDX-License-Identifier: Apache-2.0
#include "serving/configuration/generated_config.h"

#include "contract/model_tables.h"
#include "serving/configuration/model_config.h"
#include "serving/tensors/data_types.h"

namespace inflight::serving {
namespace {

using ::inference::ModelConfig;

void AddTensors(ModelConfig& config, std::span<const contract::TensorSpec> inputs,
                std::span<const contract::TensorSpec> outputs) {
  for (const contract::TensorSpec& spec : inputs) {
    auto& input = *config.add_input();
    input.set_name(std::string(spec.name));
    input.set_data_type(ToProto(spec.type));
    for (const int64_t dim : spec.dims) input.add_dims(dim);
    input.set_optional(spec.optional);
    input.set_allow_ragged_batch(spec.is_ragged);
    if (spec.is_scalar) input.mutable_reshape();
  }
  for (const contract::TensorSpec& spec : outputs) {
    auto& output = *config.add_output();
    output.set_name(std::string(spec.name));
    output.set_data_type(ToProto(spec.type));
    for (const int64_t dim : spec.dims) output.add_dims(dim);
  }
}

// Of an input that has a default here (contract::OwnRules), or another in its place.
void MakeOptional(ModelConfig& config, std::string_view name) {
  for (auto& input : *config.mutable_input())
    if (input.name() == name) input.set_optional(true);
}

void SetParameter(ModelConfig& config, const std::string& key, const std::string& value) {
  (*config.mutable_parameters())[key].set_string_value(value);
}

void AddStep(ModelConfig& config, const std::string& model,
             std::span<const contract::TensorLink> inputs,
             std::span<const contract::TensorLink> outputs) {
  auto& step = *config.mutable_ensemble_scheduling()->add_step();
  step.set_model_name(model);
  step.set_model_version(-1);
  for (const auto& link : inputs) {
    (*step.mutable_input_map())[std::string(link.from)] = std::string(link.to);
  }
  for (const auto& link : outputs) {
    (*step.mutable_output_map())[std::string(link.from)] = std::string(link.to);
  }
}

ModelConfig Base(const std::string& name, const GeneratedConfigOptions& options) {
  ModelConfig config;
  config.set_name(name);
  config.set_max_batch_size(options.max_batch_size);
  return config;
}

}  // namespace

ModelConfig PreprocessingConfig(const GeneratedConfigOptions& options) {
  ModelConfig config = Base("preprocessing", options);
  config.set_backend("python");
  AddTensors(config, contract::PreprocessingInputs(), contract::PreprocessingOutputs());
  if (!options.tokenizer_dir.empty()) SetParameter(config, "tokenizer_dir", options.tokenizer_dir);
  SetParameter(config, "add_special_tokens", "True");
  MakeOptional(config, "QUERY");  // or MESSAGES
  NormalizeModelConfig(config);
  return config;
}

ModelConfig LlmConfig(const GeneratedConfigOptions& options) {
  ModelConfig config = Base("tensorrt_llm", options);
  config.set_backend("tensorrtllm");
  config.mutable_model_transaction_policy()->set_decoupled(options.decoupled);
  AddTensors(config, contract::LlmInputs(), contract::LlmOutputs());
  SetParameter(config, "gpt_model_type", "inflight_fused_batching");
  SetParameter(config, "gpt_model_path", options.model_dir);
  SetParameter(config, "exclude_input_in_output",
               options.exclude_input_in_output ? "True" : "False");
  MakeOptional(config, "request_output_len");
  NormalizeModelConfig(config);
  return config;
}

ModelConfig PostprocessingConfig(const GeneratedConfigOptions& options) {
  ModelConfig config = Base("postprocessing", options);
  config.set_backend("python");
  AddTensors(config, contract::PostprocessingInputs(), contract::PostprocessingOutputs());
  if (!options.tokenizer_dir.empty()) SetParameter(config, "tokenizer_dir", options.tokenizer_dir);
  SetParameter(config, "skip_special_tokens", "True");
  NormalizeModelConfig(config);
  return config;
}

ModelConfig EnsembleConfig(const GeneratedConfigOptions& options) {
  ModelConfig config = Base("ensemble", options);
  config.set_platform("ensemble");
  config.mutable_model_transaction_policy()->set_decoupled(options.decoupled);
  AddTensors(config, contract::EnsembleInputs(), contract::EnsembleOutputs());
  AddStep(config, "preprocessing", contract::PreprocessingStepInputs(),
          contract::PreprocessingStepOutputs());
  AddStep(config, "tensorrt_llm", contract::LlmStepInputs(), contract::LlmStepOutputs());
  AddStep(config, "postprocessing", contract::PostprocessingStepInputs(),
          contract::PostprocessingStepOutputs());
  MakeOptional(config, "text_input");  // or messages
  MakeOptional(config, "max_tokens");
  NormalizeModelConfig(config);
  return config;
}

}  // namespace inflight::serving
