// SPDX-License-Identifier: Apache-2.0
// Sequences without blocks, in the order in which they are admitted: new ones and paused ones.
//
// A balanced tree within the sequences themselves: joining allocates nothing, and joining and
// leaving take the logarithm of the line's length wherever the place is, so that a client that
// fills the line with requests behind everybody's does not slow the step loop for others.
//
// What a sequence's order depends on does not change while it stands in the line.
#pragma once

#include <boost/intrusive/set.hpp>

#include "scheduler/sequence_state.h"

namespace inflight::scheduler {

class WaitingLine {
 public:
  // Behind those that it does not come before.
  void Insert(SequenceState* sequence) { line_.insert(*sequence); }
  void Erase(SequenceState* sequence) { line_.erase(line_.iterator_to(*sequence)); }

  SequenceState* first() const {
    return line_.empty() ? nullptr : const_cast<SequenceState*>(&*line_.begin());
  }
  auto begin() const { return line_.begin(); }  // in their order
  auto end() const { return line_.end(); }
  int size() const { return static_cast<int>(line_.size()); }

 private:
  struct Order {
    bool operator()(const SequenceState& a, const SequenceState& b) const {
      return ComesBefore(a, b);
    }
  };
  using Hook =
      boost::intrusive::member_hook<SequenceState, WaitingLineHook, &SequenceState::waiting_line>;
  boost::intrusive::multiset<SequenceState, Hook, boost::intrusive::compare<Order>> line_;
};

}  // namespace inflight::scheduler
