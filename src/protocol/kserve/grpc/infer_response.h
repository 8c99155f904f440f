// SPDX-License-Identifier: Apache-2.0
// serving::Response -> ModelInferResponse.
#pragma once

#include "grpc_service.pb.h"
#include "serving/core/request.h"

namespace inflight::kserve_grpc {

// Names, parameters and outputs of a successful response; exactly one raw_output_contents entry
// per output.
void WriteInferResponse(const serving::Response& response, ::inference::ModelInferResponse& out);

void SetFinalMark(bool is_final, ::inference::ModelInferResponse& out);  // triton_final_response

// Turns the responses of a model that is not decoupled into the single one that its client gets.
// Threads: as the handler of a request, one call at a time.
class SingleResponse {
 public:
  // True with the final response: then `result` is complete.
  bool Add(serving::Response response);

  int num_answers() const { return num_answers_; }  // successful responses so far

  // The response; an error if the model sent one, or not exactly one response.
  serving::Response& result() { return result_; }

 private:
  int num_responses_ = 0;  // answers and errors
  int num_answers_ = 0;
  serving::Response result_;
};

// A completion without a response of its own: final, successful, nothing in it.
bool IsBareCompletion(const serving::Response& response);

}  // namespace inflight::kserve_grpc
