// SPDX-License-Identifier: Apache-2.0
// Traces as the JSON of trace files (docs/tracing.md, "A file").
#pragma once

#include <string>

#include "serving/trace/trace.h"

namespace inflight::serving {

// The elements of a tensor between commas; those of BYTES in quotation marks.
std::string TraceText(const Tensor& tensor);

// Elements of a file's array, between commas: who ran, then its events in order of time, then its
// tensors, for each model.
std::string TraceJson(const FinishedTrace& trace);

}  // namespace inflight::serving
