// SPDX-License-Identifier: Apache-2.0
#include "parameters/parameters.h"

#include <fmt/format.h>

#include <array>
#include <type_traits>
#include <utility>

namespace inflight::parameters {
namespace {

using S = SamplingParams;
using O = OutputOptions;

constexpr Domain kAtLeast0 = {.low = 0};
constexpr Domain kUpTo1 = {.low = 0, .high = 1};                        // [0, 1]
constexpr Domain kShare = {.low = 0, .high = 1, .excludes_low = true};  // (0, 1]

// In the order of `tensorrt_llm`'s inputs.
constexpr auto kTable = std::to_array<Parameter>({
    {.field = "beam_width",
     .llm_name = "beam_width",
     .text_name = "beam_width",
     .member = &S::beam_width,
     .domain = {.low = 1},
     .text_place = 90,
     .llm_release = 5,
     .text_release = 5,
     .unsent = "1",
     .meaning = "so many best sequences are searched for together, up to the model's limit; 1 "
                "is no search: [Beam search](decoding.md#beam-search)"},

    {.field = "temperature",
     .llm_name = "temperature",
     .text_name = "temperature",
     .member = &S::temperature,
     .domain = kAtLeast0,
     .text_place = 12,
     .llm_release = 5,
     .text_release = 5,
     .unsent = "1",
     .meaning = "logits are divided by it (plus 1e-6, where it is not 1) before a draw; 0 is "
                "greedy: [Temperature](decoding.md#temperature)"},

    {.field = "top_k",
     .llm_name = "runtime_top_k",
     .text_name = "top_k",
     .member = &S::top_k,
     .domain = kAtLeast0,
     .draw = Draw{.above = 1},
     .text_place = 10,
     .llm_release = 5,
     .text_release = 5,
     .unsent = "0",
     .meaning = "draws among so many likeliest tokens, at most 1024 (arXiv:1805.04833); 1 is "
                "greedy, 0 is off: [Top-k](decoding.md#top-k)"},

    {.field = "top_p",
     .llm_name = "runtime_top_p",
     .text_name = "top_p",
     .member = &S::top_p,
     .domain = kUpTo1,
     .zero = Zero::kNotSentAndNegative,
     .draw = Draw{.above = 0, .keeps_all_at = 1},
     .text_place = 11,
     .llm_release = 5,
     .text_release = 5,
     .unsent = "off; 1 within top-k",
     .meaning = "draws among the likeliest tokens whose probabilities reach this sum: "
                "[Top-p](decoding.md#top-p-and-its-decay), arXiv:1904.09751"},

    {.field = "top_p_min",
     .llm_name = "runtime_top_p_min",
     .text_name = "top_p_min",
     .member = &S::top_p_min,
     .domain = kShare,
     .zero = Zero::kNotSent,
     .llm_release = 10,
     .unsent = "1e-6",
     .meaning = "top-p does not decay below it (factual-nucleus sampling, arXiv:2206.04624)"},

    {.field = "top_p_decay",
     .llm_name = "runtime_top_p_decay",
     .text_name = "top_p_decay",
     .member = &S::top_p_decay,
     .domain = kShare,
     .llm_release = 10,
     .unsent = "1",
     .meaning =
         "after each token drawn by top-p alone, top-p is multiplied by it (arXiv:2206.04624)"},

    {.field = "top_p_reset_id",
     .llm_name = "runtime_top_p_reset_ids",
     .text_name = "top_p_reset_ids",
     .member = &S::top_p_reset_id,
     .domain = {.low = -1, .words = "a token id, or -1 for none"},
     .llm_release = 10,
     .unsent = "-1",
     .meaning = "after this token top-p is the first one again"},

    {.field = "min_p",
     .llm_name = "min_p",
     .text_name = "min_p",
     .member = &S::min_p,
     .domain = kUpTo1,
     .zero = Zero::kNotSent,
     .draw = Draw{.above = 0},
     .text_place = 49,
     .unsent = "off",
     .meaning = "tokens less likely than this share of the likeliest are left out, before "
                "top-k and top-p: [Min-p](decoding.md#min-p), arXiv:2407.01082"},

    {.field = "typical_p",
     .llm_name = "typical_p",
     .text_name = "typical_p",
     .member = &S::typical_p,
     .domain = kShare,
     .draw = Draw{.above = 0, .below = 1},
     .unsent = "1",
     .meaning = "draws among the tokens whose information is nearest to the entropy, of this "
                "mass together: of what top-k, top-p and min-p leave (arXiv:2202.00666); 1 is "
                "off: [Typical-p](decoding.md#typical-p)"},

    {.field = "length_penalty",
     .llm_name = "len_penalty",
     .text_name = "length_penalty",
     .member = &S::length_penalty,
     .text_place = 13,
     .llm_release = 5,
     .text_release = 5,
     .unsent = "0",
     .meaning =
         "of beams: scores are divided by length ^ penalty (arXiv:1609.08144 has another base)"},

    {.field = "early_stopping",
     .llm_name = "early_stopping",
     .text_name = "early_stopping",
     .member = &S::early_stopping,
     .is_switch = true,
     .llm_release = 10,
     .unsent = "true",
     .meaning = "of beams: true or 1 ends with as many ended sequences as beams, false or 0 when "
                "no live one can pass them as "
                "it is; another INT32 as if they could reach `max_tokens`"},

    {.field = "repetition_penalty",
     .llm_name = "repetition_penalty",
     .text_name = "repetition_penalty",
     .member = &S::repetition_penalty,
     .domain = {.low = 0, .excludes_low = true},
     .text_place = 14,
     .llm_release = 5,
     .text_release = 5,
     .unsent = "1",
     .meaning = "logits of tokens that occurred are divided by it, negative ones multiplied: "
                "[Penalties](decoding.md#penalties), arXiv:1909.05858"},

    {.field = "min_tokens",
     .llm_name = "min_length",
     .text_name = "min_length",
     .member = &S::min_tokens,
     .domain = kAtLeast0,
     .other_llm_name = "min_tokens",
     .text_place = 15,
     .llm_release = 5,
     .text_release = 5,
     .unsent = "0",
     .meaning = "no end id before so many tokens were generated: [Minimal "
                "length](decoding.md#minimal-length)"},

    {.field = "beam_search_diversity_rate",
     .llm_name = "beam_search_diversity_rate",
     .text_name = "beam_search_diversity_rate",
     .member = &S::beam_search_diversity_rate,
     .domain = kAtLeast0,
     .llm_release = 10,
     .unsent = "0",
     .meaning = "of beams: rate times the beam's index is added where candidates are ordered, and "
                "not kept"},

    {.field = "presence_penalty",
     .llm_name = "presence_penalty",
     .text_name = "presence_penalty",
     .member = &S::presence_penalty,
     .text_place = 16,
     .llm_release = 5,
     .text_release = 5,
     .unsent = "0",
     .meaning = "is taken from the logits of tokens that occurred, once"},

    {.field = "frequency_penalty",
     .llm_name = "frequency_penalty",
     .text_name = "frequency_penalty",
     .member = &S::frequency_penalty,
     .text_place = 17,
     .llm_release = 8,
     .text_release = 8,
     .unsent = "0",
     .meaning = "is taken from the logits of tokens that occurred, as often as they did"},

    {.field = "prompt_ignore_length",
     .llm_name = "prompt_ignore_length",
     .text_name = "prompt_ignore_length",
     .member = &S::prompt_ignore_length,
     .domain = kAtLeast0,
     .unsent = "0",
     .meaning = "so many first tokens of the prompt do not count for the three penalties"},

    {.field = "no_repeat_ngram_size",
     .llm_name = "no_repeat_ngram_size",
     .text_name = "no_repeat_ngram_size",
     .member = &S::no_repeat_ngram_size,
     .domain = kAtLeast0,
     .other_llm_name = "noRepeatNgramSize",
     .unsent = "0",
     .meaning = "no sequence of so many tokens comes twice, at most 1024; 0 is off: [N-gram "
                "bans](decoding.md#n-gram-bans), arXiv:1705.04304"},

    {.field = "seed",
     .llm_name = "random_seed",
     .text_name = "random_seed",
     .member = &S::seed,
     .other_llm_name = "seed",
     .text_place = 60,
     .llm_release = 5,
     .text_release = 5,
     .unsent = "0",
     .meaning = "of the random numbers: the same request with the same seed has the same "
                "answer: [Random numbers](decoding.md#random-numbers)"},

    {.field = "num_return_sequences",
     .llm_name = "num_return_sequences",
     .text_name = "num_return_sequences",
     .member = &S::num_return_sequences,
     .domain = {.low = 1, .high = 1024},
     .is_in_generated_models = false,
     .llm_release = 14,
     .text_release = 14,
     .unsent = "1; of a beam search all beams",
     .meaning = "so many sequences, drawn with the seeds that follow; of a beam search the best"},

    {.field = "disable_speculation",
     .llm_name = "disable_speculation",
     .text_name = "disable_speculation",
     .member = &S::disable_speculation,
     .unsent = "false",
     .meaning = "leaves the server's own draft tokens out; they change no token: "
                "[Speculation](speculation.md)"},

    {.field = "return_log_probs",
     .llm_name = "return_log_probs",
     .text_name = "return_log_probs",
     .member = &O::return_log_probs,
     .other_llm_name = "output_log_probs",  // of all_models/gpt
     .text_place = 61,
     .llm_release = 6,
     .text_release = 6,
     .unsent = "false",
     .meaning = "asks for `output_log_probs` and `cum_log_probs`"},

    {.field = "return_context_logits",
     .llm_name = "return_context_logits",
     .text_name = "return_context_logits",
     .member = &O::return_context_logits,
     .text_place = 62,
     .llm_release = 8,
     .text_release = 8,
     .unsent = "false",
     .meaning = "asks for `context_logits`, of every prompt token"},

    {.field = "return_generation_logits",
     .llm_name = "return_generation_logits",
     .text_name = "return_generation_logits",
     .member = &O::return_generation_logits,
     .text_place = 63,
     .llm_release = 8,
     .text_release = 8,
     .unsent = "false",
     .meaning = "asks for `generation_logits`, which the tokens were chosen from"},

    {.field = "num_top_log_probs",
     .llm_name = "num_top_log_probs",
     .text_name = "num_top_log_probs",
     .member = &O::num_top_log_probs,
     .domain = kAtLeast0,
     .text_place = kAfterUpstreamOutputs,
     .unsent = "0",
     .meaning = "asks for `top_log_prob_ids` and `top_log_probs` of so many likeliest tokens, at "
                "most 256"},
});

template <typename T>
struct ValueOf {
  using type = T;
};
template <typename T>
struct ValueOf<std::optional<T>> {
  using type = T;
};

template <typename T>
T& At(Request& request, T SamplingParams::*member) {
  return request.sampling.*member;
}
template <typename T>
T& At(Request& request, T OutputOptions::*member) {
  return request.output.*member;
}

// The number that a rule has; none where it is not set, and of what is no rule.
std::optional<double> ValueIn(const Parameter& parameter, const SamplingParams& sampling) {
  return std::visit(
      [&](auto member) -> std::optional<double> {
        if constexpr (std::is_invocable_v<decltype(member), const SamplingParams&>) {
          const std::optional value = sampling.*member;
          if (value) return static_cast<double>(*value);
        }
        return std::nullopt;
      },
      parameter.member);
}

bool IsAsNotSent(const Parameter& parameter, double value) {
  return (parameter.zero != Zero::kValue && value == 0) ||
         (parameter.zero == Zero::kNotSentAndNegative && value < 0);
}

template <typename T>
Status OutOf(const Domain& domain, std::string_view name, T value) {
  return InvalidArgument(
      name, fmt::format("got {}, must be {}", value, ToText(domain, std::is_integral_v<T>)));
}

template <typename T>
constexpr bool kHasDomain = std::is_same_v<T, float> || std::is_same_v<T, int>;

}  // namespace

std::span<const Parameter> All() { return kTable; }

Type TypeOf(const Parameter& parameter) {
  return std::visit(
      []<typename T, typename Holder>(T Holder::*) {
        using Value = typename ValueOf<T>::type;
        if constexpr (std::is_same_v<Value, float>) {
          return Type::kFloat;
        } else if constexpr (std::is_same_v<Value, int>) {
          return Type::kInteger;
        } else if constexpr (std::is_same_v<Value, uint64_t>) {
          return Type::kUnsigned64;
        } else {
          return Type::kBool;
        }
      },
      parameter.member);
}

Domain DomainAtTheDoor(const Parameter& parameter) {
  Domain domain = parameter.domain;
  if (parameter.zero != Zero::kValue) domain.excludes_low = false;
  if (parameter.zero == Zero::kNotSentAndNegative) domain.low = -kInfinity;
  return domain;
}

template <typename T>
Status Set(const Parameter& parameter, std::string_view name, T value, Request& request) {
  if constexpr (kHasDomain<T>) {
    if (IsAsNotSent(parameter, static_cast<double>(value))) return Status::Ok();
    if (!parameter.domain.Contains(static_cast<double>(value)))
      return OutOf(DomainAtTheDoor(parameter), name, value);
  }
  std::visit(
      [&]<typename F, typename Holder>(F Holder::*member) {
        if constexpr (std::is_same_v<typename ValueOf<F>::type, T>) At(request, member) = value;
      },
      parameter.member);
  return Status::Ok();
}

template Status Set(const Parameter&, std::string_view, float, Request&);
template Status Set(const Parameter&, std::string_view, int, Request&);
template Status Set(const Parameter&, std::string_view, uint64_t, Request&);
template Status Set(const Parameter&, std::string_view, bool, Request&);

bool AsksToDraw(const Parameter& parameter, const SamplingParams& sampling) {
  if (!parameter.draw) return false;
  const std::optional<double> value = ValueIn(parameter, sampling);
  return value && *value > parameter.draw->above && *value < parameter.draw->below;
}

bool LeavesTokensOut(const Parameter& parameter, const SamplingParams& sampling) {
  return AsksToDraw(parameter, sampling) &&
         ValueIn(parameter, sampling) != parameter.draw->keeps_all_at;
}

bool IsDrawn(const SamplingParams& sampling) {
  if (sampling.top_k == 1 || sampling.temperature == 0.0F) return false;
  for (const Parameter& parameter : kTable) {
    if (AsksToDraw(parameter, sampling)) return true;
  }
  return false;
}

std::string ValueText(const Parameter& parameter, const SamplingParams& sampling) {
  return std::visit(
      [&](auto member) -> std::string {
        if constexpr (std::is_invocable_v<decltype(member), const SamplingParams&>) {
          const std::optional value = sampling.*member;
          if (value) return fmt::format("{}", *value);
        }
        return "unset";
      },
      parameter.member);
}

Status CheckDomains(const Request& request) {
  for (const Parameter& parameter : kTable) {
    Status status = std::visit(
        [&]<typename F, typename Holder>(F Holder::*member) {
          using Value = typename ValueOf<F>::type;
          if constexpr (kHasDomain<Value>) {
            const std::optional<Value> value = At(const_cast<Request&>(request), member);
            if (value && !parameter.domain.Contains(static_cast<double>(*value)))
              return OutOf(parameter.domain, parameter.field, *value);
          }
          return Status::Ok();
        },
        parameter.member);
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

}  // namespace inflight::parameters
