// SPDX-License-Identifier: Apache-2.0
// Which tensor of an ensemble or a BLS model plays which part of text -> ids -> ids -> text. An
// ensemble says so by its graph, a BLS model by the names that upstream's script gives a meaning.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serving/llm/llm_model.h"
#include "serving/pipelines/postprocessing_model.h"
#include "serving/pipelines/preprocessing_model.h"

namespace inflight::serving {

struct PipelineMembers {
  std::shared_ptr<PreprocessingModel> preprocessing;
  std::shared_ptr<LlmModel> llm;
  std::shared_ptr<PostprocessingModel> postprocessing;
};

// Where an input goes.
enum class InputRole : uint8_t {
  kQuery,
  kStopWords,
  kBadWords,
  kBiasWords,
  kBiasWeights,
  kUnsupportedText,  // decoder prompts: only empty ones pass
  kUnsupportedData,  // images and videos: only empty ones pass
  kSpeculation,      // draft tokens of BLS: only zero and false pass
  kLlm,              // an input of the LLM, under its name there
};

struct InputRoute {
  std::string name;  // the model's own
  InputRole role;
  std::string llm_name;
};

enum class OutputKind : uint8_t {
  kText,
  kCumLogProbs,
  kOutputLogProbs,
  kContextLogits,
  kGenerationLogits,
  kTopLogProbIds,
  kTopLogProbs,
  kBatchIndex,
  kSequenceIndex,
  kFact,   // one of contract/request_facts.h
  kNever,  // its producer sends nothing
};

struct OutputRoute {
  std::string name;
  OutputKind kind;
  std::string llm_name;                    // of a fact
  DataType logits_type = DataType::kFp32;  // that the model declares
};

struct PipelineRoutes {
  std::vector<InputRoute> inputs;
  std::vector<OutputRoute> outputs;
  bool has_default_end_id = false;  // the LLM's end id comes from preprocessing, which knows one
  bool with_dummies = true;         // up to 0.13: zeros where nothing was asked for
};

// kUnimplemented when the graph is another one than text -> ids -> ids -> text; kInvalidArgument
// when a tensor of it leads nowhere. Both name the tensor.
Result<PipelineRoutes> EnsembleRoutes(const ::inference::ModelConfig& config,
                                      const PipelineMembers& members);
// kInvalidArgument names an output that no release's BLS has.
Result<PipelineRoutes> BlsRoutes(const ::inference::ModelConfig& config,
                                 const PipelineMembers& members);

}  // namespace inflight::serving
