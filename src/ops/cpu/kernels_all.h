// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, in the order in which they use each other. Included once by
// each instruction set's translation unit, after its Vec, MulAddPairs and MulAddQuads.
#pragma once

// clang-format off
#include "ops/cpu/kernels_tile.h"
#include "ops/cpu/kernels_operands.h"
#include "ops/cpu/kernels_panel.h"
#include "ops/cpu/kernels_fp8.h"
#include "ops/cpu/kernels_quantize.h"
#include "ops/cpu/kernels_math.h"
#include "ops/cpu/kernels_linear.h"
#include "ops/cpu/kernels_norm.h"
#include "ops/cpu/kernels_lora.h"
#include "ops/cpu/kernels_attention.h"
// clang-format on

namespace inflight::ops::cpu {
namespace {

template <typename Operand>
void AttendAs(const AttentionArgs& args) {
  RowsAttention<Operand> rows(args);
  rows.Run();
}

void Attend(const AttentionArgs& args) {
  switch (args.kv_element) {
    case Element::kF32:
      AttendAs<F32Operand>(args);
      return;
    case Element::kF16:
      AttendAs<F16Operand>(args);
      return;
    case Element::kBf16:
      AttendAs<Bf16Operand>(args);
      return;
  }
}

// With the integer kernels given, all others are those of this translation unit.
constexpr KernelSet KernelsWith(const char* name, void (*panel_int8)(const PanelArgs&),
                                void (*panel_int4)(const PanelArgs&),
                                void (*panel_fp4)(const PanelArgs&)) {
  return {.name = name,
          .panel_rows = kMaxRows,
          .panel_f32 = Panel<F32Operand>,
          .panel_f16 = Panel<F16Operand>,
          .panel_bf16 = Panel<Bf16Operand>,
          .panel_int8 = panel_int8,
          .panel_int4 = panel_int4,
          .panel_fp4 = panel_fp4,
          .panel_fp8 = PanelFp8<Panel<Bf16Operand>, kMaxRows>,
          .quantize = Quantize,
          .finish = Finish,
          .norm = NormToken,
          .attend = Attend,
          .cap = CapValues,
          .shrink = Shrink,
          .expand = Expand};
}

}  // namespace
}  // namespace inflight::ops::cpu
