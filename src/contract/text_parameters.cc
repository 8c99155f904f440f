// SPDX-License-Identifier: Apache-2.0
#include "contract/text_parameters.h"

#include <algorithm>
#include <array>

#include "base/letter_case.h"
#include "base/status_macros.h"
#include "contract/parameter_table.h"
#include "contract/parameter_values.h"

namespace inflight::contract {
namespace {

using TextContext = ParameterContext<TextParameters>;
using TextEntry = ParameterEntry<TextParameters>;
using BlsContext = ParameterContext<BlsParameters>;
using BlsEntry = ParameterEntry<BlsParameters>;

constexpr auto* AcceptText = &AcceptParameter<TextParameters>;
constexpr auto* RefuseText = &RefuseParameter<TextParameters>;
constexpr auto* AcceptBls = &AcceptParameter<BlsParameters>;
constexpr auto* RefuseBls = &RefuseParameter<BlsParameters>;

Status TokenizerDir(const std::string& value, TextContext& context) {
  context.out.tokenizer_dir = value;
  return Status::Ok();
}

Status SpecialTokens(const std::string& value, TextContext& context) {
  const auto flag = TokenizerBool(value);
  if (!flag) WarnDefault(value, context);
  if (flag) context.out.special_tokens = *flag;
  return Status::Ok();
}

// The kinds that 0.5 to 0.8 know; the files themselves say which tokenizer they are.
Status TokenizerType(const std::string& value, TextContext& context) {
  context.ignored = std::string(context.note);
  for (const std::string_view kind : {"auto", "llama", "t5", "sp"}) {
    if (value == kind) return Status::Ok();
  }
  WarnDefault(value, context);
  return Status::Ok();
}

std::string ShowTokenizerDir(const TextParameters&) { return "beside the engine"; }
std::string ShowSpecialTokens(const TextParameters& p) {
  return p.special_tokens ? "true" : "false";
}

constexpr std::string_view kHostMemory = "tensors are always in host memory";
constexpr std::string_view kKindIsKnown = "the tokenizer's files say their kind";
constexpr std::string_view kTextOnly = "only pictures and videos need it, which are refused";

constexpr auto kPreprocessing = std::to_array<TextEntry>({
    {"FORCE_CPU_ONLY_INPUT_TENSORS", AcceptText, kHostMemory},
    {"add_special_tokens", SpecialTokens, {}, ShowSpecialTokens},
    {"engine_dir", AcceptText, kTextOnly},
    {"gpt_model_path", AcceptText, kTextOnly},
    {"hf_model_path", AcceptText, kTextOnly},
    {"max_num_images", AcceptText, kTextOnly},
    {"multimodal_model_path", RefuseText},
    {"tokenizer_dir", TokenizerDir, {}, ShowTokenizerDir},
    {"tokenizer_type", TokenizerType, kKindIsKnown},
    {"visual_model_path", RefuseText},
});

constexpr auto kPostprocessing = std::to_array<TextEntry>({
    {"FORCE_CPU_ONLY_INPUT_TENSORS", AcceptText, kHostMemory},
    {"skip_special_tokens", SpecialTokens, {}, ShowSpecialTokens},
    {"tokenizer_dir", TokenizerDir, {}, ShowTokenizerDir},
    {"tokenizer_type", TokenizerType, kKindIsKnown},
});

// True for true, yes, 1, t in any case; upstream takes everything else for false.
Status AccumulateTokens(const std::string& value, BlsContext& context) {
  const std::string lower = AsciiLower(value);
  const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), lower) != words.end();
  };
  context.out.accumulate_tokens = is_one_of({"true", "yes", "1", "t"});
  if (!context.out.accumulate_tokens && !is_one_of({"false", "no", "0", "f"})) {
    WarnDefault(value, context);
  }
  return Status::Ok();
}

template <std::string BlsParameters::*kField>
Status Name(const std::string& value, BlsContext& context) {
  context.out.*kField = value;
  return Status::Ok();
}
template <std::string BlsParameters::*kField>
std::string ShowName(const BlsParameters& p) {
  return p.*kField;
}
std::string ShowAccumulate(const BlsParameters& p) {
  return p.accumulate_tokens ? "true" : "false";
}

constexpr auto kBls = std::to_array<BlsEntry>({
    {"FORCE_CPU_ONLY_INPUT_TENSORS", AcceptBls, kHostMemory},
    {"accumulate_tokens", AccumulateTokens, {}, ShowAccumulate},
    {"multimodal_encoders_name", RefuseBls},
    {"postprocessing_model_name",
     Name<&BlsParameters::postprocessing>,
     {},
     ShowName<&BlsParameters::postprocessing>},
    {"preprocessing_model_name",
     Name<&BlsParameters::preprocessing>,
     {},
     ShowName<&BlsParameters::preprocessing>},
    {"tensorrt_llm_draft_model_name",
     Name<&BlsParameters::draft_llm>,
     {},
     ShowName<&BlsParameters::draft_llm>},
    {"tensorrt_llm_model_name", Name<&BlsParameters::llm>, {}, ShowName<&BlsParameters::llm>},
});

}  // namespace

Result<TextParameters> ParsePreprocessingParameters(const ParameterMap& parameters,
                                                    bool default_add_special_tokens,
                                                    KeyReport* report) {
  TextParameters out;
  out.special_tokens = default_add_special_tokens;
  KeyReport lines;
  const Status status = ParseParameters<TextParameters>(kPreprocessing, parameters, out, &lines);
  for (KeyLine& line : lines) {  // the release's default, which is no option of the command line
    if (line.source == KeySource::kOption) line.source = KeySource::kDefault;
  }
  if (report != nullptr) report->insert(report->end(), lines.begin(), lines.end());
  RETURN_IF_ERROR(status);
  return out;
}

Result<TextParameters> ParsePostprocessingParameters(const ParameterMap& parameters,
                                                     KeyReport* report) {
  TextParameters out;
  RETURN_IF_ERROR(ParseParameters<TextParameters>(kPostprocessing, parameters, out, report));
  return out;
}

Result<BlsParameters> ParseBlsParameters(const ParameterMap& parameters, KeyReport* report) {
  BlsParameters out;
  RETURN_IF_ERROR(ParseParameters<BlsParameters>(kBls, parameters, out, report));
  return out;
}

}  // namespace inflight::contract
