// SPDX-License-Identifier: Apache-2.0
// From an executor response to the output tensors of the `tensorrt_llm` model, in the order that
// clients rely on: output_ids first.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/request_facts.h"
#include "contract/tensor.h"
#include "inflight/request.h"

namespace inflight::contract {

struct LlmResponseOptions {
  std::span<const TokenId> prompt;  // stands before the generated ids; empty = excluded
  // Behind the ids of a beam that is shorter than the longest.
  TokenId pad_id = -1;
  bool return_log_probs = false;
  // Releases up to 0.13 send every output always: zeros where nothing was asked for. The log-prob
  // dummy has one zero per prompt token in a single answer, and one in each streamed one.
  bool with_dummies = true;
  int num_dummy_log_probs = 1;
  std::optional<int> batch_index;    // the row of the batch, where it is to be sent
  bool with_sequence_index = false;  // which of num_return_sequences the response belongs to
  bool return_generation_logits = false;
  int num_top_log_probs = 0;
  // What the model's configuration declares: FP32, FP16 or BF16.
  DataType context_logits_type = DataType::kFp32;
  DataType generation_logits_type = DataType::kFp32;
  RequestFacts facts;
};

// The sequences of a response: one, or all beams, the best first.
struct SequenceView {
  std::span<const TokenId> output_ids;
  std::span<const float> output_log_probs;
  float cum_log_prob = 0;
  std::span<const TopLogProb> top_log_probs;
  const LogitsRows* generation_logits = nullptr;
};
std::vector<SequenceView> SequencesOf(const Response& response);

// Outputs of one response: shapes [1, beams, length], [1, beams]. Log-probs of a streamed response
// cover its own ids (cum_log_probs the whole sequence so far); `requested` empty = all but
// facts, which are named.
std::vector<Tensor> MakeLlmOutputs(const Response& response, const LlmResponseOptions& options,
                                   std::span<const std::string> requested);

// [1, beams, prompt and longest], [1, beams]
Tensor OutputIds(std::string name, std::span<const SequenceView> sequences,
                 const LlmResponseOptions& options);
Tensor SequenceLengths(std::string name, std::span<const SequenceView> sequences,
                       size_t prompt_len);

// Whether logits can be sent as this.
bool IsLogitsType(DataType type);

// The log-prob and logits tensors under the names given, of a batch of one: shapes [1,beams],
// [1,beams,n] with zeros behind the shorter ones.
Tensor CumLogProbs(std::string name, const Response& response);
Tensor OutputLogProbs(std::string name, const Response& response);
Tensor SequenceIndex(std::string name, const Response& response);
// Of `type`, which is FP32, FP16 or BF16: [1, prompt, vocabulary], [1, beams, n, vocabulary].
Tensor ContextLogits(std::string name, DataType type, const Response& response);
Tensor GenerationLogits(std::string name, DataType type, const Response& response);
// [1, beams, n, count]: the likeliest tokens at each position, the likeliest first; -1 and 0 behind
// the shorter beams.
Tensor TopLogProbIds(std::string name, int count, const Response& response);
Tensor TopLogProbs(std::string name, int count, const Response& response);
Tensor BatchIndex(std::string name, int row);  // INT32 [1,1]
// `num_zeros` float zeros of the shape given.
Tensor Zeros(std::string name, std::vector<int64_t> shape, int num_zeros);
// The one zero that stands for logits of up to 0.13: [1, 1, ...] of `rank` dimensions.
Tensor NoLogits(std::string name, DataType type, int rank);

}  // namespace inflight::contract
