// SPDX-License-Identifier: Apache-2.0
#include "grammar/state_classes.h"

#include <gtest/gtest.h>

#include "grammar/automaton.h"

namespace inflight::grammar {
namespace {

// a{0,100}: the state behind i of them.
struct Chain {
  explicit Chain(uint32_t count) {
    Grammar grammar;
    const NodeId body = grammar.Repeat(grammar.Char('a'), 0, count);
    grammar.root = grammar.AddRule("chain", body);
    Budget budget;
    automaton = *CompileAutomaton(grammar, budget);
    for (uint32_t id = automaton.start(); id != kNoState; id = automaton.Next(id, 'a'))
      states.push_back(id);
  }
  Automaton automaton;
  std::vector<uint32_t> states;
};

TEST(StateClassesTest, StatesFurtherFromTheEndThanATokenIsLongAreOne) {
  const Chain chain(100);
  ASSERT_EQ(chain.states.size(), 101U);
  const StateClasses classes = ClassesWithin(chain.automaton, 10);
  // The end, one to ten before it, and all from which ten bytes lead to a state that reads one
  // more.
  EXPECT_EQ(classes.num_classes, 12U);
  EXPECT_EQ(classes.class_of[chain.states[0]], classes.class_of[chain.states[89]]);
  EXPECT_NE(classes.class_of[chain.states[89]], classes.class_of[chain.states[90]]);
  EXPECT_NE(classes.class_of[chain.states[99]], classes.class_of[chain.states[100]]);
}

TEST(StateClassesTest, TokensThatReachTheEndTellAllApart) {
  const Chain chain(20);
  EXPECT_EQ(ClassesWithin(chain.automaton, 64).num_classes, 21U);
}

}  // namespace
}  // namespace inflight::grammar
