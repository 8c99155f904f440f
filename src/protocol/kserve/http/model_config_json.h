// SPDX-License-Identifier: Apache-2.0
// A ModelConfig message as JSON the way Triton prints it (docs/reference/protocol/http.md,
// "Configurations"), which protobuf's own printer cannot: 64-bit integers are numbers, not strings.
#pragma once

#include <string>

#include "model_config.pb.h"

namespace inflight::kserve_http {

std::string ModelConfigJson(const ::inference::ModelConfig& config);

}  // namespace inflight::kserve_http
