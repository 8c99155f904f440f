// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/text_call.h"

#include "base/status_macros.h"

namespace inflight::serving {
namespace {

// On the text pool nobody else would catch what is thrown.
Result<std::vector<Tensor>> Try(const TextWork& work, const Request& request) {
  try {
    return work(request);
  } catch (const std::exception& e) {  // such as bad_alloc: that request's trouble alone
    return Caught("unexpected error", e);
  }
}

void Run(Model& model, Clock& clock, const Request& request, const ResponseHandler& handler,
         const TextWork& work) {
  const int64_t started_ns = clock.NowNs();
  model.statistics().RequestStarted();
  request.trace.AddTensors("TENSOR_BACKEND_INPUT", request.inputs);
  Result<std::vector<Tensor>> outputs =
      request.cancel->cancelled() ? Cancelled("request was cancelled") : Try(work, request);
  const int64_t finished_ns = clock.NowNs();
  if (!outputs.ok()) {
    if (outputs.status().code() == StatusCode::kCancelled) {
      model.statistics().RequestCancelled(request.received_ns, finished_ns);
    } else {
      model.statistics().RequestFailed(ReasonOf(outputs.status()), request.received_ns,
                                       finished_ns);
    }
    return handler(FinalResponse(model, request, outputs.status()));
  }
  const RequestSpan span = {.received_ns = request.received_ns,
                            .compute_start_ns = started_ns,
                            .compute_input_end_ns = started_ns,
                            .compute_output_start_ns = finished_ns,
                            .finished_ns = finished_ns};
  model.statistics().RequestSucceeded(span);
  request.trace.AddSpan(span);
  Response response;
  response.model_name = model.name();
  response.model_version = model.version();
  response.id = request.id;
  response.outputs = std::move(*outputs);
  response.is_final = true;
  handler(std::move(response));
}

}  // namespace

Result<MemoryCharge> ChargeTokenizing(const Request& request, size_t text_bytes) {
  MemoryCharge charge(request.memory);
  if (text_bytes <= kInlineTextBytes) return charge;
  RETURN_IF_ERROR(charge.Resize(text_bytes * kTokenizingBytesPerByte));
  return charge;
}

void RunTextCall(Model& model, WorkerPool* pool, Clock& clock, Request request,
                 ResponseHandler handler, TextWork work, WorkerPool::Length length) {
  if (request.received_ns == 0) request.received_ns = clock.NowNs();
  model.statistics().RequestPending();
  if (pool == nullptr) return Run(model, clock, request, handler, work);
  const void* const owner = OwnerOf(request.client, request.memory);
  pool->Post([&model, &clock, request = std::move(request), handler = std::move(handler),
              work = std::move(work)] { Run(model, clock, request, handler, work); },
             length, owner);
}

}  // namespace inflight::serving
