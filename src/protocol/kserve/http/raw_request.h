// SPDX-License-Identifier: Apache-2.0
// A body that is the data of the model's only input (docs/reference/protocol/http.md).
#pragma once

#include <memory>
#include <string>

#include "inflight/status.h"
#include "model_config.pb.h"
#include "serving/tensors/tensor.h"

namespace inflight::kserve_http {

// Name and type from the configuration; the shape from it and the body's size. kInvalidArgument
// when the model has several inputs or the shape cannot be deduced.
Result<serving::Tensor> RawInput(const ::inference::ModelConfig& config,
                                 const std::shared_ptr<const std::string>& body);

}  // namespace inflight::kserve_http
