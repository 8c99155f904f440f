// SPDX-License-Identifier: Apache-2.0
// Where texts stand in an automaton: a set of stacks, one for each way to read the text so far.
//
// A stack is a state and the frames that it returns to. Frames are shared: each knows the one below
// it and lies once in a pool, so that equal stacks have equal numbers. The pool is itself a stack:
// what was pushed last is cut off first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/automaton.h"

namespace inflight::grammar {

using FrameId = uint32_t;

// The end of the text stands below it.
inline constexpr FrameId kBottom = 0;
// What stands below it is not known: of a stack that stands for all that have its state.
inline constexpr FrameId kUnknown = 1;

inline constexpr size_t kMaxStacks = 256;  // of one set

class FramePool {
 public:
  FramePool();

  struct Frame {
    uint32_t state;  // to go on in
    FrameId below;
    FrameId youngest;  // frame that stands on this one; kBottom: none does
    FrameId older;     // frame on the same one that was pushed before
    uint32_t depth;    // frames below
  };

  FrameId Push(uint32_t state, FrameId below);
  const Frame& operator[](FrameId id) const { return frames_[id]; }
  size_t size() const { return frames_.size(); }
  void CutTo(size_t size);

 private:
  std::vector<Frame> frames_;
};

struct Stack {
  uint32_t state;
  FrameId frame;

  bool operator==(const Stack&) const = default;
};

// What else a step leads to.
struct StepEnds {
  bool is_whole = false;     // the text may end here
  bool is_returned = false;  // a stack returned to what is not known
  // Of all stacks on the way, the frames below and those that the way to an end needs.
  uint32_t depth = 0;
};

// Appends to `out` the stacks that a byte can be read from and that `stack` leads to without one,
// each once among those from `out[begin]` on. False: they are more than kMaxStacks.
bool AddClosure(const Automaton& automaton, Stack stack, size_t begin, FramePool& pool,
                std::vector<Stack>& out, StepEnds& ends);

// To close a set: of a stack that leads to others without a byte the bytes' part stays, or nothing.
void DropStacksWithoutBytes(const Automaton& automaton, size_t begin, std::vector<Stack>& out);

// Appends to `out` where `byte` leads from stacks [begin, end) of it, which may be none. False:
// they are more than kMaxStacks.
bool StepSet(const Automaton& automaton, uint8_t byte, size_t begin, size_t end, FramePool& pool,
             std::vector<Stack>& out, StepEnds& ends);

// The same; nearly always there is one stack, and bytes alone lead on from it.
inline bool Step(const Automaton& automaton, uint8_t byte, size_t begin, size_t end,
                 FramePool& pool, std::vector<Stack>& out, StepEnds& ends) {
  if (end - begin != 1) return StepSet(automaton, byte, begin, end, pool, out, ends);
  const auto [state, frame] = out[begin];
  const uint32_t target = automaton.Next(state, byte);
  if (target == kNoState) return true;
  const Automaton::State& next = automaton.state(target);
  if (!next.is_plain) return StepSet(automaton, byte, begin, end, pool, out, ends);
  const uint32_t depth = pool[frame].depth + next.depth;
  if (depth > kMaxStackDepth) return true;
  ends.depth = std::max(ends.depth, depth);
  out.push_back({target, frame});
  return true;
}

}  // namespace inflight::grammar
