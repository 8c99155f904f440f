// SPDX-License-Identifier: Apache-2.0
// What a prediction asks the model: the inputs in the names of the ensemble, as cog-triton sends
// them (docs/reference/protocol/cog.md, "Inputs").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/memory_account.h"
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
  size_t max_prompt_bytes = 64 << 20;  // of a formatted prompt
};

inline constexpr std::string_view kTextOutput = "text_output";  // of the model

struct ModelCall {
  std::string body;  // of a generate request
  std::string prompt;
  int64_t seed = 0;
};

// The prompt by Python's rules of str.format, as far as names in braces and doubled braces go. A
// short template may repeat a long prompt: how long the result is is known before it is made.
// `charge` grows by kBytesPerPrompt and kBytesPerPromptJson for each of its bytes. Errors begin
// with their code, E1001 to E1004, but for kResourceExhausted, that of the charge.
Result<std::string> FormatPrompt(const std::string& prompt, const std::string& system_prompt,
                                 const std::string& prompt_template, size_t max_bytes,
                                 MemoryCharge& charge);

inline constexpr size_t kBytesPerPrompt = 2;      // it, and the logs that tell it
inline constexpr size_t kBytesPerPromptJson = 6;  // ModelCall::body, where all is escaped

// `random_seed`: where the inputs have none. `charge` is FormatPrompt's, and so are errors:
// E1...
Result<ModelCall> MakeModelCall(const Inputs& inputs, const PredictorOptions& options,
                                const ::inference::ModelConfig& config, int64_t random_seed,
                                MemoryCharge& charge);

// Whether a model's answers can be read: kInvalidArgument where it has neither text_output nor ids
// that its tokenizer makes a text of (serving::Request::wants_text).
Status CheckAnswers(const serving::Model& model);

// What a failure of the model is called: "E1002 PromptTooLong: ...", "E2101 TritonTimeout: ...",
// "E2100 TritonUnknownError: ...".
std::string ModelErrorText(const Status& status);

}  // namespace inflight::cog
