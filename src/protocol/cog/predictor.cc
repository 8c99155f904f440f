// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/predictor.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>

#include "base/status_macros.h"
#include "json/json_writer.h"
#include "json/valid_text.h"
#include "protocol/kserve/http/model_tensors.h"

namespace inflight::cog {
namespace {

constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxShownBytes = 64;  // of a client's text in an error
constexpr std::string_view kPromptName = "{prompt}";
constexpr std::string_view kSystemPromptName = "{system_prompt}";

int64_t IntegerOr(const Inputs& inputs, Input which, int64_t otherwise) {
  const auto* value = std::get_if<int64_t>(&inputs[which]);
  return value != nullptr ? *value : otherwise;
}

double NumberOr(const Inputs& inputs, Input which, double otherwise) {
  const auto* value = std::get_if<double>(&inputs[which]);
  return value != nullptr ? *value : otherwise;
}

std::string TextOr(const Inputs& inputs, Input which, const char* otherwise) {
  const auto* value = std::get_if<std::string>(&inputs[which]);
  return value != nullptr ? *value : otherwise;
}

Status BadTemplate(const std::string& what) {
  return InvalidArgument("E1004 PromptTemplateError: prompt_template: " + what +
                         "; write braces that are text twice, or leave the template out");
}

// The pieces of a template in their order: text, and the names in braces with these.
Status ForEachPiece(std::string_view prompt_template,
                    const std::function<void(std::string_view piece)>& visit) {
  for (size_t i = 0; i < prompt_template.size();) {
    const size_t brace = std::min(prompt_template.find_first_of("{}", i), prompt_template.size());
    if (brace > i) visit(prompt_template.substr(i, brace - i));
    if (brace == prompt_template.size()) return Status::Ok();
    i = brace;
    const char c = prompt_template[i];
    if (i + 1 < prompt_template.size() && prompt_template[i + 1] == c) {
      visit(prompt_template.substr(i, 1));
      i += 2;
      continue;
    }
    if (c == '}') return BadTemplate("a single '}'");
    const size_t end = prompt_template.find('}', i);
    if (end == std::string_view::npos) return BadTemplate("a '{' without its '}'");
    const std::string_view name = prompt_template.substr(i, end + 1 - i);
    if (name != kPromptName && name != kSystemPromptName)
      return BadTemplate("'" + json::ValidText(name.substr(0, kMaxShownBytes)) +
                         "', known are {prompt} and {system_prompt}");
    visit(name);
    i = end + 1;
  }
  return Status::Ok();
}

// The former name counts where the present one has its default or the same value; 0 is none.
Result<int64_t> OfTwoNames(const Inputs& inputs, Input present, Input former, int64_t otherwise,
                           const char* code) {
  const int64_t value = IntegerOr(inputs, present, otherwise);
  const int64_t old = IntegerOr(inputs, former, 0);
  if (old == 0 || old == value) return value;
  if (value == otherwise) return old;
  const std::string name(InputFields()[present].name);
  const std::string old_name(InputFields()[former].name);
  return InvalidArgument(std::string(code) + ": " + name + " is " + std::to_string(value) +
                         " and its former name " + old_name + " is " + std::to_string(old) +
                         "; send one of them");
}

// Members of a generate request, for what the model declares.
class CallWriter {
 public:
  CallWriter(std::string& out, const ::inference::ModelConfig& config)
      : out_(out), config_(config) {
    out_.BeginObject();
  }

  json::Writer& Member(std::string_view name) { return out_.Key(name); }
  bool Declares(std::string_view name) const {
    return kserve_http::FindInput(config_, name) != nullptr;
  }
  // Whether the model asks for it in every request.
  bool Needs(std::string_view name) const {
    const auto* input = kserve_http::FindInput(config_, name);
    return input != nullptr && !input->optional();
  }
  // Whether to write it. What the model does not declare cannot have an effect: then only a value
  // that asks for nothing passes.
  bool Takes(std::string_view name, bool asks_for_something) {
    if (Declares(name)) return true;
    if (asks_for_something && status_.ok()) {
      status_ = InvalidArgument("E2100 TritonUnknownError: model '" + config_.name() +
                                "' has no input '" + std::string(name) + "', leave it out");
    }
    return false;
  }
  Status End() {
    out_.EndObject();
    return status_;
  }

 private:
  json::Writer out_;
  const ::inference::ModelConfig& config_;
  Status status_;
};

void WriteStopWords(const std::string& sequences, CallWriter& call) {
  if (!call.Takes("stop_words", !sequences.empty())) return;
  if (sequences.empty()) {
    if (call.Needs("stop_words")) call.Member("stop_words").String("");
    return;
  }
  json::Writer& out = call.Member("stop_words");
  out.BeginArray();
  for (size_t begin = 0; begin <= sequences.size();) {
    const size_t end = std::min(sequences.find(',', begin), sequences.size());
    out.String(std::string_view(sequences).substr(begin, end - begin));
    begin = end + 1;
  }
  out.EndArray();
  call.Member("include_stop_str_in_output").Bool(false);
}

}  // namespace

Result<std::string> FormatPrompt(const std::string& prompt, const std::string& system_prompt,
                                 const std::string& prompt_template, size_t max_bytes,
                                 MemoryCharge& charge) {
  if (!prompt.empty() && prompt_template.find("{prompt}") == std::string::npos) {
    return InvalidArgument(
        "E1003 BadPromptTemplate: prompt_template has no {prompt}, so that the prompt would be "
        "lost; add it, or send the whole text as the prompt alone");
  }
  const auto text_of = [&](std::string_view piece) -> std::string_view {
    if (piece == kPromptName) return prompt;
    return piece == kSystemPromptName ? std::string_view(system_prompt) : piece;
  };
  size_t num_bytes = 0;
  RETURN_IF_ERROR(ForEachPiece(
      prompt_template, [&](std::string_view piece) { num_bytes += text_of(piece).size(); }));
  if (num_bytes == 0) return InvalidArgument("E1001 PromptRequired: the formatted prompt is empty");
  if (num_bytes > max_bytes) {
    return InvalidArgument("E1002 PromptTooLong: the formatted prompt has " +
                           std::to_string(num_bytes) + " bytes, at most " +
                           std::to_string(max_bytes) +
                           " are allowed; shorten prompt or prompt_template, or raise "
                           "--http-max-input-size");
  }
  RETURN_IF_ERROR(
      charge.Resize(charge.bytes() + num_bytes * (kBytesPerPrompt + kBytesPerPromptJson)));
  std::string text;
  text.reserve(num_bytes);
  RETURN_IF_ERROR(
      ForEachPiece(prompt_template, [&](std::string_view piece) { text.append(text_of(piece)); }));
  return text;
}

Result<ModelCall> MakeModelCall(const Inputs& inputs, const PredictorOptions& options,
                                const ::inference::ModelConfig& config, int64_t random_seed,
                                MemoryCharge& charge) {
  ModelCall call;
  ASSIGN_OR_RETURN(
      call.prompt,
      FormatPrompt(TextOr(inputs, kPrompt, ""), TextOr(inputs, kSystemPrompt, ""),
                   TextOr(inputs, kPromptTemplate, "{prompt}"), options.max_prompt_bytes, charge));
  ASSIGN_OR_RETURN(const int64_t max_tokens, OfTwoNames(inputs, kMaxTokens, kMaxNewTokens, 512,
                                                        "E1102 InvalidArgumentMaxTokens"));
  ASSIGN_OR_RETURN(int64_t min_tokens, OfTwoNames(inputs, kMinTokens, kMinNewTokens, 0,
                                                  "E1101 InvalidArgumentMinTokens"));
  min_tokens = std::clamp<int64_t>(min_tokens, 0, kMostTokens);
  const int64_t top_k = std::max<int64_t>(IntegerOr(inputs, kTopK, 0), 0);
  const int64_t seed = IntegerOr(inputs, kSeed, 0);
  call.seed = seed != 0 ? seed : random_seed;

  CallWriter out(call.body, config);
  out.Member("text_input").String(call.prompt);
  out.Member("max_tokens").Int(std::min(max_tokens, kMostTokens));
  if (out.Takes("min_length", min_tokens > 0)) out.Member("min_length").Int(min_tokens);
  if (out.Takes("top_k", top_k > 0)) out.Member("top_k").Int(top_k);
  const std::pair<Input, double> numbers[] = {
      {kTemperature, 1}, {kTopP, 1}, {kLengthPenalty, 1}, {kPresencePenalty, 0}};
  for (const auto& [which, neutral] : numbers) {
    const double value = NumberOr(inputs, which, neutral);
    const std::string_view name = InputFields()[which].name;
    if (out.Takes(name, value != neutral)) out.Member(name).Double(value);
  }
  if (out.Takes("random_seed", seed != 0)) out.Member("random_seed").Int(call.seed);
  WriteStopWords(TextOr(inputs, kStopSequences, ""), out);
  // A parameter of requests, which no model declares.
  if (const std::string salt = TextOr(inputs, kCacheSalt, ""); !salt.empty())
    out.Member(InputFields()[kCacheSalt].name).String(salt);
  if (out.Needs("bad_words")) out.Member("bad_words").String("");
  if (options.end_id && out.Takes("end_id", true)) out.Member("end_id").Int(*options.end_id);
  if (options.pad_id && out.Takes("pad_id", true)) out.Member("pad_id").Int(*options.pad_id);
  const bool is_stream = config.model_transaction_policy().decoupled();
  if (out.Declares("stream")) out.Member("stream").Bool(is_stream);
  for (const char* asks : {"return_num_input_tokens", "return_num_output_tokens"})
    if (out.Declares(asks)) out.Member(asks).Bool(true);
  if (!is_stream && out.Declares("exclude_input_in_output"))
    out.Member("exclude_input_in_output").Bool(true);
  RETURN_IF_ERROR(out.End());
  return call;
}

Status CheckAnswers(const serving::Model& model) {
  const ::inference::ModelConfig& config = model.config();
  const bool has_text = std::ranges::any_of(
      config.output(), [](const auto& output) { return output.name() == kTextOutput; });
  if (has_text || model.text() != nullptr) return Status::Ok();
  return InvalidArgument("model '" + config.name() + "' has no output '" +
                         std::string(kTextOutput) +
                         "', which predictions are made of; --cog-model names another one");
}

std::string ModelErrorText(const Status& status) {
  if (status.reason() == Reason::kPromptTooLong) return "E1002 PromptTooLong: " + status.message();
  if (status.code() == StatusCode::kDeadlineExceeded)
    return "E2101 TritonTimeout: " + status.message();
  return "E2100 TritonUnknownError: " + status.message();
}

}  // namespace inflight::cog
