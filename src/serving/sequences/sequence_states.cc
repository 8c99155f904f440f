// SPDX-License-Identifier: Apache-2.0
#include "serving/sequences/sequence_states.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "serving/tensors/data_types.h"
#include "serving/tensors/tensor_file.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelConfig;
using ::inference::ModelSequenceBatching;
using InitialState = ModelSequenceBatching::InitialState;

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t dim : shape) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return "[" + text + "]";
}

bool Fits(const std::vector<int64_t>& shape, const std::vector<int64_t>& dims) {
  return std::equal(shape.begin(), shape.end(), dims.begin(), dims.end(),
                    [](int64_t size, int64_t dim) { return dim == -1 || dim == size; });
}

template <typename Dims>
std::vector<int64_t> WithBatch(const ModelConfig& config, const Dims& dims) {
  std::vector<int64_t> shape(dims.begin(), dims.end());
  if (config.max_batch_size() > 0) shape.insert(shape.begin(), 1);
  return shape;
}

std::string Where(const ModelConfig& config, const ModelSequenceBatching::State& state) {
  return "sequence batching state '" + state.input_name() + "' of model '" + config.name() + "'";
}

Status CheckInitial(const std::string& where, const ModelSequenceBatching::State& state) {
  if (state.initial_state_size() > 1) {
    return InvalidArgument(where + " has " + std::to_string(state.initial_state_size()) +
                           " initial states, at most one is possible");
  }
  for (const InitialState& initial : state.initial_state()) {
    if (initial.state_data_case() == InitialState::STATE_DATA_NOT_SET) {
      return InvalidArgument(where + ": its initial state must have zero_data or data_file");
    }
    if (initial.data_type() != state.data_type()) {
      return InvalidArgument(where + ": its initial state must have its data_type");
    }
    const std::vector<int64_t> shape(initial.dims().begin(), initial.dims().end());
    const bool is_fixed = std::all_of(shape.begin(), shape.end(), [](int64_t d) { return d > 0; });
    if (!is_fixed || !Fits(shape, {state.dims().begin(), state.dims().end()})) {
      return InvalidArgument(where +
                             ": its initial state must have fixed dims that fit the state's");
    }
  }
  return Status::Ok();
}

// Open dimensions of a state without an initial one are 1.
Result<Tensor> InitialTensor(const ModelConfig& config, const ModelSequenceBatching::State& state,
                             const fs::path& model_dir) {
  Tensor tensor{.name = state.input_name(), .datatype = FromProto(state.data_type())};
  if (state.initial_state().empty()) {
    tensor.shape = WithBatch(config, state.dims());
    std::replace(tensor.shape.begin(), tensor.shape.end(), int64_t{-1}, int64_t{1});
    RETURN_IF_ERROR(FillWithZeros(tensor));
    return tensor;
  }
  const InitialState& initial = state.initial_state(0);
  tensor.shape = WithBatch(config, initial.dims());
  const Status filled =
      initial.has_data_file()
          ? FillFromFile(model_dir / "initial_state", initial.data_file(), "data_file", tensor)
          : FillWithZeros(tensor);
  RETURN_IF_ERROR(filled.WithPrefix(Where(config, state)));
  return tensor;
}

}  // namespace

Status CheckSequenceStates(const ModelConfig& config) {
  std::set<std::string> inputs, outputs;
  for (const auto& state : config.sequence_batching().state()) {
    const std::string where = Where(config, state);
    if (state.input_name().empty() || state.output_name().empty()) {
      return InvalidArgument(where + " must have input_name and output_name");
    }
    if (!inputs.insert(state.input_name()).second || !outputs.insert(state.output_name()).second) {
      return InvalidArgument(where + ": another state has its input_name or output_name");
    }
    if (std::any_of(config.input().begin(), config.input().end(),
                    [&](const auto& input) { return input.name() == state.input_name(); })) {
      return InvalidArgument(where + ": an input of the model has its input_name");
    }
    if (state.data_type() == ::inference::TYPE_INVALID || state.dims().empty() ||
        std::any_of(state.dims().begin(), state.dims().end(),
                    [](int64_t dim) { return dim < 1 && dim != -1; })) {
      return InvalidArgument(where + " must have data_type, and dims of at least 1 or -1");
    }
    if (state.use_growable_memory()) {
      return Unimplemented(where + ": use_growable_memory is of GPUs; leave it out");
    }
    RETURN_IF_ERROR(CheckInitial(where, state));
  }
  return Status::Ok();
}

Result<std::unique_ptr<SequenceStates>> SequenceStates::Make(const ModelConfig& config,
                                                             const fs::path& model_dir) {
  auto states = std::make_unique<SequenceStates>();
  for (const auto& state : config.sequence_batching().state()) {
    State made{.output_name = state.output_name(), .dims = WithBatch(config, state.dims())};
    made.is_output =
        std::any_of(config.output().begin(), config.output().end(),
                    [&](const auto& output) { return output.name() == made.output_name; });
    ASSIGN_OR_RETURN(made.initial, InitialTensor(config, state, model_dir));
    states->states_.push_back(std::move(made));
  }
  if (states->states_.empty()) states = nullptr;
  return states;
}

void SequenceStates::AddInputs(Values& values, Request& request) const {
  const std::lock_guard lock(values.mutex);
  for (const State& state : states_) {
    const auto left = values.by_input.find(state.initial.name);
    request.inputs.push_back(left == values.by_input.end() ? state.initial : left->second);
  }
}

Status SequenceStates::Keep(Values& values, std::vector<Tensor>& outputs) const {
  std::map<std::string, Tensor> kept;
  for (const State& state : states_) {
    const auto output = std::find_if(outputs.begin(), outputs.end(), [&](const Tensor& tensor) {
      return tensor.name == state.output_name;
    });
    if (output == outputs.end()) continue;
    if (output->datatype != state.initial.datatype || !Fits(output->shape, state.dims)) {
      return InvalidArgument(
          "state '" + state.output_name + "' is " + std::string(DataTypeName(output->datatype)) +
          " " + ShapeText(output->shape) + ", its configuration says " +
          std::string(DataTypeName(state.initial.datatype)) + " " + ShapeText(state.dims));
    }
    Tensor& tensor = kept[state.initial.name] = *output;
    tensor.name = state.initial.name;
    if (!state.is_output) outputs.erase(output);
  }
  const std::lock_guard lock(values.mutex);
  for (auto& [name, tensor] : kept) values.by_input[name] = std::move(tensor);
  return Status::Ok();
}

}  // namespace inflight::serving
