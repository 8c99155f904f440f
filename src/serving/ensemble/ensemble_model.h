// SPDX-License-Identifier: Apache-2.0
// Ensembles of any models: a request flows through the graph, each step is issued as soon as its
// tensors exist (docs/reference/repositories.md). The pipeline over an LLM has a model of its own
// (pipeline_model.h), which detokenizes incrementally.
//
// Threads: Infer from any; steps' responses arrive on their models' threads, and the client's go
// out from there, in order.
// Errors: the first one of a step ends the request when the steps in flight have ended, with the
// text "in ensemble 'E', ...".
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "serving/core/model.h"
#include "serving/ensemble/ensemble_graph.h"

namespace inflight::serving {

class EnsembleModel final : public Model, public std::enable_shared_from_this<EnsembleModel> {
 public:
  // Decoupled when one of its steps is.
  static Result<std::shared_ptr<EnsembleModel>> Create(::inference::ModelConfig config,
                                                       std::string version, const StepFinder& find,
                                                       Clock& clock = Clock::System());

  void Infer(Request request, ResponseHandler handler) override;

 private:
  friend class EnsembleRun;
  EnsembleModel(::inference::ModelConfig config, std::string version, EnsembleGraph graph,
                Clock& clock);

  const EnsembleGraph graph_;
  Clock& clock_;
};

}  // namespace inflight::serving
