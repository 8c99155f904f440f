// SPDX-License-Identifier: Apache-2.0
#include "contract/rows.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/status_macros.h"

namespace inflight::contract {
namespace {

// Where each of `num_rows` equal rows begins, in bytes, and where the last one ends.
Result<std::vector<size_t>> RowBounds(const Tensor& tensor, size_t num_rows) {
  std::vector<size_t> bounds = {0};
  if (tensor.datatype != DataType::kBytes) {
    for (size_t i = 1; i <= num_rows; ++i) bounds.push_back(tensor.data.size() / num_rows * i);
    return bounds;
  }
  ASSIGN_OR_RETURN(const auto strings, tensor.Strings());
  const size_t per_row = strings.size() / num_rows;
  const auto* begin = reinterpret_cast<const char*>(tensor.data.data());
  for (size_t i = 1; i <= num_rows; ++i) {
    const std::string_view* last = i * per_row == 0 ? nullptr : &strings[i * per_row - 1];
    bounds.push_back(last == nullptr ? 0
                                     : static_cast<size_t>(last->data() + last->size() - begin));
  }
  return bounds;
}

int64_t Product(std::span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t dim : shape) product *= dim;
  return product;
}

// Copies a tensor into the first corner of a larger one of the same rank.
void CopyCorner(const char* from, std::span<const int64_t> shape, char* to,
                std::span<const int64_t> padded, size_t element) {
  if (Product(shape) == 0) return;
  if (shape.size() == 1) {
    std::memcpy(to, from, static_cast<size_t>(shape.front()) * element);
    return;
  }
  const size_t from_stride = static_cast<size_t>(Product(shape.subspan(1))) * element;
  const size_t to_stride = static_cast<size_t>(Product(padded.subspan(1))) * element;
  for (int64_t i = 0; i < shape.front(); ++i) {
    CopyCorner(from, shape.subspan(1), to, padded.subspan(1), element);
    from += from_stride;
    to += to_stride;
  }
}

const Tensor* Find(const std::vector<Tensor>& row, std::string_view name) {
  for (const Tensor& tensor : row) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

// One behind the other where they have one dimension, as texts do. [1, n] are padded with empty
// strings.
Tensor JoinStrings(const Tensor& first, std::span<const std::vector<Tensor>> rows) {
  const bool is_padded = first.shape.size() == 2;
  int64_t width = 0;
  for (const auto& row : rows) {
    const Tensor* tensor = Find(row, first.name);
    if (tensor != nullptr) width = std::max(width, tensor->shape.back());
  }
  std::string bytes;
  int64_t num_strings = 0;
  for (const auto& row : rows) {
    const Tensor* tensor = Find(row, first.name);
    const int64_t count = tensor == nullptr ? 0 : tensor->num_elements();
    if (tensor != nullptr) {
      bytes.append(reinterpret_cast<const char*>(tensor->data.data()), tensor->data.size());
    }
    num_strings += count;
    if (!is_padded) continue;
    constexpr size_t kLengthBytes = sizeof(uint32_t);  // an empty string is a length of 0
    bytes.append(static_cast<size_t>(width - count) * kLengthBytes, '\0');
  }
  std::vector<int64_t> shape = {num_strings};
  if (is_padded) shape = {std::ssize(rows), width};
  return Tensor::FromBytes(first.name, first.datatype, std::move(shape), std::move(bytes));
}

Tensor JoinNumbers(const Tensor& first, std::span<const std::vector<Tensor>> rows) {
  std::vector<int64_t> shape = first.shape;
  shape.front() = 0;
  for (const auto& row : rows) {
    const Tensor* tensor = Find(row, first.name);
    shape.front() += tensor == nullptr ? 1 : tensor->shape.front();
    for (size_t d = 1; tensor != nullptr && d < shape.size(); ++d) {
      shape[d] = std::max(shape[d], tensor->shape[d]);
    }
  }
  const bool is_integer = first.datatype == DataType::kInt32 || first.datatype == DataType::kInt64;
  const size_t element = DataTypeSize(first.datatype);
  std::string bytes(static_cast<size_t>(Product(shape)) * element, is_integer ? '\xff' : '\0');
  std::vector<int64_t> padded = shape;  // of the row at hand
  char* to = bytes.data();
  for (const auto& row : rows) {
    const Tensor* tensor = Find(row, first.name);
    padded.front() = tensor == nullptr ? 1 : tensor->shape.front();
    if (tensor != nullptr) {
      CopyCorner(reinterpret_cast<const char*>(tensor->data.data()), tensor->shape, to, padded,
                 element);
    }
    to += static_cast<size_t>(Product(padded)) * element;
  }
  return Tensor::FromBytes(first.name, first.datatype, std::move(shape), std::move(bytes));
}

}  // namespace

Result<std::vector<std::vector<Tensor>>> SplitRows(std::span<const Tensor> inputs, int num_rows) {
  std::vector<std::vector<Tensor>> rows(static_cast<size_t>(num_rows));
  for (const Tensor& tensor : inputs) {
    const int64_t got = tensor.shape.empty() ? 0 : tensor.shape.front();
    if (got != num_rows) {
      return InvalidArgument(tensor.name + ": got " + std::to_string(got) +
                             " rows, the request has " + std::to_string(num_rows) +
                             " (send every tensor with a first dimension of " +
                             std::to_string(num_rows) + ")");
    }
    ASSIGN_OR_RETURN(const auto bounds, RowBounds(tensor, rows.size()));
    for (size_t i = 0; i < rows.size(); ++i) {
      Tensor& row = rows[i].emplace_back(tensor);
      row.shape.front() = 1;
      row.data = tensor.data.subspan(bounds[i], bounds[i + 1] - bounds[i]);
    }
  }
  return rows;
}

std::vector<Tensor> JoinRows(std::span<const std::vector<Tensor>> rows) {
  std::vector<Tensor> joined;
  for (const auto& row : rows) {
    for (const Tensor& tensor : row) {
      if (Find(joined, tensor.name) != nullptr) continue;
      joined.push_back(tensor.datatype == DataType::kBytes ? JoinStrings(tensor, rows)
                                                           : JoinNumbers(tensor, rows));
    }
  }
  return joined;
}

}  // namespace inflight::contract
