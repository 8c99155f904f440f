// SPDX-License-Identifier: Apache-2.0
// What the other ranks of a group answer while a model is loaded: objects with a code, a message,
// and what was asked.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "comm/rendezvous.h"
#include "inflight/status.h"

namespace inflight {

nlohmann::json ToJson(const Status& status);

// Of all ranks but the leader, in their order. The first error is the result, once all have
// answered.
Result<std::vector<nlohmann::json>> AnswersOf(comm::Group& group);

}  // namespace inflight
