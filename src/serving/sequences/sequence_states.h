// SPDX-License-Identifier: Apache-2.0
// Implicit state of sequences (docs/reference/repositories.md): tensors that a response of a
// sequence leaves and that its next request brings back to the model, unseen by the client.
//
//   START -> initial_state (zeros where there is none) -> input_name
//   output_name of a successful response              -> input_name of the next request
//
// A state's output that is an output of the model too goes to the client as well.
//
// Threads: all methods are thread-safe. Requests of a sequence run one after the other.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "model_config.pb.h"
#include "serving/core/request.h"

namespace inflight::serving {

// kInvalidArgument names the state and what is wrong; kUnimplemented: growable memory, which is of
// GPUs.
Status CheckSequenceStates(const ::inference::ModelConfig& config);

class SequenceStates {
 public:
  // What one sequence has left; made at its start, dropped with its last request.
  struct Values {
    std::mutex mutex;
    std::map<std::string, Tensor> by_input;
  };

  // `model_dir` has the files of initial states. Null where the model has no state.
  static Result<std::unique_ptr<SequenceStates>> Make(const ::inference::ModelConfig& config,
                                                      const std::filesystem::path& model_dir);

  void AddInputs(Values& values, Request& request) const;
  // Takes the states out of a response's outputs. kInvalidArgument where one has another type or
  // shape than its configuration says; then nothing is kept.
  Status Keep(Values& values, std::vector<Tensor>& outputs) const;

 private:
  struct State {
    std::string output_name;
    bool is_output = false;     // of the model, for clients
    std::vector<int64_t> dims;  // with the batch dimension; -1: any
    Tensor initial;             // under its input's name
  };

  std::vector<State> states_;
};

}  // namespace inflight::serving
