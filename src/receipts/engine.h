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
  // Of these only those that decide what is computed: dtype, quant_algo, group_size, fp8_kv_cache,
  // quantize_lm_head, ranks, and of the executor block_size, attention_windows and sink_tokens.
  OpenOptions open;
};

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
