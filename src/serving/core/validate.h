// SPDX-License-Identifier: Apache-2.0
// Checks of a request against a model's configuration, before the model sees it: names, datatypes,
// shapes, batch size, byte sizes. Texts: docs/reference/protocol/common.md, "Validation".
#pragma once

#include "model_config.pb.h"
#include "serving/core/request.h"

namespace inflight::serving {

// "[request id: X] " before the message, as clients compare it.
Status WithRequestId(const Status& status, const Request& request);

Status ValidateRequest(const ::inference::ModelConfig& config, const Request& request);

}  // namespace inflight::serving
