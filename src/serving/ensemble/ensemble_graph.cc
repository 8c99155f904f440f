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

  // `dims`: of the step's input or output, or what an ensemble reshapes its own to.
  template <typename Io, typename Dims>
  Status Add(const std::string& tensor, const Io& io, const Dims& dims, const ModelConfig& model) {
    TensorFacts facts{.type = io.data_type(), .dims = {}, .model = model.name()};
    if (model.max_batch_size() > 0) facts.dims.push_back(-1);
    facts.dims.insert(facts.dims.end(), dims.begin(), dims.end());
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

  // Of the ensemble itself.
  template <typename Ios>
  Status AddOwn(const Ios& ios) {
    for (const auto& io : ios) {
      const auto& dims = io.has_reshape() ? io.reshape().shape() : io.dims();
      RETURN_IF_ERROR(Add(io.name(), io, dims, config_));
    }
    return Status::Ok();
  }

  // The model that says something about a tensor first.
  const std::string& ModelOf(const std::string& tensor) const { return facts_.at(tensor).model; }

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
    if (FindIo(model.input(), input) != model.input().end()) continue;
    return InvalidArgument(
        fmt::format("{}ensemble tensor {} is mapping to non-existing input {} in model {}", where,
                    tensor, input, model.name()));
  }
  for (const auto& io : model.input()) {
    const auto mapped = step.input_map().find(io.name());
    if (mapped != step.input_map().end()) {
      RETURN_IF_ERROR(checker.Add(mapped->second, io, io.dims(), model));
    } else if (!io.optional()) {
      return InvalidArgument(
          fmt::format("{}input {} in model {} is not mapped to any ensemble tensors", where,
                      io.name(), model.name()));
    }
  }
  for (const auto& [output, tensor] : step.output_map()) {
    const auto io = FindIo(model.output(), output);
    if (io == model.output().end()) {
      return InvalidArgument(
          fmt::format("{}ensemble tensor {} is mapped from non-existing output {} in model {}",
                      where, tensor, output, model.name()));
    }
    RETURN_IF_ERROR(checker.Add(tensor, *io, io->dims(), model));
  }
  return Status::Ok();
}

// The tensors of an ensemble and the steps between them.
class DataFlow {
 public:
  explicit DataFlow(const ModelConfig& config) : config_(config) {}

  Status AddSteps() {
    for (int i = 0; i < config_.ensemble_scheduling().step_size(); ++i) {
      RETURN_IF_ERROR(AddStep(config_.ensemble_scheduling().step(i), i));
    }
    return Status::Ok();
  }

  // What the inputs and outputs are of, and what nobody uses.
  Status Check() {
    for (const auto& input : config_.input()) {
      if (!nodes_.contains(input.name())) return NotUsed("input", input.name());
      nodes_[input.name()].is_ready = true;
    }
    while (Spread()) {
    }
    std::set<std::string> outputs;
    for (const auto& output : config_.output()) {
      const auto node = nodes_.find(output.name());
      if (node == nodes_.end()) return NotUsed("output", output.name());
      if (!node->second.is_ready) return NotWritten(output.name());
      outputs.insert(output.name());
    }
    for (const auto& [name, node] : nodes_) {
      if (outputs.contains(name) || (node.is_ready && node.is_read)) continue;
      return InvalidArgument("ensemble tensor '" + name + "' is unused in ensemble '" +
                             config_.name() + "'");
    }
    return Status::Ok();
  }

 private:
  struct Node {
    std::set<std::string> sources;  // the inputs of the step that writes it
    bool is_written = false;
    bool is_read = false;
    bool is_ready = false;
  };

  Status AddStep(const ModelEnsembling::Step& step, int index) {
    const std::string where =
        "in step " + std::to_string(index) + " of ensemble '" + config_.name() + "'";
    if (step.model_name().empty()) return InvalidArgument("must specify 'model_name' " + where);
    if (step.input_map().empty()) return InvalidArgument("must specify 'input_map' " + where);
    if (step.output_map().empty()) return InvalidArgument("must specify 'output_map' " + where);
    for (const auto& [output, tensor] : step.output_map()) {
      Node& node = nodes_[tensor];
      if (std::exchange(node.is_written, true)) {
        return InvalidArgument("ensemble tensor '" + tensor +
                               "' can appear in an output map only once for ensemble '" +
                               config_.name() + "' step " + std::to_string(index));
      }
      for (const auto& [input, source] : step.input_map()) node.sources.insert(source);
    }
    for (const auto& [input, tensor] : step.input_map()) nodes_[tensor].is_read = true;
    return Status::Ok();
  }

  // Whether another tensor became ready: all that its step reads is.
  bool Spread() {
    bool has_grown = false;
    for (auto& [name, node] : nodes_) {
      if (node.is_ready || !node.is_written) continue;
      node.is_ready = std::ranges::all_of(
          node.sources, [this](const std::string& source) { return nodes_[source].is_ready; });
      has_grown |= node.is_ready;
    }
    return has_grown;
  }

  Status NotUsed(const std::string& what, const std::string& name) const {
    return InvalidArgument("ensemble " + what + " '" + name + "' for ensemble " + config_.name() +
                           "' is not used");
  }

  // Names the tensor from which on nothing is missing but itself.
  Status NotWritten(const std::string& output) const {
    std::set<std::string> seen;
    std::string last = output;
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (const std::string& source : nodes_.at(last).sources) {
        if (nodes_.at(source).is_ready || !seen.insert(source).second) continue;
        last = source;
        goes_on = true;
        break;
      }
    }
    std::string text =
        "output '" + output + "' for ensemble '" + config_.name() + "' is not written";
    if (last != output) {
      text += ": at least one of its depending tensors, '" + last + "', is not connected";
    }
    return InvalidArgument(text);
  }

  const ModelConfig& config_;
  std::map<std::string, Node> nodes_;
};

// Streams of several models cannot meet: nothing says which of their answers belong together.
class StreamChecker {
 public:
  StreamChecker(const ModelConfig& config, const StepChecker& facts)
      : config_(config), facts_(facts) {}

  Status Check(const std::vector<bool>& are_decoupled) {
    for (const auto& input : config_.input()) origins_[input.name()] = 0;
    const auto& steps = config_.ensemble_scheduling().step();
    std::set<int> left;
    for (int i = 0; i < steps.size(); ++i) left.insert(i);
    for (bool has_grown = true; has_grown;) {
      has_grown = false;
      for (const int i : std::set<int>(left)) {
        const auto& inputs = steps[i].input_map();
        const bool is_ready = std::all_of(inputs.begin(), inputs.end(), [this](const auto& in) {
          return origins_.contains(in.second);
        });
        if (!is_ready) continue;
        left.erase(i);
        has_grown = true;
        RETURN_IF_ERROR(Visit(steps[i], are_decoupled[static_cast<size_t>(i)]));
      }
    }
    for (const auto& output : config_.output()) {
      const auto first = origins_.find(config_.output(0).name());
      const auto origin = origins_.find(output.name());
      if (first == origins_.end() || origin == origins_.end()) continue;
      if (origin->second != first->second) return Meet(config_.name());
    }
    return Status::Ok();
  }

 private:
  Status Visit(const ModelEnsembling::Step& step, bool is_decoupled) {
    const int origin = origins_.at(step.input_map().begin()->second);
    for (const auto& [input, tensor] : step.input_map()) {
      if (origins_.at(tensor) != origin) {
        return Meet(facts_.ModelOf(step.output_map().begin()->second));
      }
    }
    const int made = is_decoupled ? ++num_origins_ : origin;
    for (const auto& [output, tensor] : step.output_map()) origins_[tensor] = made;
    return Status::Ok();
  }

  Status Meet(const std::string& model) const {
    return InvalidArgument("in ensemble " + config_.name() + ", step of model '" + model +
                           "' receives inputs originated from different decoupled models");
  }

  const ModelConfig& config_;
  const StepChecker& facts_;
  std::map<std::string, int> origins_;  // of each tensor the stream it is part of; 0: of none
  int num_origins_ = 0;
};

}  // namespace

Status ValidateEnsemble(const ModelConfig& config) {
  if (config.ensemble_scheduling().step().empty()) {
    return InvalidArgument("must specify 'step' for ensemble '" + config.name() + "'");
  }
  DataFlow flow(config);
  RETURN_IF_ERROR(flow.AddSteps());
  return flow.Check();
}

Status CircularEnsembles(const std::string& name, const std::string& through) {
  return InvalidArgument(fmt::format(
      "circular dependency between ensembles: {0} -> ... -> {1} -> {0}", name, through));
}

Status CheckStepsAreThere(const ModelConfig& config, const StepFinder& find) {
  for (const auto& step : config.ensemble_scheduling().step()) {
    if (find(step.model_name(), step.model_version()) != nullptr) continue;
    const std::string depends =
        "ensemble '" + config.name() + "' depends on '" + step.model_name() + "' ";
    if (step.model_version() > 0 && find(step.model_name(), -1) != nullptr) {
      return InvalidArgument(depends + "whose required version " +
                             std::to_string(step.model_version()) + " is not loaded.");
    }
    return FailedPrecondition(depends + "which has no loaded version");
  }
  return Status::Ok();
}

Status CheckSteps(const ModelConfig& config, const StepFinder& find) {
  RETURN_IF_ERROR(CheckStepsAreThere(config, find));
  const auto& steps = config.ensemble_scheduling().step();
  std::vector<std::shared_ptr<Model>> models;
  std::vector<bool> are_decoupled;
  for (const auto& step : steps) {
    models.push_back(find(step.model_name(), step.model_version()));
    are_decoupled.push_back(models.back()->decoupled());
  }
  StepChecker checker(config);
  RETURN_IF_ERROR(checker.AddOwn(config.input()));
  RETURN_IF_ERROR(checker.AddOwn(config.output()));
  for (int i = 0; i < steps.size(); ++i) {
    const ModelConfig& model = models[static_cast<size_t>(i)]->config();
    RETURN_IF_ERROR(CheckStep(config, steps[i], model, checker));
  }
  return StreamChecker(config, checker).Check(are_decoupled);
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
