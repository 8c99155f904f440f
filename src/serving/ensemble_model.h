// SPDX-License-Identifier: Apache-2.0
// The `ensemble` over preprocessing, tensorrt_llm and postprocessing, run as one pipeline:
// tokenize, execute, detokenize incrementally. Streamed texts join to the text of the non-streaming
// answer (without the prompt), and no chunk ends inside a character.
//
// Threads: short prompts are tokenized by the caller of Infer, long ones on the text pool; text is
// made on the executor's stream thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serving/llm_model.h"
#include "serving/model.h"
#include "serving/postprocessing_model.h"
#include "serving/preprocessing_model.h"

namespace inflight::serving {

class EnsembleModel : public Model {
 public:
  struct Members {
    std::shared_ptr<PreprocessingModel> preprocessing;
    std::shared_ptr<LlmModel> llm;
    std::shared_ptr<PostprocessingModel> postprocessing;
  };

  // kUnimplemented when the graph is another one than text -> ids -> ids -> text; kInvalidArgument
  // when a tensor of it leads nowhere. Both name the tensor.
  static Result<std::shared_ptr<EnsembleModel>> Create(::inference::ModelConfig config,
                                                       std::string version, Members members);

  bool ready() const override { return members_.llm->ready(); }
  bool allows_single_response_calls() const override { return true; }
  void Infer(Request request, ResponseHandler handler) override;

  // Where an ensemble input goes.
  enum class InputRole : uint8_t {
    kQuery,
    kStopWords,
    kBadWords,
    kUnsupportedText,  // decoder prompts and bias words: only empty ones pass
    kIgnored,          // weights of bias words
    kLlm,              // an input of the LLM, under its name there
  };
  struct InputRoute {
    std::string name;  // the ensemble's
    InputRole role;
    std::string llm_name;
  };
  enum class OutputKind : uint8_t {
    kText,
    kCumLogProbs,
    kOutputLogProbs,
    kContextLogits,
    kGenerationLogits,
    kBatchIndex,
    kNever,  // its producer sends nothing
  };
  struct OutputRoute {
    std::string name;
    OutputKind kind;
  };

  const Members& members() const { return members_; }
  const std::vector<OutputRoute>& outputs() const { return outputs_; }
  bool with_dummies() const { return with_dummies_; }

 private:
  class Call;

  EnsembleModel(::inference::ModelConfig config, std::string version, Members members);
  Status Route();
  Status RouteInputs();
  Status RouteOutputs();
  const InputRoute* FindInputRoute(std::string_view name) const;
  void Run(const std::shared_ptr<Call>& call);
  Result<contract::LlmRequest> Prepare(Call& call);

  const Members members_;
  std::vector<InputRoute> inputs_;
  std::vector<OutputRoute> outputs_;
  bool default_end_id_ = false;  // the LLM's end id comes from preprocessing, which knows a default
  const bool with_dummies_;
};

}  // namespace inflight::serving
