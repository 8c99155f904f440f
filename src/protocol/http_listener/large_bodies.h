// SPDX-License-Identifier: Apache-2.0
// Which bodies are parsed off the I/O threads, on threads `http-body` of their front end: a second
// of JSON must not hold up the streams of an I/O thread, nor must many bodies that come at once, of
// which each takes milliseconds.
#pragma once

#include <cstddef>

#include "base/worker_pool.h"

namespace inflight::http_listener {

inline constexpr size_t kLargeBodyBytes = 64 * 1024;  // from here on: more than one read brings
// From here on they go in turns by client, and keep a thread free for the others.
inline constexpr size_t kLongBodyBytes = 4 * 1024 * 1024;
inline constexpr int kBodyThreads = 2;

inline WorkerPool::Length LengthOfBody(size_t bytes) {
  return bytes >= kLongBodyBytes ? WorkerPool::Length::kLong : WorkerPool::Length::kShort;
}

}  // namespace inflight::http_listener
