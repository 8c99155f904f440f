// SPDX-License-Identifier: Apache-2.0
// Rules for configurations of models, beyond the syntax that model_config.h reads.
#pragma once

#include <string>

#include "inflight/status.h"
#include "model_config.pb.h"

namespace inflight::serving {

// Rules that hold for every model; messages name it. The first make the configuration unusable as a
// whole, so that the model is not even registered; the others make its versions fail.
Status ValidateModelConfig(const ::inference::ModelConfig& config);
Status ValidateTensors(const ::inference::ModelConfig& config);
// Of a normalised configuration.
Status ValidateInstances(const ::inference::ModelConfig& config);
// Why a model with `response_cache` cannot be cached.
Status NoCacheOf(const std::string& model, const std::string& what);

}  // namespace inflight::serving
