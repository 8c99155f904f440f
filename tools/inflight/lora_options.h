// SPDX-License-Identifier: Apache-2.0
// What trtllm-build says of adapters (LoRA): which modules and ranks an engine takes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/schema.h"
#include "model/adapter.h"

namespace inflight::tool {

struct LoraOptions {
  std::string plugin = "disable";
  std::vector<std::string> target_modules;
  std::optional<int> max_rank;

  // Names may follow the first one without the flag, as argparse takes them: `more`. Without any of
  // the flags an engine takes all.
  Result<model::LoraLimits> Limits(std::span<const std::string> more) const;
};

template <typename Options, typename Access>
void AddLoraOptions(config::Schema<Options>& schema, Access access) {
  schema.Section("Adapters");
  schema.Add(
      "lora_plugin", [access](Options& o) -> auto& { return access(o).plugin; },
      "The engine's config.json says that it takes adapters (LoRA): a dtype or auto, without "
      "effect on it. One built without these three flags takes adapters of all modules, up to rank "
      "256.",
      config::OptionalValue());
  schema.Alias("use_lora_plugin", "lora_plugin");
  schema.Add(
      "lora_target_modules", [access](Options& o) -> auto& { return access(o).target_modules; },
      "Modules that adapters may have: attn_qkv, attn_q, attn_k, attn_v, attn_dense, mlp_h_to_4h, "
      "mlp_4h_to_h, mlp_gate. Several names may follow the flag.");
  schema.Add(
      "max_lora_rank", [access](Options& o) -> auto& { return access(o).max_rank; },
      "Rank of adapters, at most: 64 with --lora-plugin or --lora-target-modules, else 256.",
      config::Range(1, ops::kMaxLoraRank));
}

}  // namespace inflight::tool
