// SPDX-License-Identifier: Apache-2.0
// `ensemble`, `tensorrt_llm_bls` and models of the LLM API: preprocessing, tensorrt_llm and
// postprocessing run as one pipeline: tokenize, execute, detokenize incrementally. Streamed texts
// join to the text of the non-streaming answer (without the prompt), and no chunk ends inside a
// character.
//
// Threads: short prompts are tokenized by the caller of Infer, long ones on the text pool; text is
// made on the executor's stream thread.
#pragma once

#include <memory>
#include <string>

#include "serving/core/model.h"
#include "serving/pipelines/pipeline_routes.h"

namespace inflight::serving {

struct PipelineOptions {
  bool accumulate_tokens = false;  // each streamed text is all of the answer so far
  // Stop words end texts, else only sequences of their tokens; also where a request says whether
  // they are to stay in the text.
  bool matches_stop_texts = true;
};

class PipelineModel : public Model {
 public:
  // They differ in their routes, and in what surrounds an answer: an ensemble's carries the
  // sequence parameters and its errors name the ensemble; a decoupled BLS ends with an empty
  // response of its own; the LLM API knows a length where none is asked for, and leaves stop words
  // out of its texts.
  enum class Kind : uint8_t { kEnsemble, kBls, kLlmApi };

  // Errors: those of EnsembleRoutes and BlsRoutes.
  static Result<std::shared_ptr<PipelineModel>> Create(Kind kind, ::inference::ModelConfig config,
                                                       std::string version, PipelineMembers members,
                                                       const PipelineOptions& options = {});

  bool ready() const override { return members_.llm->ready(); }
  bool allows_single_response_calls() const override { return true; }
  void Infer(Request request, ResponseHandler handler) override;

  Kind kind() const { return kind_; }
  const PipelineMembers& members() const { return members_; }
  const PipelineRoutes& routes() const { return routes_; }

 private:
  class Call;
  struct Inputs;

  PipelineModel(Kind kind, ::inference::ModelConfig config, std::string version,
                PipelineMembers members, PipelineRoutes routes, const PipelineOptions& options);
  const InputRoute* FindInputRoute(std::string_view name) const;
  void Run(const std::shared_ptr<Call>& call);
  Status ReadInput(const Tensor& input, const InputRoute& route, Inputs& inputs) const;
  Result<Inputs> ReadInputs(const Request& request) const;
  Result<contract::LlmRequest> ParseForLlm(Inputs& inputs) const;
  bool MatchesStopTexts(const Request& request) const;
  Result<contract::LlmRequest> Prepare(Call& call);

  const Kind kind_;
  const PipelineMembers members_;
  const PipelineRoutes routes_;
  const PipelineOptions options_;
};

}  // namespace inflight::serving
