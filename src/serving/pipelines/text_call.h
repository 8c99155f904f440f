// SPDX-License-Identifier: Apache-2.0
// A request to a model that answers at once with one response: runs the work where its size says
// (inline, or on the text pool), counts it, and turns errors into responses.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "base/client.h"
#include "base/clock.h"
#include "base/worker_pool.h"
#include "serving/core/generation.h"
#include "serving/core/model.h"
#include "serving/llm/llm_call.h"

namespace inflight::serving {

// Making a guide is work as of so long a text.
inline constexpr size_t kLongWorkBytes = kLongTextBytes + 1;

inline WorkerPool::Length LengthOf(size_t text_bytes) {
  return text_bytes > kLongTextBytes ? WorkerPool::Length::kLong : WorkerPool::Length::kShort;
}

// For the time that texts of so many bytes in all are tokenized; texts that are short count for
// nothing beside the body that brought them. kResourceExhausted where there is no room.
Result<MemoryCharge> ChargeTokenizing(const Request& request, size_t text_bytes);

// Begins a call, which has `request()` and `Fail(Status)`: `run(call)` at once where its texts are
// short and no file is read for it, else on the pool, with its texts charged.
template <typename Call, typename Run>
void BeginCall(std::shared_ptr<Call> call, size_t text_bytes, bool has_to_read, WorkerPool& pool,
               Run run) {
  if (text_bytes <= kInlineTextBytes && !has_to_read) return run(call);
  const void* const owner = OwnerOf(call->request().client, call->request().memory);
  auto task = [call = std::move(call), text_bytes, run = std::move(run)] {
    try {
      const auto tokenizing = ChargeTokenizing(call->request(), text_bytes);
      tokenizing.ok() ? run(call) : call->Fail(tokenizing.status());
    } catch (const std::exception& e) {  // such as bad_alloc: that request's trouble alone
      call->Fail(Caught("unexpected error", e));
    }
  };
  pool.Post(std::move(task), has_to_read ? WorkerPool::Length::kLong : LengthOf(text_bytes), owner);
}

// Calls `work` with the request; its tensors become the response. `pool` null = inline, else a task
// of this length.
using TextWork = std::function<Result<std::vector<Tensor>>(const Request&)>;
void RunTextCall(Model& model, WorkerPool* pool, Clock& clock, Request request,
                 ResponseHandler handler, TextWork work,
                 WorkerPool::Length length = WorkerPool::Length::kShort);

}  // namespace inflight::serving
