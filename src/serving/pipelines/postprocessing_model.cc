// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/postprocessing_model.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/status_macros.h"
#include "contract/llm_response.h"
#include "contract/tensor_values.h"
#include "serving/configuration/model_config.h"
#include "serving/pipelines/text_call.h"

namespace inflight::serving {
namespace {

constexpr size_t kInlineIdBytes = size_t{4} * kInlineTextBytes;  // a token is about four characters

// Tensors that pass through, under their other names; zeros of the shape given stand for absent
// ones, where it has a shape.
struct PassThrough {
  const char* input;
  const char* output;
  std::vector<int64_t> dummy_shape;
};

const std::vector<PassThrough>& PassThroughs() {
  static const std::vector<PassThrough> table = {
      {"CUM_LOG_PROBS", "OUT_CUM_LOG_PROBS", {1, 1}},
      {"OUTPUT_LOG_PROBS", "OUT_OUTPUT_LOG_PROBS", {1, 1, 1}},
      {"CONTEXT_LOGITS", "OUT_CONTEXT_LOGITS", {1, 1, 1}},
      {"GENERATION_LOGITS", "OUT_GENERATION_LOGITS", {1, 1, 1, 1}},
      {"BATCH_INDEX", "OUT_BATCH_INDEX", {}},
  };
  return table;
}

bool DeclaresIds(const ::inference::ModelConfig& config) {
  return std::ranges::any_of(config.output(), [](const auto& output) {
    return output.name() == "OUTPUT" && output.data_type() == ::inference::TYPE_INT32;
  });
}

}  // namespace

PostprocessingModel::PostprocessingModel(::inference::ModelConfig config, std::string version,
                                         PostprocessingOptions options, Clock& clock)
    : Model(std::move(config), std::move(version)),
      options_(std::move(options)),
      passes_ids_(DeclaresIds(this->config())),
      bad_texts_(options_.tokenizer),
      guides_(options_.tokenizer),
      clock_(clock) {}

void PostprocessingModel::Infer(Request request, ResponseHandler handler) {
  const Tensor* ids = request.FindInput("TOKENS_BATCH");
  const bool is_long = ids != nullptr && ids->data.size() > kInlineIdBytes;
  RunTextCall(*this, is_long ? options_.text_pool.get() : nullptr, clock_, std::move(request),
              std::move(handler), [this](const Request& r) { return Run(r); });
}

Result<std::vector<Tensor>> PostprocessingModel::Run(const Request& request) const {
  const Tensor* batch = request.FindInput("TOKENS_BATCH");       // [batch, beams, length]
  const Tensor* lengths = request.FindInput("SEQUENCE_LENGTH");  // [batch, beams]
  if (batch == nullptr) return InvalidArgument("TOKENS_BATCH is not present in the request");
  // 0.5 has no lengths: its rows are decoded whole.
  if (lengths == nullptr && HasInput(config(), "SEQUENCE_LENGTH")) {
    return InvalidArgument("SEQUENCE_LENGTH is not present in the request");
  }
  ASSIGN_OR_RETURN(const auto ids, contract::ReadInt32s(*batch));
  const auto width = static_cast<size_t>(batch->shape.empty() ? 0 : batch->shape.back());
  std::vector<int32_t> counts;
  if (lengths != nullptr) {
    ASSIGN_OR_RETURN(counts, contract::ReadInt32s(*lengths));
  } else if (width > 0) {
    counts.assign(ids.size() / width, static_cast<int32_t>(width));
  }
  if (counts.size() * width != ids.size()) {
    return InvalidArgument("SEQUENCE_LENGTH: got " + std::to_string(counts.size()) +
                           " lengths for TOKENS_BATCH of " + std::to_string(ids.size()) +
                           " ids in rows of " + std::to_string(width));
  }
  std::vector<std::string> texts;  // none where ids pass
  for (size_t row = 0; row < counts.size(); ++row) {
    if (counts[row] < 0) {
      return InvalidArgument("SEQUENCE_LENGTH: got " + std::to_string(counts[row]) +
                             ", must be at least 0");
    }
    if (passes_ids_) continue;
    const size_t count = std::min(static_cast<size_t>(counts[row]), width);
    texts.push_back(options_.tokenizer->Decode(std::span(ids).subspan(row * width, count),
                                               options_.skip_special_tokens));
  }
  std::vector<Tensor> outputs;
  if (passes_ids_ && request.WantsOutput("OUTPUT")) {
    outputs.push_back(*batch);
    outputs.back().name = "OUTPUT";
  } else if (request.WantsOutput("OUTPUT")) {
    outputs.push_back(Tensor::FromStrings("OUTPUT", {static_cast<int64_t>(texts.size())}, texts));
  }
  for (const PassThrough& pass : PassThroughs()) {
    if (!HasOutput(config(), pass.output) || !request.WantsOutput(pass.output)) continue;
    if (const Tensor* input = request.FindInput(pass.input)) {
      outputs.push_back(*input);
      outputs.back().name = pass.output;
    } else if (!pass.dummy_shape.empty()) {
      outputs.push_back(contract::Zeros(pass.output, pass.dummy_shape, 1));
    }
  }
  return outputs;
}

}  // namespace inflight::serving
