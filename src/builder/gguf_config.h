// SPDX-License-Identifier: Apache-2.0
// The metadata of a GGUF file as a model's configuration, by the table of its family
// (model/families/).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "artifact/gguf_model.h"
#include "model/config.h"

namespace inflight::builder {

// The dtype is left to the caller. What tensors say stands for fields that the metadata lacks: the
// vocabulary's size, biases, a head of its own, Llama 3's rope factors. Ids that end an answer are
// those of the entries eos, eot and eom, and of control tokens that chat models end their turn
// with.
//
// Errors name file, key and value. An architecture that is not supported, a key under its name that
// nothing reads and factors that follow no known rule are kUnimplemented.
Result<model::ModelConfig> ReadGgufConfig(const artifact::GgufModel& model);

}  // namespace inflight::builder
