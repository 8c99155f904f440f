// SPDX-License-Identifier: Apache-2.0
// Declared in apply_output_rules.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "serving/core/apply_output_rules.h"
#include "serving/tensors/tensor_values.h"

namespace inflight::serving {
namespace {

constexpr size_t kMaxElements = 1'000'000;  // of a tensor: they are sorted while a client waits

template <typename T>
std::string Text(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return fmt::format("{:.6f}", value);
  } else {
    return std::to_string(value);
  }
}

// NaN is below everything, so that there is an order at all.
template <typename T>
bool IsLarger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(b)) return !std::isnan(a);
  }
  return a > b;
}

// Indices of the `count` largest, largest first.
template <typename T>
std::vector<size_t> Largest(const T* values, size_t size, size_t count) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [values](size_t a, size_t b) {
                      if (IsLarger(values[a], values[b])) return true;
                      return !IsLarger(values[b], values[a]) && a < b;
                    });
  order.resize(count);
  return order;
}

template <typename T>
std::vector<std::string> Classes(const Tensor& tensor, size_t num_items, size_t count,
                                 const std::vector<std::string>& labels) {
  const std::vector<T> values = ValuesOf<T>(tensor);
  const size_t item_size = num_items == 0 ? 0 : values.size() / num_items;
  std::vector<std::string> classes;
  for (size_t item = 0; item < num_items; ++item) {
    const T* first = values.data() + item * item_size;
    for (const size_t index : Largest(first, item_size, count)) {
      std::string text = Text(first[index]) + ":" + std::to_string(index);
      if (index < labels.size()) text += ":" + labels[index];
      classes.push_back(std::move(text));
    }
  }
  return classes;
}

}  // namespace

Result<Tensor> Classify(const Tensor& tensor, bool has_batch, uint64_t num_classes,
                        const std::vector<std::string>& labels) {
  const auto num_elements = static_cast<size_t>(std::max<int64_t>(tensor.num_elements(), 0));
  if (num_elements > kMaxElements) {
    return InvalidArgument("output '" + tensor.name + "' has " + std::to_string(num_elements) +
                           " elements, classification allows " + std::to_string(kMaxElements));
  }
  const size_t num_items = has_batch && !tensor.shape.empty()
                               ? static_cast<size_t>(std::max<int64_t>(tensor.shape.front(), 0))
                               : 1;
  const size_t item_size = num_items == 0 ? 0 : num_elements / num_items;
  const size_t count = std::min<uint64_t>(num_classes, item_size);
  const auto classes = [&]<typename T>(T) { return Classes<T>(tensor, num_items, count, labels); };
  std::vector<std::string> texts;
  switch (tensor.datatype) {
    case DataType::kUint8:
      texts = classes(uint8_t{});
      break;
    case DataType::kUint16:
      texts = classes(uint16_t{});
      break;
    case DataType::kUint32:
      texts = classes(uint32_t{});
      break;
    case DataType::kUint64:
      texts = classes(uint64_t{});
      break;
    case DataType::kInt8:
      texts = classes(int8_t{});
      break;
    case DataType::kInt16:
      texts = classes(int16_t{});
      break;
    case DataType::kInt32:
      texts = classes(int32_t{});
      break;
    case DataType::kInt64:
      texts = classes(int64_t{});
      break;
    case DataType::kFp32:
      texts = classes(float{});
      break;
    case DataType::kFp64:
      texts = classes(double{});
      break;
    default:
      return InvalidArgument("class result not available for output due to unsupported type '" +
                             std::string(DataTypeName(tensor.datatype)) + "'");
  }
  std::vector<int64_t> shape;
  if (has_batch) shape.push_back(static_cast<int64_t>(num_items));
  shape.push_back(static_cast<int64_t>(count));
  return Tensor::FromStrings(tensor.name, std::move(shape), texts);
}

}  // namespace inflight::serving
