// SPDX-License-Identifier: Apache-2.0
// What a body asks -> the request that a model is given.
#pragma once

#include <cstdint>
#include <string>

#include "inflight/status.h"
#include "protocol/openai/body_fields.h"
#include "serving/core/generation.h"

namespace inflight::openai {

// How tokens are chosen and what of them is told, but for the prompt and the guide.
// `default_max_tokens` 0: what the sequence has room for. kInvalidArgument names the member.
Result<serving::Generation> MakeGeneration(const Asked& asked, const serving::TextModel& model,
                                           int default_max_tokens, uint64_t seed);

}  // namespace inflight::openai
