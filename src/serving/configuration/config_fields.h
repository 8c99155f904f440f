// SPDX-License-Identifier: Apache-2.0
// What a config.pbtxt is and asks for outside its `parameters`: the kind of model, and a line of
// the report for each field that means something to a server of models.
#pragma once

#include "contract/key_report.h"
#include "serving/configuration/model_config.h"

namespace inflight::serving {

enum class ModelKind : uint8_t {
  kLlm,
  kPreprocessing,
  kPostprocessing,
  kEnsemble,
  kBls,
  kLlmApi,  // text in, text out in one model, by TensorRT-LLM's LLM API
  kConformance,
  kUnknown
};

// By the backend where it is one of our own, else by the names of tensors, which have been the same
// in all releases; names of models are free.
ModelKind KindOf(const ::inference::ModelConfig& config);

// `completed` is the configuration as the loaded model has it, or the file's if it was not loaded.
contract::KeyReport ReportFields(ModelKind kind, const ParsedModelConfig& parsed,
                                 const ::inference::ModelConfig& completed,
                                 bool has_rate_limiter = false);

// The first refused line as kUnimplemented.
Status CheckFields(ModelKind kind, const ParsedModelConfig& parsed);

}  // namespace inflight::serving
