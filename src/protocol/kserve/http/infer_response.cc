// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/infer_response.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "protocol/kserve/http/response.h"
#include "protocol/kserve/http/tensor_json.h"

namespace inflight::kserve_http {
namespace {

DataPlace PlaceOf(const OutputForm& form, const std::string& name) {
  const auto it = form.listed.find(name);
  if (it != form.listed.end()) return it->second;
  return form.is_binary_by_default ? DataPlace::kBinary : DataPlace::kJson;
}

Status WriteOutput(const serving::Tensor& tensor, DataPlace place, json::Writer& out) {
  out.BeginObject();
  out.Key("name").String(tensor.name);
  out.Key("datatype").String(serving::DataTypeName(tensor.datatype));
  out.Key("shape").BeginArray();
  for (const int64_t dim : tensor.shape) out.Int(dim);
  out.EndArray();
  if (place == DataPlace::kBinary) {
    out.Key("parameters").BeginObject();
    out.Key("binary_data_size").Uint(tensor.data.size()).EndObject();
  } else if (place == DataPlace::kJson) {
    out.Key("data").BeginArray();
    RETURN_IF_ERROR(WriteElements(tensor, out));
    out.EndArray();
  }
  out.EndObject();
  return Status::Ok();
}

}  // namespace

Result<http_listener::HttpResponse> WriteInfer(const serving::Response& response,
                                               const OutputForm& form, const BinaryFraming& framing,
                                               const std::shared_ptr<AccountShare>& memory) {
  http_listener::HttpResponse answer;
  size_t json_bytes = 0;
  for (const serving::Tensor& tensor : response.outputs)
    if (PlaceOf(form, tensor.name) == DataPlace::kJson) json_bytes += MostJsonBytes(tensor);
  MemoryCharge charge(memory);
  if (json_bytes > kUnchargedJsonBytes) RETURN_IF_ERROR(charge.Resize(json_bytes));
  json::Writer out(answer.body);
  out.BeginObject();
  if (!response.id.empty()) out.Key("id").String(response.id);
  out.Key("model_name").String(response.model_name);
  out.Key("model_version").String(response.model_version);
  if (!response.parameters.empty()) {
    out.Key("parameters").BeginObject();
    for (const auto& [name, value] : response.parameters) {
      out.Key(name);
      WriteParameter(value, out);
    }
    out.EndObject();
  }
  out.Key("outputs").BeginArray();
  for (const serving::Tensor& tensor : response.outputs) {
    const DataPlace place = PlaceOf(form, tensor.name);
    RETURN_IF_ERROR(WriteOutput(tensor, place, out));
    if (place == DataPlace::kBinary && !tensor.data.empty())
      answer.segments.push_back({tensor.data, tensor.owner});
  }
  out.EndArray().EndObject();

  if (answer.segments.empty()) {
    answer.headers = {{"Content-Type", std::string(kJson)}};
  } else {
    answer.headers = framing.AnswerHeaders(answer.body.size());
  }
  return answer;
}

void WriteParameter(const serving::ParameterValue& value, json::Writer& out) {
  std::visit(
      [&out](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) {
          out.Bool(v);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          out.Int(v);
        } else if constexpr (std::is_same_v<T, uint64_t>) {
          out.Uint(v);
        } else if constexpr (std::is_same_v<T, double>) {
          out.Double(v);
        } else {
          out.String(v);
        }
      },
      value);
}

}  // namespace inflight::kserve_http
