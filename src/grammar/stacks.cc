// SPDX-License-Identifier: Apache-2.0
#include "grammar/stacks.h"

#include <algorithm>

namespace inflight::grammar {
namespace {

// A new stack at the end of `out`. Left out where the depth of its frames leaves it no way to end.
void AddStack(const Automaton& automaton, Stack stack, size_t begin, const FramePool& pool,
              std::vector<Stack>& out, StepEnds& ends) {
  const uint32_t depth = pool[stack.frame].depth + automaton.state(stack.state).depth;
  if (depth > kMaxStackDepth) return;
  ends.depth = std::max(ends.depth, depth);
  if (std::find(out.begin() + static_cast<ptrdiff_t>(begin), out.end(), stack) == out.end()) {
    out.push_back(stack);
  }
}

}  // namespace

FramePool::FramePool() {
  frames_.resize(
      2, {.state = kNoState, .below = kBottom, .youngest = kBottom, .older = kBottom, .depth = 0});
}

FrameId FramePool::Push(uint32_t state, FrameId below) {
  for (FrameId id = frames_[below].youngest; id != kBottom; id = frames_[id].older) {
    if (frames_[id].state == state) return id;
  }
  const auto id = static_cast<FrameId>(frames_.size());
  frames_.push_back({.state = state,
                     .below = below,
                     .youngest = kBottom,
                     .older = frames_[below].youngest,
                     .depth = frames_[below].depth + 1});
  frames_[below].youngest = id;
  return id;
}

void FramePool::CutTo(size_t size) {
  while (frames_.size() > size) {
    const Frame& last = frames_.back();
    frames_[last.below].youngest = last.older;
    frames_.pop_back();
  }
}

bool AddClosure(const Automaton& automaton, Stack stack, size_t begin, FramePool& pool,
                std::vector<Stack>& out, StepEnds& ends) {
  size_t next = out.size();
  AddStack(automaton, stack, begin, pool, out, ends);
  for (; next < out.size(); ++next) {
    if (out.size() - begin > kMaxStacks) return false;
    const auto [state_id, frame] = out[next];
    const Automaton::State& state = automaton.state(state_id);
    if (state.has_calls) {
      for (const Automaton::Call& call : automaton.calls(state_id)) {
        const Automaton::State& target = automaton.state(call.target);
        const uint32_t depth = pool[frame].depth + target.depth;  // once it has returned
        if (depth > kMaxStackDepth) continue;
        ends.depth = std::max(ends.depth, depth);
        // A call that is the last of its rule returns where the rule does.
        const bool is_last = target.is_end;
        const FrameId above = is_last ? frame : pool.Push(call.target, frame);
        AddStack(automaton, {call.start, above}, begin, pool, out, ends);
      }
    }
    if (!state.is_final) continue;
    if (frame == kBottom) {
      ends.is_whole = true;
    } else if (frame == kUnknown) {
      ends.is_returned = true;
    } else {
      AddStack(automaton, {pool[frame].state, pool[frame].below}, begin, pool, out, ends);
    }
  }
  return true;
}

void DropStacksWithoutBytes(const Automaton& automaton, size_t begin, std::vector<Stack>& out) {
  const auto first = out.begin() + static_cast<ptrdiff_t>(begin);
  const auto rest = std::remove_if(first, out.end(), [&](const Stack& stack) {
    return automaton.state(stack.state).num_edges == 0;
  });
  out.erase(rest, out.end());
}

bool StepSet(const Automaton& automaton, uint8_t byte, size_t begin, size_t end, FramePool& pool,
             std::vector<Stack>& out, StepEnds& ends) {
  const size_t first = out.size();
  for (size_t i = begin; i < end; ++i) {
    const uint32_t target = automaton.Next(out[i].state, byte);
    if (target == kNoState) continue;
    if (!AddClosure(automaton, {target, out[i].frame}, first, pool, out, ends)) return false;
  }
  DropStacksWithoutBytes(automaton, first, out);
  return true;
}

}  // namespace inflight::grammar
