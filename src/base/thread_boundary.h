// SPDX-License-Identifier: Apache-2.0
// Where exceptions of a thread that serves everybody end: one that leaves a thread ends the
// process. Memory that such a thread does not find is the trouble of what it was doing, and of
// nothing else.
//
//   a loop      RunTurn: a turn that throws is dropped and logged, and the loop goes on
//   a result    StatusOf: what threw is a status, for those who wait
//
// Threads: any. Memory: RunTurn needs none; StatusOf waits for the few bytes of what it says.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/no_memory_left.h"
#include "inflight/status.h"

namespace inflight {

// Logs, as one line of `where`, that a turn of that thread ended by `what`; then waits 10 ms, so
// that a turn that is tried again and again leaves the machine to others.
void NoteDroppedTurn(const char* thread, const char* what, logging::Where where) noexcept;

// One turn of the loop of a thread, which the log names as `thread` (at most 15 bytes, as the
// system has them). False: it threw, and what it had not done yet is not done.
template <typename Turn>
bool RunTurn(const char* thread, Turn&& turn,
             logging::Where where = logging::Where::current()) noexcept {
  try {
    std::forward<Turn>(turn)();
    return true;
  } catch (const std::exception& e) {
    NoteDroppedTurn(thread, e.what(), where);
  } catch (...) {
    NoteDroppedTurn(thread, "not known", where);
  }
  return false;
}

// NoMemoryLeft(), as soon as there is memory for its words.
Status WaitForNoMemoryLeft() noexcept;

// What `work` returns, a Status. Where it throws: NoMemoryLeft() of a bad_alloc, else kInternal.
template <typename Work>
Status StatusOf(Work&& work) noexcept {
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    return WaitForNoMemoryLeft();
  } catch (const std::exception& e) {
    try {
      return Caught("an exception", e);
    } catch (const std::bad_alloc&) {
      return WaitForNoMemoryLeft();
    }
  }
}

}  // namespace inflight
