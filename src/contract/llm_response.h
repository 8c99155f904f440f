// SPDX-License-Identifier: Apache-2.0
// From an executor response to the output tensors of the `tensorrt_llm` model, in the order that
// clients rely on: output_ids first.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "contract/tensor.h"
#include "inflight/request.h"

namespace inflight::contract {

struct LlmResponseOptions {
  std::span<const TokenId> prompt;  // stands before the generated ids; empty = excluded
  bool return_log_probs = false;
  // Releases up to 0.13 send every output always: zeros where nothing was asked for. The log-prob
  // dummy has one zero per prompt token in a single answer, and one in each streamed one.
  bool with_dummies = true;
  int num_dummy_log_probs = 1;
  bool with_batch_index = false;  // 0.12 and 0.13 send the row of the batch always: 0 here
};

// Outputs of one response. Log-probs of a streamed response cover its own ids (cum_log_probs the
// whole sequence so far); `requested` empty = all.
std::vector<Tensor> MakeLlmOutputs(const Response& response, const LlmResponseOptions& options,
                                   std::span<const std::string> requested);

// The log-prob and logits tensors under the names given, of a batch of one: shapes [1,1],
// [1,1,n], [1,1,1], [1,1,1,1].
Tensor CumLogProbs(std::string name, const Response& response);
Tensor OutputLogProbs(std::string name, const Response& response);
// `num_zeros` float zeros of the shape given.
Tensor Zeros(std::string name, std::vector<int64_t> shape, int num_zeros);

}  // namespace inflight::contract
