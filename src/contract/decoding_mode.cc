// SPDX-License-Identifier: Apache-2.0
#include "contract/decoding_mode.h"

#include <array>

#include "base/log.h"
#include "parameters/parameters.h"

namespace inflight::contract {
namespace {

constexpr auto kNames =
    std::to_array<std::string_view>({"auto", "top_k", "top_p", "top_k_top_p", "beam_search",
                                     "medusa"});  // in the order of the enum

std::string_view NameOf(DecodingMode mode) { return kNames.at(static_cast<size_t>(mode)); }

// The input that asks for a draw from the whole vocabulary, of a request that has one.
std::string_view NucleusInput(const SamplingParams& sampling) {
  for (const parameters::Parameter& parameter : parameters::All()) {
    if (parameter.llm_name != "runtime_top_k" && parameters::AsksToDraw(parameter, sampling)) {
      return parameter.llm_name;
    }
  }
  return "runtime_top_p";
}

// Where the mode and the model say different things of Medusa.
std::string MedusaReason(DecodingMode asked, bool has_medusa) {
  const bool asks = asked == DecodingMode::kMedusa;
  if (asks == has_medusa) return "";
  return asks
             ? "medusa is replaced by auto, since no Medusa heads propose tokens"
             : "the model's Medusa heads propose tokens, which medusa would say; no answer depends "
               "on it";
}

}  // namespace

std::optional<DecodingMode> FindDecodingMode(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DecodingMode>(i);
  }
  return std::nullopt;
}

DecodingMode ResolveDecodingMode(DecodingMode asked, int max_beam_width, bool has_medusa,
                                 KeyReport* report) {
  const std::string medusa = MedusaReason(asked, has_medusa);
  if (!medusa.empty()) logging::Warning("decoding_mode: " + medusa);
  if (asked == DecodingMode::kMedusa) asked = DecodingMode::kAuto;
  DecodingMode mode = asked;
  std::string reason;
  if (max_beam_width > 1) {
    if (asked == DecodingMode::kAuto) {
      reason = "beam_search where beam_width is above 1, else top_k_top_p";
    }
  } else if (asked == DecodingMode::kAuto || asked == DecodingMode::kBeamSearch) {
    mode = DecodingMode::kTopKTopP;
    reason = "top_k_top_p, since max_beam_width is 1";
  }
  if (asked == DecodingMode::kBeamSearch && mode != asked) {
    logging::Warning("decoding_mode beam_search is replaced by top_k_top_p: max_beam_width is 1");
  }
  if (!medusa.empty()) reason = medusa + (reason.empty() ? "" : "; ") + reason;
  if (report == nullptr || reason.empty()) return mode;
  for (KeyLine& line : *report) {
    if (line.key == "decoding_mode") line.reason += (line.reason.empty() ? "" : "; ") + reason;
  }
  return mode;
}

Status CheckDecodingMode(DecodingMode mode, const SamplingParams& sampling,
                         const std::function<std::string(std::string_view)>& name_of) {
  const auto refuse = [&](std::string_view input, std::string_view remedy) {
    return InvalidArgument(name_of(input) + ": decoding_mode " + std::string(NameOf(mode)) +
                           " of the model has no sampler for it (" + std::string(remedy) + ")");
  };
  constexpr std::string_view kTakeAuto = "set decoding_mode to auto in its configuration";
  const bool has_beams = sampling.beam_width > 1;
  const bool serves_beams = mode == DecodingMode::kAuto || mode == DecodingMode::kMedusa ||
                            mode == DecodingMode::kBeamSearch;
  if (has_beams && !serves_beams) return refuse("beam_width", kTakeAuto);
  if (has_beams || !parameters::IsDrawn(sampling)) return Status::Ok();
  const bool has_top_k = sampling.top_k.value_or(0) > 1;
  switch (mode) {
    case DecodingMode::kAuto:
    case DecodingMode::kMedusa:
    case DecodingMode::kTopKTopP:
      return Status::Ok();
    case DecodingMode::kTopK:
      if (has_top_k) return Status::Ok();
      return refuse(NucleusInput(sampling), "send runtime_top_k above 0 with it");
    case DecodingMode::kTopP:
      return has_top_k ? refuse("runtime_top_k", "send 0, or runtime_top_p alone") : Status::Ok();
    case DecodingMode::kBeamSearch:
      return refuse(has_top_k ? "runtime_top_k" : NucleusInput(sampling), kTakeAuto);
  }
  return Status::Ok();
}

}  // namespace inflight::contract
