// SPDX-License-Identifier: Apache-2.0
#include "serving/core/run_model.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "serving/core/prompt_task.h"
#include "serving/core/response_cache.h"

namespace inflight::serving {
namespace {

int64_t NowNs() { return Clock::System().NowNs(); }

ResponseHandler ObservingFirstResponse(Model& model, int64_t received_ns, ResponseHandler handler) {
  return [&statistics = model.statistics(), received_ns, is_first = true,
          handler = std::move(handler)](Response response) mutable {
    if (std::exchange(is_first, false) && response.status.ok()) {
      statistics.ObserveFirstResponse(NowNs() - received_ns);
    }
    handler(std::move(response));
  };
}

ResponseHandler Traced(const Model& model, const Request& request, ResponseHandler handler) {
  const Trace& trace = request.trace;
  trace.SetModel(model.name(), model.version(), request.id);
  trace.Mark("REQUEST_START", request.received_ns);
  trace.AddTensors("TENSOR_QUEUE_INPUT", request.inputs);
  return [trace, handler = std::move(handler)](Response response) {
    trace.AddTensors("TENSOR_BACKEND_OUTPUT", response.outputs);
    if (response.is_final) trace.Mark("REQUEST_END");
    handler(std::move(response));
  };
}

// Keeps a successful response that is the only one and whole.
ResponseHandler Inserting(Model& model, const Identity& client, std::string key, int64_t lookup_ns,
                          ResponseHandler handler) {
  return [&model, cache = model.response_cache(), client, key = std::move(key), lookup_ns,
          is_first = true, handler = std::move(handler)](Response response) mutable {
    const bool is_only = std::exchange(is_first, false) && response.is_final;
    const int64_t started_ns = NowNs();
    const bool is_whole = response.status.ok() && !response.is_cut_short;
    if (is_only && is_whole && !response.outputs.empty()) {
      cache->Insert(client, key, response);
    }
    if (response.is_final) model.statistics().CacheMissed(lookup_ns + NowNs() - started_ns);
    handler(std::move(response));
  };
}

// An adapter is another thing once its files or the weights of its id have changed, which neither
// inputs nor parameters tell.
bool HasAdapter(const Request& request) {
  return request.parameters.contains("lora_name") || request.FindInput("lora_task_id") != nullptr;
}

// Answers from the cache, or gives back the handler to run the model with.
ResponseHandler Cached(Model& model, const Request& request, ResponseHandler handler) {
  const int64_t started_ns = NowNs();
  std::string key = ResponseCache::KeyOf(model.cache_prefix(), request);
  const auto found = model.response_cache()->Find(key);
  const int64_t ended_ns = NowNs();
  if (found == nullptr) {
    return Inserting(model, request.identity(), std::move(key), ended_ns - started_ns,
                     std::move(handler));
  }
  request.trace.Mark("QUEUE_START", started_ns);
  model.statistics().RequestCached(request.received_ns, ended_ns - started_ns, ended_ns);
  handler({.model_name = model.name(),
           .model_version = model.version(),
           .id = request.id,
           .status = {},
           .outputs = found->outputs,
           .parameters = found->parameters,
           .is_final = true});
  return nullptr;
}

}  // namespace

void RunModel(Model& model, Request request, ResponseHandler handler) {
  if (model.statistics().keeps_first_response()) {
    handler = ObservingFirstResponse(model, request.received_ns, std::move(handler));
  }
  if (request.trace) handler = Traced(model, request, std::move(handler));
  if (model.response_cache() != nullptr && request.generation == nullptr && !HasAdapter(request) &&
      !request.parameters.contains(kPromptTask)) {
    handler = Cached(model, request, std::move(handler));
    if (handler == nullptr) return;
  }
  model.Infer(std::move(request), std::move(handler));
}

void TraceStep(const Trace& parent, const Model& step, const std::string& request_id,
               const RequestSpan& span) {
  if (!parent) return;
  const Trace trace = parent.Child();
  trace.SetModel(step.name(), step.version(), request_id);
  trace.Mark("REQUEST_START", span.received_ns);
  trace.AddSpan(span);
  trace.Mark("REQUEST_END", span.finished_ns);
}

}  // namespace inflight::serving
