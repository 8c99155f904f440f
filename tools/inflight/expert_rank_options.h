// SPDX-License-Identifier: Apache-2.0
// The options that say which ranks hold which experts (docs/multi-gpu.md, "Experts by rank"), of
// commands that split models and of those that open them.
#pragma once

#include <string>

#include "config/schema.h"

namespace inflight::tool {

// Declares --moe-ep-size and --moe-tp-size in `schema`, whose fields `ep` and `tp` give;
// `otherwise` completes "Default: ".
template <typename Options, typename Ep, typename Tp>
void AddExpertRanks(config::Schema<Options>& schema, const Ep& ep, const Tp& tp,
                    const std::string& otherwise) {
  constexpr double kMost = 4096;
  schema.Add("moe_ep_size", ep,
             "Of the tensor-parallel ranks so many hold different experts, whole ones unless "
             "moe_tp_size cuts them; it divides the number of experts. Default: " +
                 otherwise + " -1 is the default.",
             config::Range(-1, kMost));
  schema.Add("moe_tp_size", tp,
             "Of the tensor-parallel ranks so many hold a part of the same experts each. Default: "
             "their number / moe_ep_size. -1 is the default.",
             config::Range(-1, kMost));
}

// Declares --enable-expert-parallel of vLLM in `schema`.
template <typename Options>
void AddEnableExpertParallel(config::Schema<Options>& schema, bool Options::*field) {
  schema.Add(
      "enable_expert_parallel", [field](Options& o) -> auto& { return o.*field; },
      "As of vLLM: --moe-tp-size 1, so that each rank holds experts of its own.", config::Switch());
  schema.Alias("-ep", "enable_expert_parallel");
}

}  // namespace inflight::tool
