// SPDX-License-Identifier: Apache-2.0
#include "serving/trace/trace_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "serving/tensors/tensor_values.h"
#include "tensor/dtype.h"

namespace inflight::serving {
namespace {

template <typename T>
std::string Joined(const std::vector<T>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

template <typename T>
std::string Numbers(const Tensor& tensor) {
  return Joined(ValuesOf<T>(tensor));
}

template <typename Half>
std::string Halves(const Tensor& tensor) {
  std::vector<float> values;
  for (const uint16_t bits : ValuesOf<uint16_t>(tensor)) values.push_back(Half{bits}.ToFloat());
  return Joined(values);
}

std::string Texts(const Tensor& tensor) {
  const auto strings = tensor.Strings();
  if (!strings.ok()) return {};
  std::string text;
  for (const std::string_view element : *strings) {
    if (!text.empty()) text += ',';
    text.append("\"").append(element).append("\"");
  }
  return text;
}

// Bytes that are not UTF-8 become replacement characters: a file is JSON whatever clients send.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Head(const TraceRecord& record) {
  std::string out = fmt::format(R"({{"id":{},"model_name":{},"model_version":{})", record.id,
                                Quoted(record.model_name),
                                record.model_version.empty() ? "-1" : record.model_version);
  if (!record.request_id.empty())
    out += fmt::format(R"(,"request_id":{})", Quoted(record.request_id));
  if (record.parent_id != 0) out += fmt::format(R"(,"parent_id":{})", record.parent_id);
  return out + "}";
}

}  // namespace

std::string TraceText(const Tensor& tensor) {
  switch (tensor.datatype) {
    case DataType::kBool:
    case DataType::kUint8:
      return Numbers<uint8_t>(tensor);
    case DataType::kUint16:
      return Numbers<uint16_t>(tensor);
    case DataType::kUint32:
      return Numbers<uint32_t>(tensor);
    case DataType::kUint64:
      return Numbers<uint64_t>(tensor);
    case DataType::kInt8:
      return Numbers<int8_t>(tensor);
    case DataType::kInt16:
      return Numbers<int16_t>(tensor);
    case DataType::kInt32:
      return Numbers<int32_t>(tensor);
    case DataType::kInt64:
      return Numbers<int64_t>(tensor);
    case DataType::kFp32:
      return Numbers<float>(tensor);
    case DataType::kFp64:
      return Numbers<double>(tensor);
    case DataType::kFp16:
      return Halves<Float16>(tensor);
    case DataType::kBf16:
      return Halves<BFloat16>(tensor);
    case DataType::kBytes:
      return Texts(tensor);
    case DataType::kInvalid:
      break;
  }
  return {};
}

std::string TraceJson(const FinishedTrace& trace) {
  std::string out;
  const auto add = [&out](const std::string& element) {
    if (!out.empty()) out += ',';
    out += element;
  };
  for (const TraceRecord& record : trace.records) {
    if (!record.model_name.empty()) add(Head(record));  // none: refused before a model took it
    std::vector<TraceEvent> events = record.events;
    std::stable_sort(events.begin(), events.end(),
                     [](const TraceEvent& a, const TraceEvent& b) { return a.ns < b.ns; });
    for (const TraceEvent& event : events) {
      add(fmt::format(R"({{"id":{},"timestamps":[{{"name":"{}","ns":{}}}]}})", record.id,
                      event.name, event.ns));
    }
    for (const TraceTensor& tensor : record.tensors) {
      add(fmt::format(
          R"({{"id":{},"activity":"{}","tensor":{{"name":{},"data":{},"shape":"{}","dtype":"{}"}}}})",
          record.id, tensor.activity, Quoted(tensor.name), Quoted(tensor.data),
          Joined(tensor.shape), DataTypeName(tensor.datatype)));
    }
  }
  return out;
}

}  // namespace inflight::serving
