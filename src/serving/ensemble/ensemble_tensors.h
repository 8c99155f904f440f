// SPDX-License-Identifier: Apache-2.0
// The tensors of one request on its way through an ensemble, and who has still to take them.
//
// Rounds: a tensor that streams has a value for each response of the step that began the stream,
// the round; all others have one value, which every round sees. A step takes its inputs, and the
// answer the outputs, once in each round; a streamed value goes when all have taken it.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serving/ensemble/ensemble_graph.h"
#include "serving/tensors/tensor.h"

namespace inflight::serving {

class EnsembleTensors {
 public:
  using Round = uint64_t;
  using Taker = size_t;  // a step's index, or the answer
  static constexpr Taker kAnswer = std::numeric_limits<Taker>::max();

  // `steps` run, `wanted` are answered: what nobody takes is not kept. `graph` outlives this.
  EnsembleTensors(const EnsembleGraph& graph, const std::vector<size_t>& steps,
                  const std::vector<std::string>& wanted);

  // None = what makes the tensor left it out; that too decides it.
  void Set(const std::string& tensor, Round round, std::optional<Tensor> value);
  // Whether all that it takes is decided, and not yet taken by it where it streams.
  bool IsReady(Taker taker, Round round) const;
  // Null = left out. Valid until Release.
  const Tensor* Get(const std::string& tensor, Round round) const;
  // `taker` has what it needs of this round.
  void Release(Taker taker, Round round);
  // Those that have values.
  std::set<Round> Rounds() const;

  bool streams(Taker taker) const { return streaming_.contains(taker); }  // takes a stream

 private:
  struct Value {
    std::optional<Tensor> tensor;
    std::set<Taker> takers;  // who have still to come
  };
  const Value* Find(const std::string& tensor, Round round) const;

  const EnsembleGraph& graph_;
  std::map<Taker, std::set<std::string>> taken_;   // what each takes
  std::map<std::string, std::set<Taker>> takers_;  // and the reverse
  std::set<Taker> streaming_;
  std::map<std::string, std::map<Round, Value>> values_;
};

}  // namespace inflight::serving
