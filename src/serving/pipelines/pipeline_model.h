// SPDX-License-Identifier: Apache-2.0
// `ensemble`, `tensorrt_llm_bls` and models of the LLM API: preprocessing, tensorrt_llm and
// postprocessing run as one pipeline: tokenize, execute, detokenize incrementally. Streamed texts
// join to the text of the non-streaming answer (without the prompt), and no chunk ends inside a
// character.
//
// Threads: short prompts are tokenized by the caller of Infer, long ones on the text pool; text is
// made on the executor's stream thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "serving/core/model.h"
#include "serving/pipelines/pipeline_routes.h"

namespace inflight::serving {

struct PipelineOptions {
  bool accumulate_tokens = false;  // each streamed text is all of the answer so far
};

// The members of one request, from any thread. kUnavailable names the one that is not loaded.
using FindMembers = std::function<Result<PipelineMembers>()>;

class PipelineModel : public Model {
 public:
  // They differ in their routes, and in what surrounds an answer: an ensemble's carries the
  // sequence parameters and its errors name the ensemble; a decoupled BLS ends with an empty
  // response of its own; the LLM API knows a length where none is asked for, and leaves stop words
  // out of its texts.
  enum class Kind : uint8_t { kEnsemble, kBls, kLlmApi };

  // Of members that are loaded with it and stay. Errors: those of EnsembleRoutes and LlmApiRoutes.
  static Result<std::shared_ptr<PipelineModel>> Create(Kind kind, ::inference::ModelConfig config,
                                                       std::string version, PipelineMembers members,
                                                       const PipelineOptions& options = {});
  // Of members that each request finds anew. Errors: those of BlsRoutes.
  static Result<std::shared_ptr<PipelineModel>> CreateBls(::inference::ModelConfig config,
                                                          std::string version,
                                                          FindMembers find_members,
                                                          const PipelineOptions& options = {});

  // Of a BLS, whose members come and go: unless its LLM is there and has failed.
  bool ready() const override;
  std::string_view why_not_ready() const override;
  std::shared_ptr<const TextModel> text() const override;
  bool allows_single_response_calls() const override { return true; }
  bool OnlyStops(const Request& request) const override;  // of the LLM API
  void Infer(Request request, ResponseHandler handler) override;

 private:
  class Call;
  struct Inputs;

  PipelineModel(Kind kind, ::inference::ModelConfig config, std::string version,
                FindMembers find_members, PipelineRoutes routes, const PipelineOptions& options);
  const InputRoute* FindInputRoute(std::string_view name) const;
  bool WithDummies(const PipelineMembers& members) const;
  bool HasDefaultEndId(const PipelineMembers& members) const;
  void Refuse(const Request& request, const ResponseHandler& handler, const Status& status);
  void Stop(LlmModel& llm, const Request& request, const ResponseHandler& handler) const;
  size_t TextBytes(const PipelineMembers& members, const Request& request) const;
  void Run(const std::shared_ptr<Call>& call);
  Status ReadInput(const PipelineMembers& members, const Tensor& input, const InputRoute& route,
                   Inputs& inputs) const;
  Status NoPrompt() const;
  Result<Inputs> ReadInputs(const PipelineMembers& members, const Request& request) const;
  Result<contract::LlmRequest> ParseForLlm(Call& call, Inputs& inputs) const;
  bool MatchesStopTexts(const PipelineMembers& members, const Request& request) const;
  Result<contract::LlmRequest> Prepare(Call& call);

  const Kind kind_;
  const FindMembers find_members_;
  const PipelineRoutes routes_;
  const PipelineOptions options_;
  std::shared_ptr<const TextModel> text_;  // of members that stay
};

}  // namespace inflight::serving
