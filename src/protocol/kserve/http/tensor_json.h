// SPDX-License-Identifier: Apache-2.0
// Tensors as JSON data (docs/reference/protocol/http.md, "JSON").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "inflight/status.h"
#include "json/json_reader.h"
#include "json/json_writer.h"
#include "serving/tensors/tensor.h"

namespace inflight::kserve_http {

// The most that a tensor takes for each byte of its JSON: an FP64 of "0,".
inline constexpr size_t kTensorBytesPerJsonByte = 4;

// Elements of a shape, all of whose dimensions are >= 0. kInvalidArgument on overflow, of elements
// or of their bytes.
Result<uint64_t> NumElements(std::string_view name, serving::DataType type,
                             std::span<const int64_t> shape);

// kInvalidArgument naming both sizes and --http-max-input-size.
Status CheckInputSize(std::string_view what, uint64_t num_bytes, uint64_t max_bytes);

// A tensor from the scalars of a (nested or flat) JSON array. Integers too wide for the type lose
// their high bits, as in Triton. Errors carry Triton's texts and classes: kInternal for wrong JSON
// types and counts, kInvalidArgument for FP16 and BF16, depth and size.
Result<serving::Tensor> TensorFromArray(std::string name, serving::DataType type,
                                        std::vector<int64_t> shape, const json::Value& data,
                                        uint64_t max_bytes);
// A tensor of one element; the shape's product is one.
Result<serving::Tensor> TensorFromScalar(std::string name, serving::DataType type,
                                         std::vector<int64_t> shape, const json::Value& value,
                                         uint64_t max_bytes);

// The elements, separated by commas, without brackets. kInvalidArgument for FP16 and BF16;
// kInternal when a model's BYTES tensor is framed wrongly.
Status WriteElements(const serving::Tensor& tensor, json::Writer& out);

}  // namespace inflight::kserve_http
