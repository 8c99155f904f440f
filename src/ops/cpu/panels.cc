// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/panels.h"

#include <fmt/format.h>

#include <algorithm>

namespace inflight::ops::cpu {

static_assert(kMaxBlockGroups == ScaleBlocks::kMaxGroups);
static_assert(kBlockUnitBytes == ScaleBlocks::kUnitBytes);

PanelKernel PanelKernelOf(const KernelSet& kernels, DType dtype) {
  if (dtype == DType::kI8) return kernels.panel_int8;
  if (dtype == DType::kI4) return kernels.panel_int4;
  if (dtype == DType::kF4E2M1) return kernels.panel_fp4;
  if (dtype == DType::kF8E4M3) return kernels.panel_fp8;
  switch (ElementOf(dtype)) {
    case Element::kF32:
      return kernels.panel_f32;
    case Element::kF16:
      return kernels.panel_f16;
    case Element::kBf16:
      return kernels.panel_bf16;
  }
  return kernels.panel_f32;
}

int64_t PanelRows(const KernelSet& kernels, DType dtype) {
  const bool takes_parts = dtype == DType::kBF16 || dtype == DType::kF8E4M3 || IsInteger(dtype);
  return takes_parts ? kernels.panel_rows : kMaxRows;
}

size_t PanelBytes(const Weight& weight) {
  return WeightBytes(weight.dtype, weight.layout, kPanelColumns, weight.in_features);
}

Status ExpectPacked(const char* field, const Weight& weight) {
  const WeightLayout needed = CpuWeightLayout(weight.dtype);
  if (weight.layout == needed && reinterpret_cast<uintptr_t>(weight.data) % 64 == 0)
    return Status::Ok();
  return InvalidArgument(
      fmt::format("{}: got layout {} at {}, the vector kernels read {} at a multiple of 64 (pack "
                  "the weight, or "
                  "force ops to reference)",
                  field, WeightLayoutName(weight.layout), weight.data, WeightLayoutName(needed)));
}

RoundedRows::RoundedRows(const Weight& weight, int64_t num_rows, const TensorView& scratch) {
  if (!IsInteger(weight.dtype)) return;
  stride = RoundedRowBytes(weight.in_features);
  num_groups = weight.num_groups();
  order = weight.order;
  values = scratch.as<int8_t>();
  scales = reinterpret_cast<float*>(values + num_rows * stride);
  sums = reinterpret_cast<int32_t*>(scales + num_rows * num_groups);
}

ScaledOperands::ScaledOperands(const Weight& weight, int64_t feature, PanelArgs& args) {
  if (!IsInteger(weight.dtype) && !IsGroupedFp8(weight)) return;
  args.x_scales = scales_;
  args.x_sums = sums_;
  // Of a whole number of panels, so that groups lie in a row with it.
  const int64_t first = feature * weight.num_groups();
  if (weight.scales != nullptr) args.w_scales = weight.scales + first;
  if (weight.offsets != nullptr) args.w_offsets = weight.offsets + first;
  if (weight.exponents != nullptr) args.w_exponents = weight.exponents + first;
  const int64_t first_block = feature * weight.block_bytes();
  if (weight.scale_blocks != nullptr) args.w_scale_blocks = weight.scale_blocks + first_block;
  if (weight.offset_blocks != nullptr) args.w_offset_blocks = weight.offset_blocks + first_block;
  args.block_groups = weight.blocks.groups;
  args.block_bytes = weight.blocks.num_bytes();
  args.middle = weight.blocks.middle;
  args.group_size = weight.group_size;
  args.num_columns =
      static_cast<int>(std::min<int64_t>(kPanelColumns, weight.out_features - feature));
}

}  // namespace inflight::ops::cpu
