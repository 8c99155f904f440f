// SPDX-License-Identifier: Apache-2.0
// Tensors between protocols and models. The type is the contract's, so that a plug-in and the
// server parse the same requests with the same code.
#pragma once

#include "contract/tensor.h"

namespace inflight::serving {

using contract::DataType;
using contract::DataTypeFromName;
using contract::DataTypeName;
using contract::DataTypeSize;
using contract::Tensor;

}  // namespace inflight::serving
