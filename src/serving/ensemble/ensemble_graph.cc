// SPDX-License-Identifier: Apache-2.0
#include "serving/ensemble/ensemble_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/status_macros.h"

namespace inflight::serving {
namespace {

using ::inference::ModelConfig;
using ::inference::ModelEnsembling;

template <typename Ios>
auto FindIo(const Ios& ios, const std::string& name) {
  return std::find_if(ios.begin(), ios.end(), [&](const auto& io) { return io.name() == name; });
}

template <typename Dims>
std::string DimsText(const Dims& dims) {
  std::string text;
  for (const int64_t dim : dims) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return "[" + text + "]";
}

// The first that says something about a tensor decides what the others must agree with.
struct TensorFacts {
  ::inference::DataType type = ::inference::TYPE_INVALID;
  std::vector<int64_t> dims;  // with -1 in front where the model batches
  std::string model;
};

bool DimsAgree(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](int64_t x, int64_t y) { return x == y || x == -1 || y == -1; });
}

// A batch of one may be added or taken away between models that batch and models that do not.
bool ShapesAgree(const TensorFacts& a, const TensorFacts& b) {
  if (DimsAgree(a.dims, b.dims)) return true;
  const auto without_first = [](const std::vector<int64_t>& dims) {
    return std::vector<int64_t>(dims.begin() + (dims.empty() ? 0 : 1), dims.end());
  };
  return (a.dims.size() == b.dims.size() + 1 && DimsAgree(without_first(a.dims), b.dims)) ||
         (b.dims.size() == a.dims.size() + 1 && DimsAgree(without_first(b.dims), a.dims));
}

class StepChecker {
 public:
  explicit StepChecker(const ModelConfig& config) : config_(config) {}

  template <typename Io>
  Status Add(const std::string& tensor, const Io& io, const ModelConfig& model) {
    TensorFacts facts{.type = io.data_type(), .dims = {}, .model = model.name()};
    if (model.max_batch_size() > 0) facts.dims.push_back(-1);
    facts.dims.insert(facts.dims.end(), io.dims().begin(), io.dims().end());
    const auto [known, is_new] = facts_.emplace(tensor, facts);
    if (is_new) return Status::Ok();
    const TensorFacts& first = known->second;
    const std::string where =
        "in ensemble " + config_.name() + ", ensemble tensor " + tensor + ": inconsistent ";
    if (first.type != facts.type) {
      return InvalidArgument(where + "data type: " + ::inference::DataType_Name(first.type) +
                             " is inferred from model " + first.model + " while " +
                             ::inference::DataType_Name(facts.type) + " is inferred from model " +
                             facts.model);
    }
    if (!ShapesAgree(first, facts)) {
      return InvalidArgument(where + "shape: " + DimsText(first.dims) + " is inferred from model " +
                             first.model + " while " + DimsText(facts.dims) +
                             " is inferred from model " + facts.model);
    }
    return Status::Ok();
  }

 private:
  const ModelConfig& config_;
  std::map<std::string, TensorFacts> facts_;
};

Status CheckStep(const ModelConfig& config, const ModelEnsembling::Step& step,
                 const ModelConfig& model, StepChecker& checker) {
  if (model.max_batch_size() > 0 && model.max_batch_size() < config.max_batch_size()) {
    return InvalidArgument("ensemble " + config.name() + " allows maximum batch size " +
                           std::to_string(config.max_batch_size()) + ", but it contains model " +
                           model.name() + " which only allows maximum batch size to be " +
                           std::to_string(model.max_batch_size()));
  }
  const std::string where = "in ensemble " + config.name() + ", ";
  for (const auto& [input, tensor] : step.input_map()) {
    const auto io = FindIo(model.input(), input);
    if (io == model.input().end()) {
      return InvalidArgument(
          fmt::format("{}ensemble tensor {} is mapping to non-existing input {} in model {}", where,
                      tensor, input, model.name()));
    }
    RETURN_IF_ERROR(checker.Add(tensor, *io, model));
  }
  for (const auto& io : model.input()) {
    if (io.optional() || step.input_map().contains(io.name())) continue;
    return InvalidArgument(
        fmt::format("{}input {} in model {} is not mapped to any ensemble tensors", where,
                    io.name(), model.name()));
  }
  for (const auto& [output, tensor] : step.output_map()) {
    const auto io = FindIo(model.output(), output);
    if (io == model.output().end()) {
      return InvalidArgument(
          fmt::format("{}ensemble tensor {} is mapped from non-existing output {} in model {}",
                      where, tensor, output, model.name()));
    }
    RETURN_IF_ERROR(checker.Add(tensor, *io, model));
  }
  return Status::Ok();
}

Status ValidateStep(const ModelConfig& config, const ModelEnsembling::Step& step) {
  const std::string where = "for ensemble '" + config.name() + "'";
  if (step.model_name().empty()) {
    return InvalidArgument("must specify 'model_name' in step " + where);
  }
  if (step.input_map().empty()) {
    return InvalidArgument("must specify 'input_map' in step " + where);
  }
  if (step.output_map().empty()) {
    return InvalidArgument("must specify 'output_map' in step " + where);
  }
  return Status::Ok();
}

}  // namespace

Status ValidateEnsemble(const ModelConfig& config) {
  const auto& steps = config.ensemble_scheduling().step();
  if (steps.empty())
    return InvalidArgument("must specify 'step' for ensemble '" + config.name() + "'");
  std::set<std::string> written, read;
  for (const auto& input : config.input()) written.insert(input.name());
  for (const auto& step : steps) {
    RETURN_IF_ERROR(ValidateStep(config, step));
    for (const auto& [input, tensor] : step.input_map()) read.insert(tensor);
    for (const auto& [output, tensor] : step.output_map()) {
      if (written.insert(tensor).second) continue;
      return InvalidArgument("multiple producers of ensemble tensor '" + tensor +
                             "' for ensemble '" + config.name() + "'");
    }
  }
  for (const auto& output : config.output()) {
    read.insert(output.name());
    if (!written.contains(output.name())) {
      return InvalidArgument("no output map for ensemble output '" + output.name() +
                             "' for ensemble '" + config.name() + "'");
    }
  }
  for (const std::string& tensor : read) {
    if (!written.contains(tensor)) {
      return InvalidArgument("no producer of ensemble tensor '" + tensor + "' for ensemble '" +
                             config.name() + "'");
    }
  }
  for (const auto& input : config.input()) {
    if (!read.contains(input.name())) {
      return InvalidArgument("ensemble tensor '" + input.name() + "' is unused in ensemble '" +
                             config.name() + "'");
    }
  }
  return Status::Ok();
}

Status CheckSteps(const ModelConfig& config, const StepFinder& find) {
  StepChecker checker(config);
  for (const auto& input : config.input())
    RETURN_IF_ERROR(checker.Add(input.name(), input, config));
  for (const auto& step : config.ensemble_scheduling().step()) {
    const std::shared_ptr<Model> model = find(step.model_name(), step.model_version());
    if (model == nullptr) {
      return FailedPrecondition("ensemble '" + config.name() + "' depends on '" +
                                step.model_name() + "' which has no loaded version");
    }
    RETURN_IF_ERROR(CheckStep(config, step, model->config(), checker));
  }
  for (const auto& output : config.output()) {
    RETURN_IF_ERROR(checker.Add(output.name(), output, config));
  }
  return Status::Ok();
}

std::vector<size_t> EnsembleGraph::StepsFor(const std::vector<std::string>& tensors) const {
  std::set<std::string> needed(tensors.begin(), tensors.end());
  std::set<size_t> chosen;
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool is_needed =
          std::any_of(steps[i].outputs.begin(), steps[i].outputs.end(),
                      [&](const auto& output) { return needed.contains(output.second); });
      if (!is_needed || !chosen.insert(i).second) continue;
      for (const auto& [input, tensor] : steps[i].inputs) needed.insert(tensor);
      has_grown = true;
    }
  }
  return {chosen.begin(), chosen.end()};
}

Result<EnsembleGraph> MakeEnsembleGraph(const ModelConfig& config, const StepFinder& find) {
  EnsembleGraph graph;
  for (const auto& step : config.ensemble_scheduling().step()) {
    graph.steps.push_back({.model = find(step.model_name(), step.model_version()),
                           .inputs = {step.input_map().begin(), step.input_map().end()},
                           .outputs = {step.output_map().begin(), step.output_map().end()}});
  }
  // Steps whose inputs are there, again and again: what is left over is a cycle.
  std::set<std::string> made;
  for (const auto& input : config.input()) made.insert(input.name());
  std::vector<bool> is_done(graph.steps.size(), false);
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (size_t i = 0; i < graph.steps.size(); ++i) {
      EnsembleStep& step = graph.steps[i];
      const bool is_runnable =
          std::all_of(step.inputs.begin(), step.inputs.end(),
                      [&](const auto& in) { return made.contains(in.second); });
      if (is_done[i] || !is_runnable) continue;
      for (const auto& [input, tensor] : step.inputs) {
        step.has_streaming_input |= graph.Streams(tensor);
      }
      for (const auto& [output, tensor] : step.outputs) {
        made.insert(tensor);
        if (step.has_streaming_input || step.model->decoupled()) graph.streaming.insert(tensor);
      }
      is_done[i] = has_grown = true;
    }
  }
  if (std::find(is_done.begin(), is_done.end(), false) != is_done.end()) {
    return InvalidArgument("the steps of ensemble '" + config.name() + "' form a cycle");
  }
  return graph;
}

}  // namespace inflight::serving
