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
// Panels of an item, whose sums wait together for the next part of k.
constexpr int kMaxPanels = 4;
// Of a row of x: 256 of them fill half of a second-level cache of 2 MiB.
constexpr int64_t kPartBytes = 4096;

class PanelRunner {
 public:
  PanelRunner(const KernelSet& kernels, const Product& product)
      : p_(product),
        panel_(PanelKernelOf(kernels, product.weight->dtype)),
        panel_rows_(PanelRows(kernels, product.weight->dtype)),
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

  // Features [64 panel, 64 (panel + num_panels)) of rows [first, last); panels of both branches
  // together at most kMaxPanels.
  void Run(int64_t panel, int num_panels, int64_t first, int64_t last) const {
    for (int64_t row = first; row < last; row += panel_rows_)
      RunRows(panel, num_panels, row, static_cast<int>(std::min(panel_rows_, last - row)));
  }

 private:
  using Sums = float[kMaxPanelRows * kPanelColumns];

  void RunRows(int64_t panel, int num_panels, int64_t first, int num_rows) const {
    alignas(64) Sums sums[kMaxPanels];
    const void* x[kMaxPanelRows];
    for (int r = 0; r < num_rows; ++r)
      x[r] = is_integer_ ? rounded_.values + (first + r) * rounded_.stride : RowOfX(p_, first + r);
    // Many rows pass in parts of k: their x stays in the second-level cache for all panels.
    const int64_t in_features = p_.weight->in_features;
    const int64_t part = num_rows > kMaxRows ? kPartBytes / (is_integer_ ? 1 : 2)
                                             : std::max<int64_t>(1, in_features);
    int64_t begin = 0;
    do {
      const int64_t end = std::min(in_features, begin + part);
      for (int i = 0; i < num_panels; ++i) {
        Multiply(*p_.weight, panel + i, x, first, num_rows, begin, end, sums[i]);
        if (p_.up != nullptr)
          Multiply(*p_.up, panel + i, x, first, num_rows, begin, end, sums[num_panels + i]);
      }
      begin = end;
    } while (begin < in_features);
    for (int i = 0; i < num_panels; ++i)
      FinishPanel(panel + i, first, num_rows, sums[i],
                  p_.up == nullptr ? nullptr : sums[num_panels + i]);
  }

  // `up_sums` are of the other branch, where there is one.
  void FinishPanel(int64_t panel, int64_t first, int num_rows, float* sums, float* up_sums) const {
    void* y[kMaxPanelRows];
    const int64_t column = panel * kPanelColumns;
    for (int r = 0; r < num_rows; ++r)
      y[r] = static_cast<std::byte*>(RowOf(*p_.y, first + r)) +
             static_cast<size_t>(column) * SizeOf(p_.y->dtype);
    const auto num_columns =
        static_cast<int>(std::min<int64_t>(kPanelColumns, p_.weight->out_features - column));
    AddAdapters(lora_, first, num_rows, column, num_columns, sums);
    if (p_.up != nullptr) AddAdapters(up_lora_, first, num_rows, column, num_columns, up_sums);
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

  // `x` are the rows from `first` on, of which elements [begin, end) are multiplied.
  void Multiply(const Weight& weight, int64_t panel, const void* const* x, int64_t first,
                int num_rows, int64_t begin, int64_t end, float* sums) const {
    PanelArgs args = {.x = x,
                      .num_rows = num_rows,
                      .panel = static_cast<const std::byte*>(weight.data) +
                               static_cast<size_t>(panel) * panel_bytes_,
                      .in_features = weight.in_features,
                      .sums = sums,
                      .begin = begin,
                      .end = end};
    ScaledOperands operands(weight, panel * kPanelColumns, args);
    if (is_integer_)
      for (int r = 0; r < num_rows; ++r) operands.SetRow(r, rounded_, first + r);
    panel_(args);
  }

  const Product& p_;
  const PanelKernel panel_;
  const int64_t panel_rows_;
  void (*const finish_)(const FinishArgs&);
  void (*const cap_)(const CapArgs&);
  const size_t panel_bytes_;
  const bool is_integer_;
  const RoundedRows rounded_;
  const LoraSums lora_;
  const LoraSums up_lora_;
};

int64_t RoundedUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// How the work is cut into items: of panels, and of rows.
struct Blocks {
  int64_t num_panels = 0;
  int64_t panels = 1;  // of an item
  int64_t rows = 0;    // of an item
  int64_t num_row_parts = 1;

  int64_t size() const { return (num_panels + panels - 1) / panels * num_row_parts; }
};

Blocks BlocksOf(const KernelSet& kernels, const Product& p, int num_threads) {
  Blocks blocks;
  blocks.num_panels = (p.weight->out_features + kPanelColumns - 1) / kPanelColumns;
  const int64_t panel_rows = PanelRows(kernels, p.weight->dtype);
  if (panel_rows > kMaxRows && p.num_rows > kMaxRows) {
    // Parts of rows of equal size, give or take a tile; panels as many as share a part of x.
    blocks.num_row_parts = (p.num_rows + panel_rows - 1) / panel_rows;
    blocks.rows = RoundedUp((p.num_rows + blocks.num_row_parts - 1) / blocks.num_row_parts, 16);
    blocks.num_row_parts = (p.num_rows + blocks.rows - 1) / blocks.rows;
    blocks.panels = p.up == nullptr ? kMaxPanels : kMaxPanels / 2;
    while (blocks.panels > 1 && blocks.size() < 2 * num_threads) blocks.panels /= 2;
    return blocks;
  }
  // Few panels and many rows: cut the rows too, so that every thread has work.
  const int64_t parts =
      blocks.num_panels >= 4 * num_threads ? 1 : (p.num_rows + kMaxRows - 1) / kMaxRows;
  blocks.rows = RoundedUp((p.num_rows + parts - 1) / parts, kMaxRows);
  blocks.num_row_parts = parts;
  return blocks;
}

void Run(const KernelSet& kernels, const Product& product, Stream& stream) {
  const int64_t num_rows = product.num_rows;
  const int64_t out_features = product.weight->out_features;
  if (num_rows == 0) return;
  CpuPool& pool = stream.cpu_pool();
  if (IsInteger(product.weight->dtype)) RoundRows(kernels, product, pool);
  const PanelRunner runner(kernels, product);
  runner.Begin(pool);
  const Blocks blocks = BlocksOf(kernels, product, pool.num_threads());
  pool.ParallelFor(
      blocks.size(),
      [&](int64_t i) {
        const int64_t panel = i / blocks.num_row_parts * blocks.panels;
        const int64_t first = i % blocks.num_row_parts * blocks.rows;
        runner.Run(panel, static_cast<int>(std::min(blocks.num_panels - panel, blocks.panels)),
                   first, std::min(num_rows, first + blocks.rows));
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
