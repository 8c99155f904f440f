// SPDX-License-Identifier: Apache-2.0
// Datatypes of tensors as configurations of models name them.
#pragma once

#include "model_config.pb.h"
#include "serving/tensors/tensor.h"

namespace inflight::serving {

DataType FromProto(::inference::DataType type);
::inference::DataType ToProto(DataType type);

}  // namespace inflight::serving
