// SPDX-License-Identifier: Apache-2.0
#include "serving/trace/trace_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "json/json_writer.h"
#include "json/valid_text.h"
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

void WriteHead(const TraceRecord& record, json::Writer& writer) {
  writer.BeginObject().Key("id").Uint(record.id);
  writer.Key("model_name").String(json::ValidText(record.model_name));
  writer.Key("model_version").Raw(record.model_version.empty() ? "-1" : record.model_version);
  if (!record.request_id.empty()) {
    writer.Key("request_id").String(json::ValidText(record.request_id));
  }
  if (record.parent_id != 0) writer.Key("parent_id").Uint(record.parent_id);
  writer.EndObject();
}

void WriteEvent(uint64_t id, const TraceEvent& event, json::Writer& writer) {
  writer.BeginObject().Key("id").Uint(id).Key("timestamps").BeginArray();
  writer.BeginObject().Key("name").String(event.name).Key("ns").Int(event.ns).EndObject();
  writer.EndArray().EndObject();
}

void WriteTensor(uint64_t id, const TraceTensor& tensor, json::Writer& writer) {
  writer.BeginObject().Key("id").Uint(id).Key("activity").String(tensor.activity);
  writer.Key("tensor").BeginObject();
  writer.Key("name").String(json::ValidText(tensor.name));
  writer.Key("data").String(json::ValidText(tensor.data));
  writer.Key("shape").String(Joined(tensor.shape));
  writer.Key("dtype").String(DataTypeName(tensor.datatype));
  writer.EndObject().EndObject();
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

// A file is JSON whatever clients send: ValidText.
std::string TraceJson(const FinishedTrace& trace) {
  std::string out;
  json::Writer writer(out);
  for (const TraceRecord& record : trace.records) {
    if (!record.model_name.empty()) WriteHead(record, writer);  // none: no model took it
    std::vector<TraceEvent> events = record.events;
    std::stable_sort(events.begin(), events.end(),
                     [](const TraceEvent& a, const TraceEvent& b) { return a.ns < b.ns; });
    for (const TraceEvent& event : events) WriteEvent(record.id, event, writer);
    for (const TraceTensor& tensor : record.tensors) WriteTensor(record.id, tensor, writer);
  }
  return out;
}

}  // namespace inflight::serving
