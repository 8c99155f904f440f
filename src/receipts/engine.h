// SPDX-License-Identifier: Apache-2.0
// What computed an answer: the model, how it was opened, and by which kernels.
#pragma once

#include <string>

#include "inflight/open.h"

namespace inflight::receipts {

// Equal ones give equal bits with --deterministic (docs/executor.md, "Determinism").
struct Kernels {
  std::string table;    // "cpu/avx2", "cuda": OpTable::name
  std::string device;   // "cpu", or what the GPU calls itself: "NVIDIA H200"
  std::string dtype;    // that the model is computed in: "bfloat16"
  std::string program;  // the version of Inflight
  bool operator==(const Kernels&) const = default;

  std::string ToString() const;  // "cpu/avx2 on cpu in float32 of inflight 0.1.0"
};

struct EngineRecord {
  std::string weights;  // HashOfModel
  std::string architecture;
  std::string quant_algo;
  Kernels kernels;
  OpenOptions open;  // of which those of ForEachOption count
};

inline constexpr std::string_view kMoeEpSize = "moe_ep_size";
inline constexpr std::string_view kMoeTpSize = "moe_tp_size";

// Of an option of that name: a receipt leaves it out where it is unset.
constexpr bool IsLeftOutUnset(std::string_view name) {
  return name == kMoeEpSize || name == kMoeTpSize;
}

// The options that decide what is computed, in the order of receipts: visit(name, of), where
// of(options) is the option's place in an OpenOptions.
template <typename Visit>
void ForEachOption(const Visit& visit) {
  visit("dtype", [](auto& open) -> auto& { return open.dtype; });
  visit("quant_algo", [](auto& open) -> auto& { return open.quant_algo; });
  visit("group_size", [](auto& open) -> auto& { return open.group_size; });
  visit("fp8_kv_cache", [](auto& open) -> auto& { return open.fp8_kv_cache; });
  visit("quantize_lm_head", [](auto& open) -> auto& { return open.quantize_lm_head; });
  visit("tensor_parallel_size", [](auto& open) -> auto& { return open.tensor_parallel_size; });
  visit("pipeline_parallel_size", [](auto& open) -> auto& { return open.pipeline_parallel_size; });
  visit(kMoeEpSize, [](auto& open) -> auto& { return open.moe_ep_size; });
  visit(kMoeTpSize, [](auto& open) -> auto& { return open.moe_tp_size; });
  visit("block_size", [](auto& open) -> auto& { return open.executor.block_size; });
  visit("attention_windows", [](auto& open) -> auto& { return open.executor.attention_windows; });
  visit("sink_tokens", [](auto& open) -> auto& { return open.executor.sink_tokens; });
}

// Of a model that is open by `options`. `table` and `device` as of Kernels. Reads all its files.
Result<EngineRecord> RecordEngine(const ModelInfo& info, const OpenOptions& options,
                                  std::string table, std::string device);

// Whether both are of the same files, opened by the same options: one that is open by OptionsLike
// of the one computes what the other did.
bool AreOpenedAlike(const EngineRecord& one, const EngineRecord& other);

// How to open a model so that it computes as the recorded one did: deterministic, without drafts,
// by the recorded table where that is one of the CPU, with a KV cache of `kv_tokens`.
OpenOptions OptionsLike(const EngineRecord& engine, int64_t kv_tokens);

}  // namespace inflight::receipts
