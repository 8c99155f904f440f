// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/data_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/status_macros.h"
#include "bench/tensors/element_bytes.h"

namespace inflight::bench {
namespace {

using nlohmann::json;

struct Elements {
  int64_t count = 0;
  std::string bytes;
};

// Values of nested arrays in row-major order.
Status Flatten(const json& value, const std::string& datatype, Elements& out) {
  if (!value.is_array()) {
    ++out.count;
    return AppendJson(datatype, value, out.bytes);
  }
  for (const json& inner : value) RETURN_IF_ERROR(Flatten(inner, datatype, out));
  return Status::Ok();
}

Result<Elements> ReadBase64(const json& value, const ServedTensor& input) {
  const auto bytes =
      value.is_string() ? DecodeBase64(value.get<std::string>()) : std::optional<std::string>();
  if (!bytes) return InvalidArgument("'b64' is no base64 text");
  if (input.datatype == "BYTES") {  // one element
    Elements elements{.count = 1, .bytes = {}};
    AppendBytesElement(*bytes, elements.bytes);
    return elements;
  }
  ASSIGN_OR_RETURN(const int64_t size, ElementSize(input.datatype));
  return Elements{.count = static_cast<int64_t>(bytes->size()) / size, .bytes = *bytes};
}

// The item's own shape, that of --shape, or the model's, in which one open dimension takes what
// the number of elements leaves.
Result<std::vector<int64_t>> ShapeOf(const json& given, const ServedTensor& input,
                                     const std::map<std::string, std::vector<int64_t>>& shapes,
                                     int64_t num_elements) {
  std::vector<int64_t> shape = input.shape;
  const auto option = shapes.find(input.name);
  if (option != shapes.end()) shape = option->second;
  if (!given.is_null()) {
    shape.clear();
    for (const json& dim : given) {
      if (!dim.is_number_integer() || dim.get<int64_t>() < 1)
        return InvalidArgument("'shape' needs integers above 0");
      shape.push_back(dim.get<int64_t>());
    }
  }
  if (std::ranges::count(shape, -1) == 1) {
    const int64_t others = -NumElements(shape);
    if (num_elements > 0 && num_elements % others == 0)
      *std::ranges::find(shape, -1) = num_elements / others;
  }
  if (std::ranges::find(shape, -1) != shape.end())
    return InvalidArgument("its dimensions are open; give 'shape' or --shape");
  if (NumElements(shape) != num_elements)
    return InvalidArgument(fmt::format("got {} elements, shape [{}] needs {}", num_elements,
                                       fmt::join(shape, ","), NumElements(shape)));
  return shape;
}

Result<TensorValue> ReadTensor(const json& value, const ServedTensor& input,
                               const std::map<std::string, std::vector<int64_t>>& shapes) {
  Elements elements;
  json shape;
  if (value.is_object()) {
    if (value.contains("shape")) shape = value["shape"];
    if (value.contains("b64")) {
      ASSIGN_OR_RETURN(elements, ReadBase64(value["b64"], input));
    } else if (value.contains("content")) {
      RETURN_IF_ERROR(Flatten(value["content"], input.datatype, elements));
    } else {
      return InvalidArgument("an object needs 'content' or 'b64'");
    }
  } else {
    RETURN_IF_ERROR(Flatten(value, input.datatype, elements));
  }
  TensorValue tensor{.name = input.name, .datatype = input.datatype, .shape = {}, .bytes = {}};
  ASSIGN_OR_RETURN(tensor.shape, ShapeOf(shape, input, shapes, elements.count));
  tensor.bytes = std::move(elements.bytes);
  return tensor;
}

Result<Payload> ReadItem(const json& item, const std::vector<ServedTensor>& inputs,
                         const std::map<std::string, std::vector<int64_t>>& shapes) {
  if (!item.is_object()) return InvalidArgument("is no object");
  for (const auto& [key, unused] : item.items())
    if (std::ranges::find(inputs, key, &ServedTensor::name) == inputs.end())
      return InvalidArgument(fmt::format("'{}' is no input of the model", key));
  Payload payload;
  for (const ServedTensor& input : inputs) {
    const auto found = item.find(input.name);
    if (found == item.end()) {
      if (input.is_optional) continue;
      return InvalidArgument(fmt::format("input '{}' is missing", input.name));
    }
    auto tensor = ReadTensor(*found, input, shapes);
    if (!tensor.ok()) return tensor.status().WithPrefix(fmt::format("input '{}'", input.name));
    payload.push_back(*std::move(tensor));
  }
  return payload;
}

}  // namespace

Result<std::vector<Payload>> ReadDataFile(
    const std::string& text, const std::vector<ServedTensor>& inputs,
    const std::map<std::string, std::vector<int64_t>>& shapes) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("data") || !document["data"].is_array())
    return InvalidArgument("needs a JSON object with an array 'data'");
  for (const auto& [key, unused] : document.items())
    if (key != "data")
      return Unimplemented(fmt::format("'{}' is not read; outputs are not compared", key));
  std::vector<json> items;
  for (const json& entry : document["data"]) {
    if (entry.is_array())
      items.insert(items.end(), entry.begin(), entry.end());
    else
      items.push_back(entry);
  }
  if (items.empty()) return InvalidArgument("'data' is empty");
  std::vector<Payload> payloads;
  for (size_t i = 0; i < items.size(); ++i) {
    auto payload = ReadItem(items[i], inputs, shapes);
    if (!payload.ok()) return payload.status().WithPrefix(fmt::format("data[{}]", i));
    payloads.push_back(*std::move(payload));
  }
  return payloads;
}

}  // namespace inflight::bench
