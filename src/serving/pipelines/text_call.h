// SPDX-License-Identifier: Apache-2.0
// A request to a model that answers at once with one response: runs the work where its size says
// (inline, or on the text pool), counts it, and turns errors into responses.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/worker_pool.h"
#include "serving/core/generation.h"
#include "serving/core/model.h"

namespace inflight::serving {

// Making a guide is work as of so long a text.
inline constexpr size_t kLongWorkBytes = kLongTextBytes + 1;

inline WorkerPool::Length LengthOf(size_t text_bytes) {
  return text_bytes > kLongTextBytes ? WorkerPool::Length::kLong : WorkerPool::Length::kShort;
}

// For the time that texts of so many bytes in all are tokenized; texts that are short count for
// nothing beside the body that brought them. kResourceExhausted where there is no room.
Result<MemoryCharge> ChargeTokenizing(const Request& request, size_t text_bytes);

// Calls `work` with the request; its tensors become the response. `pool` null = inline, else a task
// of this length.
using TextWork = std::function<Result<std::vector<Tensor>>(const Request&)>;
void RunTextCall(Model& model, WorkerPool* pool, Clock& clock, Request request,
                 ResponseHandler handler, TextWork work,
                 WorkerPool::Length length = WorkerPool::Length::kShort);

}  // namespace inflight::serving
