// SPDX-License-Identifier: Apache-2.0
#include "serving/ensemble/ensemble_tensors.h"

#include <algorithm>
#include <utility>

namespace inflight::serving {

EnsembleTensors::EnsembleTensors(const EnsembleGraph& graph, const std::vector<size_t>& steps,
                                 const std::vector<std::string>& wanted)
    : graph_(graph) {
  for (const size_t step : steps) {
    for (const auto& [input, tensor] : graph_.steps[step].inputs) taken_[step].insert(tensor);
  }
  taken_[kAnswer].insert(wanted.begin(), wanted.end());
  for (const auto& [taker, tensors] : taken_) {
    for (const std::string& tensor : tensors) {
      takers_[tensor].insert(taker);
      if (graph_.Streams(tensor)) streaming_.insert(taker);
    }
  }
}

void EnsembleTensors::Set(const std::string& tensor, Round round, std::optional<Tensor> value) {
  const auto takers = takers_.find(tensor);
  if (takers == takers_.end()) return;
  const Round of_tensor = graph_.Streams(tensor) ? round : 0;
  values_[tensor][of_tensor] = {.tensor = std::move(value), .takers = takers->second};
}

bool EnsembleTensors::IsReady(Taker taker, Round round) const {
  const std::set<std::string>& tensors = taken_.at(taker);
  return std::all_of(tensors.begin(), tensors.end(), [&](const std::string& tensor) {
    const Value* value = Find(tensor, round);
    return value != nullptr && value->takers.contains(taker);
  });
}

const Tensor* EnsembleTensors::Get(const std::string& tensor, Round round) const {
  const Value* value = Find(tensor, round);
  return value != nullptr && value->tensor ? &*value->tensor : nullptr;
}

void EnsembleTensors::Release(Taker taker, Round round) {
  for (const std::string& tensor : taken_.at(taker)) {
    // What does not stream is taken again in the next round, unless there is only one.
    if (!graph_.Streams(tensor) && streams(taker)) continue;
    auto& rounds = values_[tensor];
    const auto value = rounds.find(graph_.Streams(tensor) ? round : 0);
    if (value == rounds.end()) continue;
    value->second.takers.erase(taker);
    if (value->second.takers.empty()) rounds.erase(value);
  }
}

std::set<EnsembleTensors::Round> EnsembleTensors::Rounds() const {
  std::set<Round> rounds;
  for (const auto& [tensor, values] : values_) {
    if (!graph_.Streams(tensor)) continue;
    for (const auto& [round, value] : values) rounds.insert(round);
  }
  return rounds;
}

const EnsembleTensors::Value* EnsembleTensors::Find(const std::string& tensor, Round round) const {
  const auto rounds = values_.find(tensor);
  if (rounds == values_.end()) return nullptr;
  const auto value = rounds->second.find(graph_.Streams(tensor) ? round : 0);
  return value == rounds->second.end() ? nullptr : &value->second;
}

}  // namespace inflight::serving
