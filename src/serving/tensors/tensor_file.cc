// SPDX-License-Identifier: Apache-2.0
#include "serving/tensors/tensor_file.h"

#include <utility>

#include "base/status_macros.h"
#include "serving/tensors/model_file.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxInputBytes = uint64_t{1} << 30;

// Empty texts are four bytes of length each.
size_t ElementBytes(const Tensor& tensor) {
  return tensor.datatype == DataType::kBytes ? 4 : DataTypeSize(tensor.datatype);
}

Status CheckSize(const Tensor& tensor, size_t num_elements) {
  if (tensor.datatype == DataType::kBytes) {
    ASSIGN_OR_RETURN(const auto strings, tensor.Strings());
    if (strings.size() == num_elements) return Status::Ok();
    return InvalidArgument("got " + std::to_string(strings.size()) + " elements, expected " +
                           std::to_string(num_elements));
  }
  const size_t num_bytes = num_elements * ElementBytes(tensor);
  if (tensor.data.size() == num_bytes) return Status::Ok();
  return InvalidArgument("got " + std::to_string(tensor.data.size()) + " bytes, expected " +
                         std::to_string(num_bytes));
}

}  // namespace

Result<size_t> CountElements(const Tensor& tensor) {
  const int64_t count = tensor.num_elements();
  if (count < 0 || static_cast<uint64_t>(count) > kMaxInputBytes / 8) {
    return InvalidArgument("dims: too many elements");
  }
  return static_cast<size_t>(count);
}

Status FillWithZeros(Tensor& tensor) {
  ASSIGN_OR_RETURN(const size_t count, CountElements(tensor));
  tensor = Tensor::FromBytes(tensor.name, tensor.datatype, tensor.shape,
                             std::string(count * ElementBytes(tensor), '\0'));
  return Status::Ok();
}

Status FillFromFile(const fs::path& folder, const std::string& file, std::string_view field,
                    Tensor& tensor) {
  ASSIGN_OR_RETURN(const size_t count, CountElements(tensor));
  ASSIGN_OR_RETURN(std::string bytes,
                   ReadModelFile(folder, folder.filename().native(), file, field, kMaxInputBytes));
  tensor = Tensor::FromBytes(tensor.name, tensor.datatype, tensor.shape, std::move(bytes));
  return CheckSize(tensor, count);
}

}  // namespace inflight::serving
