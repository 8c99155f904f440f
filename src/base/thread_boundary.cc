// SPDX-License-Identifier: Apache-2.0
#include "base/thread_boundary.h"

#include <chrono>
#include <thread>

namespace inflight {
namespace {

constexpr std::chrono::milliseconds kPause{10};

}  // namespace

void NoteDroppedTurn(const char* thread, const char* what, logging::Where where) noexcept {
  try {
    logging::Error("a turn of a thread was dropped", {{"thread", thread}, {"error", what}}, where);
  } catch (const std::bad_alloc&) {  // of a long `what`: the log goes without
  }
  std::this_thread::sleep_for(kPause);
}

Status WaitForNoMemoryLeft() noexcept {
  while (true) {
    try {
      return NoMemoryLeft();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace inflight
