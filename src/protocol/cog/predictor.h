// SPDX-License-Identifier: Apache-2.0
// What a prediction asks the model: the inputs in the names of the ensemble, as cog-triton sends
// them (docs/reference/protocol/cog.md, "Inputs").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "inflight/status.h"
#include "model_config.pb.h"
#include "protocol/cog/input_fields.h"
#include "serving/core/model.h"

namespace inflight::cog {

struct PredictorOptions {
  InputDefaults defaults;
  bool logs_performance = false;  // LOG_PERFORMANCE_METRICS: as if each prediction asked for it
  std::optional<int32_t> end_id;  // END_ID; none is the tokenizer's
  std::optional<int32_t> pad_id;  // PAD_ID
};

inline constexpr std::string_view kTextOutput = "text_output";  // of the model

struct ModelCall {
  std::string body;  // of a generate request
  std::string prompt;
  int64_t seed = 0;
};

// The prompt by Python's rules of str.format, as far as names in braces and doubled braces go.
// Errors begin with their code: E1001, E1003, E1004.
Result<std::string> FormatPrompt(const std::string& prompt, const std::string& system_prompt,
                                 const std::string& prompt_template);

// `random_seed`: where the inputs have none. Errors begin with their code: E1...
Result<ModelCall> MakeModelCall(const Inputs& inputs, const PredictorOptions& options,
                                const ::inference::ModelConfig& config, int64_t random_seed);

// Whether a model's answers can be read: kInvalidArgument where it has neither text_output nor ids
// that its tokenizer makes a text of (serving::Request::wants_text).
Status CheckAnswers(const serving::Model& model);

// What a failure of the model is called: "E1002 PromptTooLong: ...", "E2101 TritonTimeout: ...",
// "E2100 TritonUnknownError: ...".
std::string ModelErrorText(const Status& status);

}  // namespace inflight::cog
