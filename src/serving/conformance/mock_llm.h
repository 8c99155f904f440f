// SPDX-License-Identifier: Apache-2.0
// A language model without weights, kind `mock_llm` of the conformance backend: its tokens are its
// prompt, so that what carries them can be tested and timed without an engine
// (docs/reference/repositories.md, "Test models").
//
//   inputs      PROMPT BYTES [1,1], STREAM BOOL [1,1]
//   output      TEXT BYTES [1,-1]
//   parameters  REPETITION  responses to a streamed request, elements of TEXT otherwise (1)
//               DELAY       seconds before each response of a stream (0)
//               FAIL_LAST   true: a stream ends with an error
//               OUTPUT_0_DIM  true: TEXT has no element
//
// All streams advance in rounds on one thread, one response each where its time has come, as the
// step loop of an executor would send them; a round follows the one before at once where there is
// no DELAY.
#pragma once

#include <memory>

#include "model_config.pb.h"
#include "serving/core/executable.h"

namespace inflight::serving {

std::unique_ptr<Executable> MakeMockLlm(const ::inference::ModelConfig& config);

}  // namespace inflight::serving
