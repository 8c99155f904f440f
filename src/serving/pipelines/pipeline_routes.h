// SPDX-License-Identifier: Apache-2.0
// Which tensor of an ensemble or a BLS model plays which part of text -> ids -> ids -> text. An
// ensemble says so by its graph, a BLS model by the names that upstream's script gives a meaning.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "contract/outputs.h"
#include "contract/text_inputs.h"
#include "serving/llm/llm_model.h"
#include "serving/pipelines/postprocessing_model.h"
#include "serving/pipelines/preprocessing_model.h"

namespace inflight::serving {

struct PipelineMembers {
  std::shared_ptr<PreprocessingModel> preprocessing;
  std::shared_ptr<LlmModel> llm;
  std::shared_ptr<PostprocessingModel> postprocessing;
  std::shared_ptr<LlmModel> draft = {};  // proposes tokens to `llm`; null: none
  Status draft_status = {};              // why there is none, where one is named
  // Stop words end texts, else only sequences of their tokens; also where a request says whether
  // they are to stay in the text.
  bool matches_stop_texts = true;
};

using contract::InputRole;

struct InputRoute {
  std::string name;  // the model's own
  InputRole role;
  std::string llm_name;
};

struct OutputRoute {
  std::string name;                          // the model's own
  const contract::Output* output = nullptr;  // null: its producer sends nothing
  DataType type = DataType::kInvalid;        // of logits that the model declares
};

struct PipelineRoutes {
  std::vector<InputRoute> inputs;
  std::vector<OutputRoute> outputs;
  bool has_default_end_id = false;  // the LLM's end id comes from preprocessing, which knows one
  bool with_dummies = true;         // up to 0.13: zeros where nothing was asked for
  bool has_ids = false;             // an output has ids in place of texts
};

// kUnimplemented when the graph is another one than text -> ids -> ids -> text; kInvalidArgument
// when a tensor of it leads nowhere. Both name the tensor.
Result<PipelineRoutes> EnsembleRoutes(const ::inference::ModelConfig& config,
                                      const PipelineMembers& members);
// Of a model of the LLM API. kInvalidArgument names an output that no release's has.
Result<PipelineRoutes> LlmApiRoutes(const ::inference::ModelConfig& config);
// kInvalidArgument names an output that no release's BLS has. `has_default_end_id` and
// `with_dummies` follow the members of each request.
Result<PipelineRoutes> BlsRoutes(const ::inference::ModelConfig& config);
// 0.7 forwards the end id of the request and has no other.
bool BlsHasDefaultEndId(const PipelineMembers& members);

}  // namespace inflight::serving
