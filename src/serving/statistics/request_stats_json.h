// SPDX-License-Identifier: Apache-2.0
// Request statistics as a line of JSON, in the shape that TensorRT-LLM's executor gives them
// (toJsonStr of RequestStatsPerIteration, cpp/tensorrt_llm/executor/jsonSerialization.cpp of
// github.com/NVIDIA/TensorRT-LLM): members in alphabetical order, stages by name.
#pragma once

#include <string>

#include "inflight/request_stats.h"

namespace inflight::serving {

// {"iter":7,"requestStats":[{"allocNewBlocksPerRequest":1,...,"id":3,...,"stage":"QUEUED"}]}
//
// `sequenceIndex` is ours: there a further sequence of a request has an id of its own.
// `disServingStats` is null, since no request is served by two executors.
std::string RequestStatsJson(const RequestStatsPerIteration& record);

}  // namespace inflight::serving
