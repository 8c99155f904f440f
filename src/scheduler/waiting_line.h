// SPDX-License-Identifier: Apache-2.0
// Sequences without blocks, in the order in which they are admitted: new ones and paused ones.
// Intrusive, so that joining allocates nothing.
#pragma once

#include "scheduler/sequence_state.h"

namespace inflight::scheduler {

class WaitingLine {
 public:
  // Looks for the place from the end: most arrivals belong there.
  void Insert(SequenceState* sequence) {
    SequenceState* after = last_;
    while (after != nullptr && ComesBefore(*sequence, *after)) after = after->previous;
    sequence->previous = after;
    sequence->next = after != nullptr ? after->next : first_;
    (sequence->next != nullptr ? sequence->next->previous : last_) = sequence;
    (after != nullptr ? after->next : first_) = sequence;
    ++size_;
  }

  void Erase(SequenceState* sequence) {
    (sequence->previous != nullptr ? sequence->previous->next : first_) = sequence->next;
    (sequence->next != nullptr ? sequence->next->previous : last_) = sequence->previous;
    sequence->previous = sequence->next = nullptr;
    --size_;
  }

  SequenceState* first() const { return first_; }
  int size() const { return size_; }

 private:
  SequenceState* first_ = nullptr;
  SequenceState* last_ = nullptr;
  int size_ = 0;
};

}  // namespace inflight::scheduler
