// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/auto_complete.h"

#include <array>
#include <utility>

#include "serving/configuration/generated_config.h"
#include "serving/repository/repository_layout.h"

namespace inflight::serving {
namespace {

constexpr char kLlmBackend[] = "tensorrtllm";

struct ModelFile {
  const char* name;
  const char* backend;
};

constexpr auto kFiles = std::to_array<ModelFile>({{"model.plan", "tensorrt"},
                                                  {"model.onnx", "onnxruntime"},
                                                  {"model.xml", "openvino"},
                                                  {"model.pt", "pytorch"},
                                                  {"model.pt2", "pytorch"},
                                                  {"model.py", "python"}});

// `named`: default_model_filename, which may be empty.
std::string BackendOfFile(const std::filesystem::path& dir, const std::string& named) {
  const auto version = FirstVersion(dir);
  for (const ModelFile& file : kFiles) {
    const bool is_it = named.empty() ? version && Exists(*version / file.name) : named == file.name;
    if (is_it) return file.backend;
  }
  return "";
}

// What follows the first dot.
std::string BackendIn(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos || dot == 0 ? "" : name.substr(dot + 1);
}

void AddLlmTensors(ParsedModelConfig& parsed) {
  ::inference::ModelConfig& config = parsed.config;
  ::inference::ModelConfig whole = LlmConfig({});
  config.mutable_input()->Swap(whole.mutable_input());
  config.mutable_output()->Swap(whole.mutable_output());
  if (!parsed.IsWritten("max_batch_size")) parsed.unfilled.emplace_back("max_batch_size");
  if (!config.has_model_transaction_policy()) {
    *config.mutable_model_transaction_policy() = whole.model_transaction_policy();
  }
}

}  // namespace

bool NeedsNoConfig(const std::string& name) { return BackendIn(name) == kLlmBackend; }

Status AutoComplete(const std::string& name, const std::filesystem::path& dir,
                    ParsedModelConfig& parsed) {
  ::inference::ModelConfig& config = parsed.config;
  if (config.backend().empty() && config.platform().empty() && !config.has_ensemble_scheduling()) {
    std::string backend = BackendOfFile(dir, config.default_model_filename());
    if (backend.empty()) backend = BackendIn(name);
    if (backend.empty()) {
      return InvalidArgument("Invalid model name: Could not determine backend for model '" + name +
                             "' with no backend in model configuration. Expected model name of "
                             "the form 'model.<backend_name>'.");
    }
    config.set_backend(std::move(backend));
  }
  if (config.backend() == kLlmBackend && config.input_size() == 0 && config.output_size() == 0) {
    AddLlmTensors(parsed);
  }
  return Status::Ok();
}

}  // namespace inflight::serving
