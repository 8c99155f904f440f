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

// Elements of a shape. kInvalidArgument for a negative dimension, and on overflow, of elements or
// of their bytes.
Result<uint64_t> NumElements(std::string_view name, serving::DataType type,
                             std::span<const int64_t> shape);

// kInvalidArgument naming both sizes and --http-max-input-size; of the JSON of a request.
Status CheckJsonSize(uint64_t num_bytes, uint64_t max_bytes);
// The same of tensors.
Status CheckInputSize(std::string_view what, uint64_t num_bytes, uint64_t max_bytes);

// How much an input may have, beside what those before it have where the limit is of all together.
struct InputLimit {
  uint64_t max_bytes = 0;
  uint64_t used_bytes = 0;
};

// A tensor from the scalars of a (nested or flat) JSON array. Integers too wide for the type lose
// their high bits, as in Triton. Errors carry Triton's texts and classes: kInternal for wrong JSON
// types and counts, kInvalidArgument for FP16 and BF16, depth and size.
Result<serving::Tensor> TensorFromArray(std::string name, serving::DataType type,
                                        std::vector<int64_t> shape, const json::Value& data,
                                        const InputLimit& limit);
// A tensor of one element; the shape's product is one.
Result<serving::Tensor> TensorFromScalar(std::string name, serving::DataType type,
                                         std::vector<int64_t> shape, const json::Value& value,
                                         const InputLimit& limit);

// The most bytes that the elements take as JSON, with their commas: several for each of the tensor.
size_t MostJsonBytes(const serving::Tensor& tensor);
// What an answer's JSON may take beside its tensors without being charged for.
inline constexpr size_t kUnchargedJsonBytes = 64 * 1024;

// The elements, separated by commas, without brackets. kInvalidArgument for FP16 and BF16;
// kInternal when a model's BYTES tensor is framed wrongly.
Status WriteElements(const serving::Tensor& tensor, json::Writer& out);

}  // namespace inflight::kserve_http
