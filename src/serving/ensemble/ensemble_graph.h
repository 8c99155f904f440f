// SPDX-License-Identifier: Apache-2.0
// Ensembles as graphs: steps are models, edges the ensemble's tensors
// (docs/reference/repositories.md, "Ensembles of other models").
//
//   ensemble input -> tensor -> step's input ... step's output -> tensor -> ensemble output
//
// A tensor streams when a decoupled model made it, or a step whose inputs stream: then it has a
// value for each response instead of one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "inflight/status.h"
#include "model_config.pb.h"
#include "serving/core/model.h"

namespace inflight::serving {

// A loaded model by name and version, -1 = the latest; null when there is none.
using StepFinder = std::function<std::shared_ptr<Model>(const std::string& name, int64_t version)>;

// What the configuration alone says: every step named and mapped, no tensor written twice, inputs
// used, outputs written, and nothing made for nobody.
Status ValidateEnsemble(const ::inference::ModelConfig& config);

// Of an ensemble that `through`, an ensemble among its steps or itself, leads back to.
Status CircularEnsembles(const std::string& name, const std::string& through);

// Each step has its model, of the version that it asks for. kFailedPrecondition: the model has
// none.
Status CheckStepsAreThere(const ::inference::ModelConfig& config, const StepFinder& find);

// That, and what the steps' models say: their tensors exist, types and shapes agree, batches fit.
Status CheckSteps(const ::inference::ModelConfig& config, const StepFinder& find);

struct EnsembleStep {
  std::shared_ptr<Model> model;
  std::map<std::string, std::string> inputs;   // model's input -> tensor
  std::map<std::string, std::string> outputs;  // model's output -> tensor
  bool has_streaming_input = false;
};

struct EnsembleGraph {
  std::vector<EnsembleStep> steps;
  std::set<std::string, std::less<>> streaming;  // tensors

  bool Streams(std::string_view tensor) const { return streaming.contains(tensor); }
  // The steps that these tensors need, as indices; ascending.
  std::vector<size_t> StepsFor(const std::vector<std::string>& tensors) const;
};

// `config` passed CheckSteps. kInvalidArgument for a cycle.
Result<EnsembleGraph> MakeEnsembleGraph(const ::inference::ModelConfig& config,
                                        const StepFinder& find);

}  // namespace inflight::serving
