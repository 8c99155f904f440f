// SPDX-License-Identifier: Apache-2.0
#include "receipts/engine.h"

#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "base/status_macros.h"
#include "inflight/version.h"
#include "receipts/hashes.h"

namespace inflight::receipts {

std::string Kernels::ToString() const {
  return fmt::format("{} on {} in {} of inflight {}", table, device, dtype, program);
}

Result<EngineRecord> RecordEngine(const ModelInfo& info, const OpenOptions& options,
                                  std::string table, std::string device) {
  EngineRecord record{.architecture = info.architecture,
                      .quant_algo = info.quant_algo,
                      .kernels = {.table = std::move(table),
                                  .device = std::move(device),
                                  .dtype = info.dtype,
                                  .program = kVersion},
                      .open = options};
  ASSIGN_OR_RETURN(record.weights, HashOfModel(info.directory));
  return record;
}

bool AreOpenedAlike(const EngineRecord& one, const EngineRecord& other) {
  const auto what_decides = [](const EngineRecord& record) {
    const OpenOptions& open = record.open;
    return std::tie(record.weights, open.dtype, open.quant_algo, open.group_size, open.fp8_kv_cache,
                    open.quantize_lm_head, open.tensor_parallel_size, open.pipeline_parallel_size,
                    open.executor.block_size, open.executor.attention_windows,
                    open.executor.sink_tokens);
  };
  return what_decides(one) == what_decides(other);
}

OpenOptions OptionsLike(const EngineRecord& engine, int64_t kv_tokens) {
  const OpenOptions& from = engine.open;
  OpenOptions options{.device = engine.kernels.device == "cpu" ? "cpu" : "cuda",
                      .dtype = from.dtype,
                      .quant_algo = from.quant_algo,
                      .group_size = from.group_size,
                      .fp8_kv_cache = from.fp8_kv_cache,
                      .quantize_lm_head = from.quantize_lm_head,
                      .tensor_parallel_size = from.tensor_parallel_size,
                      .pipeline_parallel_size = from.pipeline_parallel_size};
  if (options.device == "cpu") options.ops = engine.kernels.table;
  ExecutorOptions& executor = options.executor;
  executor.block_size = from.executor.block_size;
  executor.attention_windows = from.executor.attention_windows;
  executor.sink_tokens = from.executor.sink_tokens;
  executor.max_kv_tokens = kv_tokens;
  executor.drafts = DraftSource::kNone;
  executor.deterministic = true;
  return options;
}

}  // namespace inflight::receipts
