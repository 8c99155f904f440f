// SPDX-License-Identifier: Apache-2.0
// Panels outer, rows inner: an item is a panel of 64 output features (with its gate's partner), so
// each panel leaves DRAM once per step whatever the number of rows. With int8
// or int4 weights the rows are rounded first, once for both branches of a gated linear.
#include "ops/linear.h"

#include <algorithm>

#include "base/status_macros.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/launch.h"
#include "ops/cpu/lora.h"
#include "ops/cpu/panels.h"
#include "ops/validate.h"

namespace inflight::ops::cpu {
namespace {

// What the three linears have in common: y[r] = f(x[rows[r]] W^T), `up` for the gated one.
struct Product {
  const TensorView* x = nullptr;
  const int32_t* rows = nullptr;  // null: r itself
  int64_t num_rows = 0;
  const Weight* weight = nullptr;
  const float* bias = nullptr;
  const Weight* up = nullptr;
  const float* up_bias = nullptr;
  ActivationKind activation = ActivationKind::kNone;
  const TensorView* y = nullptr;
  const TensorView* scratch = nullptr;
  LoraTerm lora;
  LoraSite site = LoraSite::kDense;  // of weight; that of up is kGate
  float scale = 1;                   // of y, which is float32 where this or softcap is set
  float softcap = 0;
};

const void* RowOfX(const Product& p, int64_t row) {
  return RowOf(*p.x, p.rows == nullptr ? row : p.rows[row]);
}

RoundedRows RoundedRowsOf(const Product& p) { return {*p.weight, p.num_rows, *p.scratch}; }

void RoundRows(const KernelSet& kernels, const Product& p, CpuPool& pool) {
  RoundedRowsOf(p).Fill(
      kernels, [&](int64_t row) { return RowOfX(p, row); }, ElementOf(p.x->dtype), p.num_rows,
      p.weight->in_features, pool);
}

constexpr LoraTerm kNoLora;

class PanelRunner {
 public:
  PanelRunner(const KernelSet& kernels, const Product& product)
      : p_(product),
        panel_(PanelKernelOf(kernels, product.weight->dtype)),
        finish_(kernels.finish),
        cap_(kernels.cap),
        panel_bytes_(PanelBytes(*product.weight)),
        is_integer_(IsInteger(product.weight->dtype)),
        rounded_(RoundedRowsOf(product)),
        lora_(kernels, product.lora, product.site, /*index=*/0),
        up_lora_(kernels, product.up == nullptr ? kNoLora : product.lora, LoraSite::kGate,
                 /*index=*/1) {}

  // Before the panels: what they all read.
  void Begin(CpuPool& pool) const {
    if (!lora_.empty()) lora_.Shrink(*p_.x, pool);
    if (!up_lora_.empty()) up_lora_.Shrink(*p_.x, pool);
  }

  // Features [64 panel, 64 panel + 64) of rows [first, last).
  void Run(int64_t panel, int64_t first, int64_t last) const {
    for (int64_t row = first; row < last; row += kMaxRows)
      RunRows(panel, row, static_cast<int>(std::min<int64_t>(kMaxRows, last - row)));
  }

 private:
  void RunRows(int64_t panel, int64_t first, int num_rows) const {
    alignas(64) float sums[kMaxRows * kPanelColumns];
    alignas(64) float up_sums[kMaxRows * kPanelColumns];
    const void* x[kMaxRows];
    void* y[kMaxRows];
    const int64_t column = panel * kPanelColumns;
    for (int r = 0; r < num_rows; ++r) {
      const int64_t row = first + r;
      x[r] = is_integer_ ? rounded_.values + row * rounded_.stride : RowOfX(p_, row);
      y[r] = static_cast<std::byte*>(RowOf(*p_.y, row)) +
             static_cast<size_t>(column) * SizeOf(p_.y->dtype);
    }
    const auto num_columns =
        static_cast<int>(std::min<int64_t>(kPanelColumns, p_.weight->out_features - column));
    Multiply(*p_.weight, panel, x, first, num_rows, sums);
    AddAdapters(lora_, first, num_rows, column, num_columns, sums);
    if (p_.up != nullptr) {
      Multiply(*p_.up, panel, x, first, num_rows, up_sums);
      AddAdapters(up_lora_, first, num_rows, column, num_columns, up_sums);
    }
    finish_({.sums = sums,
             .bias = p_.bias == nullptr ? nullptr : p_.bias + column,
             .up_sums = p_.up == nullptr ? nullptr : up_sums,
             .up_bias = p_.up_bias == nullptr ? nullptr : p_.up_bias + column,
             .function = FunctionOf(p_.activation),
             .num_rows = num_rows,
             .num_columns = num_columns,
             .y_element = ElementOf(p_.y->dtype),
             .y = y});
    if (p_.softcap > 0 || p_.scale != 1)
      for (int r = 0; r < num_rows; ++r)
        cap_({static_cast<float*>(y[r]), num_columns, p_.scale, p_.softcap});
  }

  static void AddAdapters(const LoraSums& lora, int64_t first, int num_rows, int64_t column,
                          int num_columns, float* sums) {
    if (lora.empty()) return;
    for (int r = 0; r < num_rows; ++r)
      lora.Add(first + r, column, num_columns, sums + r * kPanelColumns);
  }

  // `x` are the rows from `first` on.
  void Multiply(const Weight& weight, int64_t panel, const void* const* x, int64_t first,
                int num_rows, float* sums) const {
    PanelArgs args = {.x = x,
                      .num_rows = num_rows,
                      .panel = static_cast<const std::byte*>(weight.data) +
                               static_cast<size_t>(panel) * panel_bytes_,
                      .in_features = weight.in_features,
                      .sums = sums};
    IntegerOperands operands(weight, panel * kPanelColumns, args);
    if (is_integer_)
      for (int r = 0; r < num_rows; ++r) operands.SetRow(r, rounded_, first + r);
    panel_(args);
  }

  const Product& p_;
  const PanelKernel panel_;
  void (*const finish_)(const FinishArgs&);
  void (*const cap_)(const CapArgs&);
  const size_t panel_bytes_;
  const bool is_integer_;
  const RoundedRows rounded_;
  const LoraSums lora_;
  const LoraSums up_lora_;
};

void Run(const KernelSet& kernels, const Product& product, Stream& stream) {
  const int64_t num_rows = product.num_rows;
  const int64_t out_features = product.weight->out_features;
  if (num_rows == 0) return;
  CpuPool& pool = stream.cpu_pool();
  if (IsInteger(product.weight->dtype)) RoundRows(kernels, product, pool);
  const PanelRunner runner(kernels, product);
  runner.Begin(pool);
  const int64_t num_panels = (out_features + kPanelColumns - 1) / kPanelColumns;
  // Few panels and many rows: cut the rows too, so that every thread has work.
  const int64_t row_parts =
      num_panels >= 4 * pool.num_threads() ? 1 : (num_rows + kMaxRows - 1) / kMaxRows;
  const int64_t rows_per_part =
      ((num_rows + row_parts - 1) / row_parts + kMaxRows - 1) / kMaxRows * kMaxRows;
  pool.ParallelFor(
      num_panels * row_parts,
      [&](int64_t i) {
        const int64_t first = i % row_parts * rows_per_part;
        runner.Run(i / row_parts, first, std::min(num_rows, first + rows_per_part));
      },
      ThreadsFor(num_rows * out_features * product.weight->in_features));
}

}  // namespace

Status Linear(const KernelSet& kernels, const LinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  RETURN_IF_ERROR(ExpectPacked("weight", p.weight));
  Run(kernels,
      {.x = &p.x.values,
       .num_rows = p.x.values.shape[0],
       .weight = &p.weight,
       .bias = p.bias.as<const float>(),
       .activation = p.activation,
       .y = &p.y,
       .scratch = &p.scratch,
       .lora = p.lora,
       .site = p.site},
      stream);
  return Status::Ok();
}

Status GatedLinear(const KernelSet& kernels, const GatedLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  RETURN_IF_ERROR(ExpectPacked("gate", p.gate));
  RETURN_IF_ERROR(ExpectPacked("up", p.up));
  Run(kernels,
      {.x = &p.x.values,
       .num_rows = p.x.values.shape[0],
       .weight = &p.gate,
       .bias = p.gate_bias.as<const float>(),
       .up = &p.up,
       .up_bias = p.up_bias.as<const float>(),
       .activation = p.activation,
       .y = &p.y,
       .scratch = &p.scratch,
       .lora = p.lora,
       .site = LoraSite::kFc},
      stream);
  return Status::Ok();
}

Status LmHead(const KernelSet& kernels, const LmHeadParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  RETURN_IF_ERROR(ExpectPacked("weight", p.weight));
  Run(kernels,
      {.x = &p.x.values,
       .rows = p.rows.as<const int32_t>(),
       .num_rows = p.rows.num_elements(),
       .weight = &p.weight,
       .bias = p.bias.as<const float>(),
       .y = &p.logits,
       .scratch = &p.scratch,
       .scale = p.scale,
       .softcap = p.softcap},
      stream);
  return Status::Ok();
}

}  // namespace inflight::ops::cpu
