// SPDX-License-Identifier: Apache-2.0
// Typed tensor data of a request (InferTensorContents) as the bytes that models read.
#pragma once

#include <string>
#include <string_view>

#include "grpc_service.pb.h"
#include "inflight/status.h"
#include "serving/tensors/tensor.h"

namespace inflight::kserve_grpc {

// Which field must be set for which datatype: docs/reference/protocol/common.md, "Datatypes". 8-
// and 16-bit integers are the low bytes of theirs. The number of elements is not compared with a
// shape here. kInvalidArgument: no field, two fields, or another datatype's field.
Result<std::string> TensorBytes(const ::inference::InferTensorContents& contents,
                                serving::DataType datatype, std::string_view input_name,
                                std::string_view model_name);

// What is said when an input has neither contents nor an entry of raw_input_contents.
Status MissingData(std::string_view input_name, std::string_view model_name);

}  // namespace inflight::kserve_grpc
