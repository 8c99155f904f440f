// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/tensor_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "base/status_macros.h"
#include "bench/tensors/data_file.h"
#include "bench/tensors/element_bytes.h"

namespace inflight::bench {
namespace {

namespace fs = std::filesystem;

// An input's dimensions without the batch: those of the model, those of --shape where they are
// open.
Result<std::vector<int64_t>> FixedShape(const ServedTensor& input, const DataOptions& options) {
  const auto given = options.shapes.find(input.name);
  if (given == options.shapes.end()) {
    if (std::ranges::find(input.shape, -1) == input.shape.end()) return input.shape;
    return InvalidArgument(fmt::format("input '{}': dimensions [{}] are open; give --shape {}:{}",
                                       input.name, fmt::join(input.shape, ","), input.name,
                                       fmt::join(std::vector<int>(input.shape.size(), 1), ",")));
  }
  const std::vector<int64_t>& shape = given->second;
  bool fits = shape.size() == input.shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = shape[i] > 0 && (input.shape[i] == -1 || input.shape[i] == shape[i]);
  if (fits) return shape;
  return InvalidArgument(fmt::format("--shape {}: got [{}], the model has [{}]", input.name,
                                     fmt::join(shape, ","), fmt::join(input.shape, ",")));
}

TensorValue Repeated(const ServedModel& model, const ServedTensor& input,
                     const std::vector<int64_t>& shape, const std::string& item, int batch_size) {
  TensorValue value{.name = input.name, .datatype = input.datatype, .shape = shape, .bytes = {}};
  if (model.max_batch_size > 0) value.shape.insert(value.shape.begin(), batch_size);
  for (int i = 0; i < batch_size; ++i) value.bytes += item;
  return value;
}

Result<std::vector<Payload>> Generated(const ServedModel& model, const DataOptions& options) {
  std::mt19937_64 random(options.seed);
  Payload payload;
  for (const ServedTensor& input : model.inputs) {
    if (input.is_optional) continue;
    ASSIGN_OR_RETURN(const std::vector<int64_t> shape, FixedShape(input, options));
    std::string item;
    for (int64_t i = 0; i < NumElements(shape); ++i) {
      if (input.datatype == "BYTES" && options.string_data)
        AppendBytesElement(*options.string_data, item);
      else if (options.source == "zero")
        RETURN_IF_ERROR(AppendZero(input.datatype, item));
      else
        RETURN_IF_ERROR(AppendRandom(input.datatype, options.string_length, random, item));
    }
    payload.push_back(Repeated(model, input, shape, item, options.batch_size));
  }
  return std::vector<Payload>{std::move(payload)};
}

Result<std::vector<Payload>> FromDirectory(const ServedModel& model, const DataOptions& options) {
  Payload payload;
  for (const ServedTensor& input : model.inputs) {
    const fs::path path = fs::path(options.source) / input.name;
    if (!FileExists(path) && input.is_optional) continue;
    ASSIGN_OR_RETURN(const std::vector<int64_t> shape, FixedShape(input, options));
    ASSIGN_OR_RETURN(std::string item, ReadFile(path));
    const int64_t count = NumElements(shape);
    if (input.datatype == "BYTES") {
      std::string elements;
      int64_t num_lines = 0;
      for (size_t begin = 0; begin < item.size(); ++num_lines) {
        const size_t end = std::min(item.find('\n', begin), item.size());
        AppendBytesElement(std::string_view(item).substr(begin, end - begin), elements);
        begin = end + 1;
      }
      if (num_lines != count)
        return InvalidArgument(fmt::format("{}: got {} lines, input '{}' of shape [{}] needs {}",
                                           path.string(), num_lines, input.name,
                                           fmt::join(shape, ","), count));
      item = std::move(elements);
    } else {
      ASSIGN_OR_RETURN(const int64_t size, ElementSize(input.datatype));
      if (static_cast<int64_t>(item.size()) != count * size)
        return InvalidArgument(fmt::format("{}: got {} bytes, input '{}' of shape [{}] needs {}",
                                           path.string(), item.size(), input.name,
                                           fmt::join(shape, ","), count * size));
    }
    payload.push_back(Repeated(model, input, shape, item, options.batch_size));
  }
  return std::vector<Payload>{std::move(payload)};
}

// One request per item of the file, each of `batch_size` items from there on.
Result<std::vector<Payload>> FromFile(const ServedModel& model, const DataOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(options.source));
  auto items = ReadDataFile(text, model.inputs, options.shapes);
  if (!items.ok()) return items.status().WithPrefix(options.source);
  std::vector<Payload> payloads;
  for (size_t first = 0; first < items->size(); ++first) {
    Payload payload = (*items)[first];
    if (model.max_batch_size == 0) {
      payloads.push_back(std::move(payload));
      continue;
    }
    for (TensorValue& value : payload) value.shape.insert(value.shape.begin(), options.batch_size);
    for (int i = 1; i < options.batch_size; ++i) {
      const Payload& next = (*items)[(first + static_cast<size_t>(i)) % items->size()];
      for (size_t k = 0; k < payload.size(); ++k) {
        const bool same = k < next.size() && next[k].name == payload[k].name &&
                          std::equal(next[k].shape.begin(), next[k].shape.end(),
                                     payload[k].shape.begin() + 1, payload[k].shape.end());
        if (!same || next.size() != payload.size())
          return InvalidArgument(fmt::format(
              "{}: items of a batch differ in the shape of '{}'; use -b 1 or items of one shape",
              options.source, payload[k].name));
        payload[k].bytes += next[k].bytes;
      }
    }
    payloads.push_back(std::move(payload));
  }
  return payloads;
}

}  // namespace

Result<std::vector<Payload>> MakePayloads(const ServedModel& model, const DataOptions& options) {
  if (options.batch_size > std::max(model.max_batch_size, 1))
    return InvalidArgument(fmt::format("--batch-size: got {}, model '{}' takes at most {}",
                                       options.batch_size, model.name,
                                       std::max(model.max_batch_size, 1)));
  for (const auto& [name, shape] : options.shapes)
    if (std::ranges::find(model.inputs, name, &ServedTensor::name) == model.inputs.end())
      return InvalidArgument(
          fmt::format("--shape {}: model '{}' has no such input", name, model.name));
  if (options.source == "random" || options.source == "zero") return Generated(model, options);
  std::error_code error;
  if (fs::is_directory(options.source, error)) return FromDirectory(model, options);
  return FromFile(model, options);
}

}  // namespace inflight::bench
