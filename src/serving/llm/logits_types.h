// SPDX-License-Identifier: Apache-2.0
// As what a model sends logits: the datatype that its file declares, which templates from 0.17 on
// leave open (`${logits_datatype}`).
#pragma once

#include <string_view>

#include "contract/tensor.h"
#include "inflight/status.h"
#include "model_config.pb.h"

namespace inflight::serving {

struct LogitsTypes {
  contract::DataType context = contract::DataType::kFp32;
  contract::DataType generation = contract::DataType::kFp32;
};

// Of the outputs context_logits and generation_logits. kInvalidArgument names one that is declared
// as something that logits are not sent as.
Result<LogitsTypes> LogitsTypesOf(const ::inference::ModelConfig& config);

// The same of one output, whatever its name is.
Result<contract::DataType> LogitsTypeOf(const ::inference::ModelConfig& config,
                                        const ::inference::ModelOutput& output);

}  // namespace inflight::serving
