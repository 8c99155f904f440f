// SPDX-License-Identifier: Apache-2.0
#include "receipts/engine.h"

#include <fmt/format.h>

#include <string_view>
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
  bool are_alike = one.weights == other.weights;
  ForEachOption([&](std::string_view, const auto& of) {
    are_alike = are_alike && of(one.open) == of(other.open);
  });
  return are_alike;
}

OpenOptions OptionsLike(const EngineRecord& engine, int64_t kv_tokens) {
  OpenOptions options{.device = engine.kernels.device == "cpu" ? "cpu" : "cuda"};
  ForEachOption([&](std::string_view, const auto& of) { of(options) = of(engine.open); });
  if (options.device == "cpu") options.ops = engine.kernels.table;
  ExecutorOptions& executor = options.executor;
  executor.max_kv_tokens = kv_tokens;
  executor.drafts = DraftSource::kNone;
  executor.deterministic = true;
  return options;
}

}  // namespace inflight::receipts
