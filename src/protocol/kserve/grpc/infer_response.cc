// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/infer_response.h"

#include <string>
#include <utility>

#include "protocol/kserve/grpc/parameters.h"

namespace inflight::kserve_grpc {

void WriteInferResponse(const serving::Response& response, ::inference::ModelInferResponse& out) {
  out.set_model_name(response.model_name);
  out.set_model_version(response.model_version);
  out.set_id(response.id);
  WriteParameters(response.parameters, *out.mutable_parameters());
  for (const serving::Tensor& tensor : response.outputs) {
    auto& output = *out.add_outputs();
    output.set_name(tensor.name);
    output.set_datatype(std::string(serving::DataTypeName(tensor.datatype)));
    output.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    out.add_raw_output_contents(tensor.data.data(), tensor.data.size());
  }
}

void SetFinalMark(bool is_final, ::inference::ModelInferResponse& out) {
  (*out.mutable_parameters())["triton_final_response"].set_bool_param(is_final);
}

bool IsBareCompletion(const serving::Response& response) {
  return response.is_final && response.status.ok() && response.outputs.empty() &&
         !response.has_answer;
}

bool SingleResponse::Add(serving::Response response) {
  const bool is_final = response.is_final;
  if (num_responses_ == 0 || !IsBareCompletion(response)) {
    ++num_responses_;
    if (response.status.ok()) ++num_answers_;
    // The first error wins, since later ones are its consequences.
    if (num_responses_ == 1 || (result_.status.ok() && !response.status.ok())) {
      result_ = std::move(response);
    }
  }
  if (!is_final) return false;
  result_.is_final = true;
  if (result_.status.ok() && num_responses_ != 1) {
    result_.status = Internal("expected a single response, got " + std::to_string(num_responses_));
    result_.outputs.clear();
  }
  return true;
}

}  // namespace inflight::kserve_grpc
