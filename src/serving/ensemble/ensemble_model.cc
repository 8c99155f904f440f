// SPDX-License-Identifier: Apache-2.0
#include "serving/ensemble/ensemble_model.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "serving/ensemble/ensemble_run.h"

namespace inflight::serving {

Result<std::shared_ptr<EnsembleModel>> EnsembleModel::Create(::inference::ModelConfig config,
                                                             std::string version,
                                                             const StepFinder& find, Clock& clock) {
  RETURN_IF_ERROR(CheckSteps(config, find));
  ASSIGN_OR_RETURN(EnsembleGraph graph, MakeEnsembleGraph(config, find));
  if (std::any_of(graph.steps.begin(), graph.steps.end(),
                  [](const EnsembleStep& step) { return step.model->decoupled(); })) {
    config.mutable_model_transaction_policy()->set_decoupled(true);
  }
  return std::shared_ptr<EnsembleModel>(
      new EnsembleModel(std::move(config), std::move(version), std::move(graph), clock));
}

EnsembleModel::EnsembleModel(::inference::ModelConfig config, std::string version,
                             EnsembleGraph graph, Clock& clock)
    : Model(std::move(config), std::move(version)), graph_(std::move(graph)), clock_(clock) {}

void EnsembleModel::Infer(Request request, ResponseHandler handler) {
  std::make_shared<EnsembleRun>(shared_from_this(), std::move(request), std::move(handler))
      ->Start();
}

}  // namespace inflight::serving
