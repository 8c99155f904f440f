// SPDX-License-Identifier: Apache-2.0
#include "ops/backend.h"

#include <fmt/format.h>

#include "base/log.h"
#include "ops/cpu/cpu.h"
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

Result<OpTable> FindOps(DeviceKind device, const ShapeClass& shape, std::string_view force_name) {
  if (device != DeviceKind::kCpu)
    return Unimplemented("device: cuda is not built into this program, use cpu");
  const std::vector<OpTable> tables = CpuOpTables(shape);
  if (force_name.empty()) {
    const OpTable& chosen = tables[cpu::FastestTable(shape)];
    logging::Info("kernels chosen", {{"ops", chosen.name},
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
  return NotFound(fmt::format("ops: got {}, here can run {}", force_name, NamesOf(tables)));
}

}  // namespace inflight::ops
