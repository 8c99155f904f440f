// SPDX-License-Identifier: Apache-2.0
// The items that a kept answer of /v1/responses was made from: those of the answers that it goes
// on from, with what these said, and its own input.
#pragma once

#include <string>
#include <string_view>

#include "inflight/status.h"
#include "protocol/openai/response_store.h"

namespace inflight::openai {

// kNotFound, about `field`.
Status NoSuchResponse(std::string_view field, const std::string& id);

// An array. `before`: the answer that is gone on from, empty where there is none; `input`: items,
// joined by commas.
std::string ItemsBehind(const StoredResponse& before, std::string_view input);

}  // namespace inflight::openai
