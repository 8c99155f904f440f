// SPDX-License-Identifier: Apache-2.0
#include "ops/backend.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/status_macros.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/reference/reference.h"

namespace inflight::ops {
namespace {

OpTable ReferenceTable() {
  return {.embed = reference::Embed,
          .add_norm = reference::AddNorm,
          .qkv_rope_kv = reference::QkvRopeKv,
          .attention = reference::Attention,
          .linear = reference::Linear,
          .gated_linear = reference::GatedLinear,
          .lm_head = reference::LmHead,
          .route = reference::Route,
          .expert_gated_linear = reference::ExpertGatedLinear,
          .expert_linear = reference::ExpertLinear,
          .quantize = reference::Quantize,
          .name = "reference"};
}

std::string NamesOf(const std::vector<OpTable>& tables) {
  std::string names;
  for (const OpTable& table : tables) names += (names.empty() ? "" : ", ") + table.name;
  return names;
}

}  // namespace

std::vector<OpTable> CpuOpTables(const ShapeClass& shape) {
  std::vector<OpTable> tables = cpu::OpTables(shape);
  tables.push_back(ReferenceTable());
  return tables;
}

std::vector<OpTable> CudaOpTables(const ShapeClass& shape, const Device& device) {
  return cuda::OpTables(shape, device);
}

Result<std::unique_ptr<Stream>> MakeStream(Device& device, const ShapeClass& shape,
                                           int max_num_tokens, int max_num_rows, OpChoice choice) {
  if (device.kind() == DeviceKind::kCuda)
    return cuda::MakeStream(device, shape, max_num_tokens, max_num_rows, choice);
  return std::make_unique<Stream>(device);
}

uint64_t StreamBytes(DeviceKind device, const ShapeClass& shape, int max_num_tokens,
                     int max_num_rows) {
  return device == DeviceKind::kCuda ? cuda::StreamBytes(shape, max_num_tokens, max_num_rows) : 0;
}

Status TuneLinears(std::span<const LinearShape> shapes, Stream& stream) {
  const bool is_cuda = stream.device().kind() == DeviceKind::kCuda;
  return is_cuda ? cuda::TuneLinears(shapes, stream) : Status::Ok();
}

std::string SaveTuning(Stream& stream) {
  const bool is_cuda = stream.device().kind() == DeviceKind::kCuda;
  return is_cuda ? cuda::SaveTuning(stream) : std::string();
}

Status LoadTuning(std::string_view text, Stream& stream) {
  const bool is_cuda = stream.device().kind() == DeviceKind::kCuda;
  return is_cuda ? cuda::LoadTuning(text, stream) : Status::Ok();
}

Status CheckRunnable(const Device& device, const ShapeClass& shape) {
  const bool is_cuda = device.kind() == DeviceKind::kCuda;
  const bool has_fp8 = shape.weight_dtype == DType::kF8E4M3 || shape.kv_dtype == DType::kF8E4M3;
  if (!is_cuda && has_fp8)
    return Unimplemented(fmt::format(
        "cpu: {} needs an NVIDIA GPU{}; use --device cuda, or open the model without FP8",
        shape.weight_dtype == DType::kF8E4M3 ? "a model in FP8" : "a KV cache in FP8",
        shape.weight_dtype == DType::kF8E4M3 ? " of compute capability 8.9 or later" : ""));
  return is_cuda ? cuda::CheckRunnable(shape, device.cuda()) : Status::Ok();
}

Result<OpTable> FindOps(const Device& device, const ShapeClass& shape, std::string_view force_name,
                        OpChoice choice) {
  RETURN_IF_ERROR(CheckRunnable(device, shape));
  const bool is_cuda = device.kind() == DeviceKind::kCuda;
  const std::vector<OpTable> tables = is_cuda ? CudaOpTables(shape, device) : CpuOpTables(shape);
  if (force_name.empty()) {
    const bool tries = !is_cuda && choice == OpChoice::kFastest;
    const OpTable& chosen = tables[tries ? cpu::FastestTable(shape) : 0];
    logging::Info("kernels chosen", {{"ops", chosen.name},
                                     {"choice", choice == OpChoice::kFastest ? "fastest" : "fixed"},
                                     {"can_run", NamesOf(tables)},
                                     {"weights", DTypeName(shape.weight_dtype)}});
    if (chosen.name == "reference")
      logging::Warning(
          "no vector kernels for this processor or head size: expect a hundredth of the speed");
    return chosen;
  }
  for (const OpTable& table : tables) {
    if (table.name != force_name) continue;
    logging::Info("kernels forced", {{"ops", table.name}});
    return table;
  }
  return NotFound(fmt::format("ops: got {}, here can run {}", force_name, NamesOf(tables)))
      .WithField("ops");
}

}  // namespace inflight::ops
