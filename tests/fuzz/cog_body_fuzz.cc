// SPDX-License-Identifier: Apache-2.0
// Any text as the body of a prediction of cog: errors that are JSON, or inputs that are echoed as
// JSON and make a request of the model that is JSON, or an error with its code.
#include <google/protobuf/text_format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "json/json_reader.h"
#include "json/json_writer.h"
#include "protocol/cog/prediction_request.h"
#include "protocol/cog/predictor.h"

namespace {

using namespace inflight;  // NOLINT: a fuzzer's main file

void Require(bool condition) {
  if (!condition) abort();
}

bool IsJson(const std::string& text) { return json::Value::Parse(text).ok(); }

constexpr char kModel[] = R"(
name: "ensemble" model_transaction_policy { decoupled: true }
input { name: "text_input" } input { name: "max_tokens" } input { name: "bad_words" } input { name: "stop_words" }
input { name: "min_length" optional: true } input { name: "top_k" optional: true }
input { name: "temperature" optional: true } input { name: "top_p" optional: true }
input { name: "random_seed" optional: true } input { name: "stream" optional: true }
output { name: "text_output" }
)";

const ::inference::ModelConfig& Config() {
  static const ::inference::ModelConfig& config = [] {
    auto* const made = new ::inference::ModelConfig;
    Require(google::protobuf::TextFormat::ParseFromString(kModel, made));
    return std::ref(*made);
  }();
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const cog::PredictorOptions options = {.defaults = {.system_prompt = "s",
                                                      .prompt_template = "{system_prompt} {prompt}",
                                                      .stop_sequences = "a,b"}};
  std::vector<cog::FieldError> errors;
  const cog::PredictionRequest request = cog::ParsePredictionRequest(
      {reinterpret_cast<const char*>(data), size}, options.defaults, errors);
  if (!errors.empty()) {
    Require(IsJson(cog::ErrorDetail(errors)));
    return 0;
  }
  std::string echo;
  json::Writer out(echo);
  cog::WriteInputs(request.inputs, out);
  Require(IsJson(echo));
  for (const auto& [name, member] : request.echoed) Require(IsJson(member));
  MemoryCharge charge;
  const auto call =
      cog::MakeModelCall(request.inputs, options, Config(), /*random_seed=*/7, charge);
  Require(call.ok() ? IsJson(call->body) : call.status().message().starts_with("E"));
  return 0;
}
