// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/logits_types.h"

#include <string>

#include "base/status_macros.h"
#include "contract/llm_response.h"
#include "serving/tensors/data_types.h"

namespace inflight::serving {

Result<contract::DataType> LogitsTypeOf(const ::inference::ModelConfig& config,
                                        const ::inference::ModelOutput& output) {
  const contract::DataType type = FromProto(output.data_type());
  if (contract::IsLogitsType(type)) return type;
  return InvalidArgument("model '" + config.name() + "': output '" + output.name() +
                         "': data_type: got " + ::inference::DataType_Name(output.data_type()) +
                         ", logits are sent as TYPE_FP32, TYPE_FP16 or TYPE_BF16");
}

Result<LogitsTypes> LogitsTypesOf(const ::inference::ModelConfig& config) {
  LogitsTypes types;
  for (const auto& output : config.output()) {
    if (output.name() == "context_logits") {
      ASSIGN_OR_RETURN(types.context, LogitsTypeOf(config, output));
    } else if (output.name() == "generation_logits") {
      ASSIGN_OR_RETURN(types.generation, LogitsTypeOf(config, output));
    }
  }
  return types;
}

}  // namespace inflight::serving
