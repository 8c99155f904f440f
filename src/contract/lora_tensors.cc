// SPDX-License-Identifier: Apache-2.0
#include "contract/lora_tensors.h"

#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "contract/tensor_values.h"

namespace inflight::contract {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
};

// Of two dimensions, or three whose first is 1.
Result<Matrix> MatrixOf(const Tensor& tensor) {
  const std::vector<int64_t>& shape = tensor.shape;
  if (shape.size() == 3 && shape[0] != 1)
    return InvalidArgument(tensor.name +
                           ": Expected batch dimension to be 1 for each lora request, "
                           "got shape " +
                           ShapeText(shape))
        .WithField(tensor.name);
  if (shape.size() != 2 && shape.size() != 3)
    return InvalidArgument("Invalid shape for " + tensor.name + " tensor: got " + ShapeText(shape) +
                           ", must have two dimensions, or three whose first is 1")
        .WithField(tensor.name);
  return Matrix{shape[shape.size() - 2], shape[shape.size() - 1]};
}

Result<LoraDType> DTypeOf(const Tensor& weights) {
  switch (weights.datatype) {
    case DataType::kFp16:
      return LoraDType::kFloat16;
    case DataType::kBf16:
      return LoraDType::kBFloat16;
    case DataType::kFp32:
      return LoraDType::kFloat32;
    default:
      return InvalidArgument(weights.name, "got " + std::string(DataTypeName(weights.datatype)) +
                                               ", must be FP16, BF16 or FP32");
  }
}

}  // namespace

Result<std::shared_ptr<const LoraTensors>> ReadLoraTensors(const Tensor& weights,
                                                           const Tensor& config,
                                                           std::shared_ptr<AccountShare> memory) {
  LoraTensors out;
  ASSIGN_OR_RETURN(out.dtype, DTypeOf(weights));
  ASSIGN_OR_RETURN(const Matrix numbers, MatrixOf(weights));
  ASSIGN_OR_RETURN(const Matrix rows, MatrixOf(config));
  if (rows.columns != 3 && rows.columns != 4)
    return InvalidArgument("Invalid shape for " + config.name + " tensor: got " +
                           ShapeText(config.shape) +
                           ", a row has 3 numbers: module, layer, rank (or 4, with is_dora)")
        .WithField(config.name);
  if (rows.rows != numbers.rows)
    return InvalidArgument("Invalid shape for " + config.name + " tensor: got " +
                           std::to_string(rows.rows) + " rows, " + weights.name + " has " +
                           std::to_string(numbers.rows) + " (one for each module of a layer)")
        .WithField(config.name);
  ASSIGN_OR_RETURN(const std::vector<int32_t> values, ReadInt32s(config));
  for (int64_t row = 0; row < rows.rows; ++row) {
    const int32_t* const at = values.data() + row * rows.columns;
    if (rows.columns == 4 && at[3] != 0)
      return Unimplemented(config.name + ": row " + std::to_string(row) +
                           ": adapters with magnitudes (DoRA) are not supported")
          .WithField(config.name);
    out.rows.push_back({.module = at[0], .layer = at[1], .rank = at[2]});
  }
  out.width = numbers.columns;
  MemoryCharge charge(std::move(memory));
  if (const Status charged = charge.Resize(weights.data.size()); !charged.ok())
    return charged.WithPrefix(weights.name);
  out.weights.assign(weights.data.begin(), weights.data.end());
  return std::shared_ptr<const LoraTensors>(Charged(std::move(out), std::move(charge)));
}

}  // namespace inflight::contract
