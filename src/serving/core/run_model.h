// SPDX-License-Identifier: Apache-2.0
// A model's run for a request that came from outside or from an ensemble, with what is the same for
// all models around it: response cache, trace, time to the first response.
#pragma once

#include <string>

#include "serving/core/model.h"

namespace inflight::serving {

// As model.Infer.
void RunModel(Model& model, Request request, ResponseHandler handler);

// In a trace, the run of a step that had no request of its own, after it ended.
void TraceStep(const Trace& parent, const Model& step, const std::string& request_id,
               const RequestSpan& span);

}  // namespace inflight::serving
