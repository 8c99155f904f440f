// SPDX-License-Identifier: Apache-2.0
// The one table of what a request may say about how its tokens are chosen and what its answer
// holds. Beside a row a new parameter needs its formula (decoding/); from the row come
//
//   contract/llm_inputs.cc       the tensor of `tensorrt_llm`: reading it, judging its value
//   contract/text_inputs.cc      its name at the ensemble and at `tensorrt_llm_bls`
//   contract/model_tables.cc     the lists of tensors, and the links of the ensemble
//   executor/validation.cc       the same judgement of what a caller of the executor sets
//   tools/inflight/run_request.cc  members of a line of `inflight run --input`
//   tools/inflight/parameter_flags.cc  bounds of the flags of `chat` and of `run --prompt`
//   docs/reference/parameters.md   printed by `inflight parameters`
//
// Its field joins executor/request_fields.h, for journals and for ranks that are processes. Inputs
// that are no plain value of one field (prompts, ends) are in contract/{llm,text}_inputs.cc.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "inflight/request.h"
#include "inflight/status.h"
#include "parameters/domain.h"

namespace inflight::parameters {

// Where a parameter is kept. Its type is the parameter's: float, int, uint64_t or bool.
using Field = std::variant<std::optional<float> SamplingParams::*, float SamplingParams::*,
                           std::optional<int> SamplingParams::*, int SamplingParams::*,
                           std::optional<uint64_t> SamplingParams::*, bool SamplingParams::*,
                           int OutputOptions::*, bool OutputOptions::*>;
enum class Type : uint8_t { kFloat, kInteger, kUnsigned64, kBool };

// What 0 means where it is sent; in the field it would be a value like others.
enum class Zero : uint8_t {
  kValue,               // itself
  kNotSent,             // the same as nothing
  kNotSentAndNegative,  // so do all values below it
};

// The first release whose models have it: their minor number (0.5 is 5).
constexpr int kOurs = 0;  // no release's
// Places of rows among the inputs of the ensemble and of BLS; rows of one place are in the table's
// order.
constexpr int kAfterUpstreamRules = 50;
constexpr int kAfterUpstreamOutputs = 80;

// Of a rule that tokens are drawn by.
struct Draw {
  double above;                             // a larger value draws at random
  double below = kInfinity;                 // unless it reaches this one: the rule is off then
  std::optional<double> keeps_all_at = {};  // draws among all tokens: leaves a beam search alone
};

struct Parameter {
  std::string_view field;      // its name in SamplingParams or OutputOptions
  std::string_view llm_name;   // the input of `tensorrt_llm`
  std::string_view text_name;  // that of the ensemble, of BLS, and the member of `run`'s lines
  Field member;
  Domain domain = {};  // of the field
  Zero zero = Zero::kValue;
  std::optional<Draw> draw = {};
  std::string_view other_llm_name = {};  // another release's, or another spelling
  bool is_switch = false;                // an integer declared BOOL; true is 1
  bool is_in_generated_models = true;    // among the inputs of a model made from an engine
  int text_place = kAfterUpstreamRules;
  int llm_release = kOurs;   // that brought it to `tensorrt_llm`
  int text_release = kOurs;  // and to the ensemble and BLS
  std::string_view unsent;   // what holds where it is not sent
  std::string_view meaning;  // Markdown, with the formula's source
};

// In the order of `tensorrt_llm`'s inputs.
std::span<const Parameter> All();
Type TypeOf(const Parameter& parameter);

// The values that a request may send: those of the field, and those that are as if not sent.
Domain DomainAtTheDoor(const Parameter& parameter);

// Judges what a request sends and fills the field, unless the value is as if not sent.
// kInvalidArgument "NAME: got -1, must be at least 0", NAME being the caller's. T is the
// parameter's type.
template <typename T>
Status Set(const Parameter& parameter, std::string_view name, T value, Request& request);

// Whether this parameter of a request asks for a draw, and whether one that a beam search has no
// use for: one that leaves tokens out.
bool AsksToDraw(const Parameter& parameter, const SamplingParams& sampling);
bool LeavesTokensOut(const Parameter& parameter, const SamplingParams& sampling);
// Whether the request's tokens are drawn at random; otherwise each is the likeliest.
bool IsDrawn(const SamplingParams& sampling);
// The value of a rule, for errors; "unset" where it is not.
std::string ValueText(const Parameter& parameter, const SamplingParams& sampling);

// Judges all fields. kInvalidArgument "FIELD: got -1, must be at least 0" for the first that is out
// of its domain. What depends on an engine's limits is executor/validation.h's.
Status CheckDomains(const Request& request);

}  // namespace inflight::parameters
