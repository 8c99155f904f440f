// SPDX-License-Identifier: Apache-2.0
#include "grammar/state_classes.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>

namespace inflight::grammar {
namespace {

// Of refinement. Past these, each state is a class of its own.
constexpr uint32_t kMaxStates = 1U << 18;
constexpr uint64_t kMaxSteps = 10'000'000;  // states that are looked at

class Refinement {
 public:
  explicit Refinement(const Automaton& automaton)
      : automaton_(automaton), class_of_(automaton.num_states()) {
    FindPredecessors();
  }

  StateClasses Run(uint32_t num_rounds) {
    std::vector<uint32_t> changed(automaton_.num_states());
    for (uint32_t id = 0; id < changed.size(); ++id) changed[id] = id;
    Split(
        changed, [&](uint32_t id) { return Shape(id); }, /*is_first=*/true);
    uint64_t steps = 0;
    for (uint32_t round = 0; round < num_rounds && !changed.empty(); ++round) {
      std::vector<uint32_t> dirty = PredecessorsOf(changed);
      steps += changed.size() + dirty.size() + sizes_.size() / 4;
      if (steps > kMaxSteps) return Apart();
      changed = Split(
          std::move(dirty), [&](uint32_t id) { return Successors(id); },
          /*is_first=*/false);
    }
    return {std::move(class_of_), static_cast<uint32_t>(sizes_.size())};
  }

  StateClasses Apart() {
    std::iota(class_of_.begin(), class_of_.end(), 0);
    return {std::move(class_of_), automaton_.num_states()};
  }

 private:
  static void Append(std::string& out, uint32_t value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  // Without what it leads to; but what may be reached without a byte must be the very same.
  std::string Shape(uint32_t id) const {
    const Automaton::State& state = automaton_.state(id);
    std::string shape(1, state.is_final ? 'F' : '-');
    Append(shape, state.depth);
    for (const ByteEdge& edge : automaton_.edges(state)) {
      shape += static_cast<char>(edge.first);
      shape += static_cast<char>(edge.last);
    }
    for (const Automaton::Call& call : automaton_.calls(id)) {
      Append(shape, call.start);
      Append(shape, call.may_be_empty ? call.target : kNoState);
    }
    return shape;
  }

  std::string Successors(uint32_t id) const {
    std::string classes;
    for (const ByteEdge& edge : automaton_.edges(automaton_.state(id))) {
      Append(classes, class_of_[edge.target]);
    }
    for (const Automaton::Call& call : automaton_.calls(id))
      Append(classes, class_of_[call.target]);
    return classes;
  }

  // Parts the states, which are those of their classes that may differ from the others of them, by
  // their signatures. Returns those whose class changed: where all of a class are given, the
  // largest part stays what it was.
  template <typename Signature>
  std::vector<uint32_t> Split(std::vector<uint32_t> states, const Signature& signature,
                              bool is_first) {
    std::unordered_map<std::string, std::vector<uint32_t>> parts;
    std::vector<uint32_t> given(sizes_.size(), 0);  // [classes]
    for (const uint32_t id : states) {
      std::string key = signature(id);
      if (!is_first) {
        Append(key, class_of_[id]);
        ++given[class_of_[id]];
      }
      parts[std::move(key)].push_back(id);
    }
    std::vector<const std::vector<uint32_t>*> largest(sizes_.size(), nullptr);
    for (const auto& [key, part] : parts) {
      if (is_first) continue;
      const uint32_t old = class_of_[part[0]];
      if (given[old] < sizes_[old]) continue;
      if (largest[old] == nullptr || part.size() > largest[old]->size()) largest[old] = &part;
    }
    std::vector<uint32_t> changed;
    for (const auto& [key, part] : parts) {
      if (!is_first) {
        const uint32_t old = class_of_[part[0]];
        if (largest[old] == &part) continue;
        sizes_[old] -= static_cast<uint32_t>(part.size());
      }
      for (const uint32_t id : part) class_of_[id] = static_cast<uint32_t>(sizes_.size());
      sizes_.push_back(static_cast<uint32_t>(part.size()));
      changed.insert(changed.end(), part.begin(), part.end());
    }
    return changed;
  }

  template <typename Visit>
  void ForEachEdge(const Visit& visit) const {
    for (uint32_t id = 0; id < automaton_.num_states(); ++id) {
      for (const ByteEdge& edge : automaton_.edges(automaton_.state(id))) visit(id, edge.target);
      for (const Automaton::Call& call : automaton_.calls(id)) visit(id, call.target);
    }
  }

  void FindPredecessors() {
    first_predecessor_.assign(automaton_.num_states() + 1, 0);
    ForEachEdge([&](uint32_t, uint32_t target) { ++first_predecessor_[target + 1]; });
    for (size_t i = 1; i < first_predecessor_.size(); ++i) {
      first_predecessor_[i] += first_predecessor_[i - 1];
    }
    predecessors_.resize(first_predecessor_.back());
    std::vector<uint32_t> next(first_predecessor_.begin(), first_predecessor_.end() - 1);
    ForEachEdge([&](uint32_t id, uint32_t target) { predecessors_[next[target]++] = id; });
  }

  std::vector<uint32_t> PredecessorsOf(const std::vector<uint32_t>& states) const {
    std::vector<uint32_t> found;
    for (const uint32_t id : states) {
      found.insert(found.end(), predecessors_.begin() + first_predecessor_[id],
                   predecessors_.begin() + first_predecessor_[id + 1]);
    }
    std::ranges::sort(found);
    found.erase(std::ranges::unique(found).begin(), found.end());
    return found;
  }

  const Automaton& automaton_;
  std::vector<uint32_t> class_of_;           // [states]
  std::vector<uint32_t> sizes_;              // [classes]
  std::vector<uint32_t> first_predecessor_;  // [states + 1] of predecessors_
  std::vector<uint32_t> predecessors_;
};

}  // namespace

StateClasses ClassesWithin(const Automaton& automaton, uint32_t num_bytes) {
  Refinement refinement(automaton);
  return automaton.num_states() > kMaxStates ? refinement.Apart() : refinement.Run(num_bytes);
}

}  // namespace inflight::grammar
