// SPDX-License-Identifier: Apache-2.0
// States of an automaton that no token tells apart: any text of so many bytes does the same in
// them. A string of up to a thousand characters has thousands of states, and but for the last ones
// no token is long enough to meet the end. What is found for one state of a class holds for all.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/automaton.h"

namespace inflight::grammar {

struct StateClasses {
  std::vector<uint32_t> class_of;  // [states]
  uint32_t num_classes = 0;
};

// By refinement of partitions (Moore, 1956), as many rounds as bytes.
StateClasses ClassesWithin(const Automaton& automaton, uint32_t num_bytes);

}  // namespace inflight::grammar
