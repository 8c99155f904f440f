// SPDX-License-Identifier: Apache-2.0
#include "builder/pack.h"

#include <algorithm>
#include <memory>

#include "builder/quantize.h"

namespace inflight::builder {
namespace {

using model::WeightSlot;

constexpr int64_t kPanelRows = 64;  // of every packed layout (ops/weight.h)
constexpr int64_t kTableRowsPerItem = 256;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Rows of a matrix in the dtype that it is stored in.
void CopyStoredRows(const WeightSource& source, const WeightSlot& slot, int64_t row,
                    int64_t num_rows, void* out) {
  const DType stored = StoredDType(source.config, slot);
  const DType dtype = CheckpointDType(source.config, slot);
  if (stored == dtype) return CopySlotRows(source, slot, row, num_rows, out);
  const int64_t width = slot.shape[1];
  std::vector<std::byte> rows(BytesOf(dtype, num_rows * width));
  CopySlotRows(source, slot, row, num_rows, rows.data());
  ops::PackWeight({rows.data(), dtype, {num_rows, width}}, stored, ops::WeightLayout::kRowMajor,
                  out);
}

// Rows of a table go to their place as they are.
void PackTable(const WeightSource& source, const WeightSlot& slot, CpuPool& pool,
               std::byte* target) {
  const size_t row_bytes = BytesOf(StoredDType(source.config, slot), slot.shape[1]);
  pool.ParallelFor(CeilDiv(slot.shape[0], kTableRowsPerItem), [&](int64_t item) {
    const int64_t row = item * kTableRowsPerItem;
    CopySlotRows(source, slot, row, std::min(kTableRowsPerItem, slot.shape[0] - row),
                 target + static_cast<size_t>(row) * row_bytes);
  });
}

}  // namespace

void PackMatrix(const model::ModelConfig& config, const WeightSlot& slot, DeviceKind device,
                const FillRows& fill, CpuPool& pool, std::byte* target) {
  const DType dtype = StoredDType(config, slot);
  const ops::WeightLayout layout = StoredLayout(config, slot, device);
  const int64_t width = slot.shape[1];
  const size_t panel_bytes = ops::WeightBytes(dtype, layout, kPanelRows, width);
  pool.ParallelFor(CeilDiv(slot.shape[0], kPanelRows), [&](int64_t panel) {
    const int64_t row = panel * kPanelRows;
    const int64_t num_rows = std::min(kPanelRows, slot.shape[0] - row);
    if (layout == ops::WeightLayout::kRowMajor)
      return fill(row, num_rows, target + static_cast<size_t>(panel) * panel_bytes);
    const auto rows = std::make_unique_for_overwrite<std::byte[]>(BytesOf(dtype, num_rows * width));
    fill(row, num_rows, rows.get());
    ops::PackWeight({rows.get(), dtype, {num_rows, width}}, dtype, layout,
                    target + static_cast<size_t>(panel) * panel_bytes);
  });
}

void PackRows(const WeightSource& source, const WeightSlot& slot, int64_t row, int64_t num_rows,
              std::byte* target) {
  const DType stored = StoredDType(source.config, slot);
  const DType dtype = CheckpointDType(source.config, slot);
  if (stored == dtype) return CopySlotRows(source, slot, row, num_rows, target);
  std::vector<std::byte> rounded(static_cast<size_t>(num_rows) * SizeOf(dtype));
  CopySlotRows(source, slot, row, num_rows, rounded.data());
  ops::PackWeight({rounded.data(), dtype, {1, num_rows}}, stored, ops::WeightLayout::kRowMajor,
                  target);
}

void PackSlot(const WeightSource& source, const WeightSlot& slot, DeviceKind device, CpuPool& pool,
              std::byte* target) {
  switch (slot.kind) {
    case WeightSlot::Kind::kScales:
    case WeightSlot::Kind::kOffsets:
      if (slot.shape.rank() == 1) return PackRows(source, slot, 0, slot.shape[0], target);
      [[fallthrough]];  // of groups: packed as a matrix
    case WeightSlot::Kind::kMatrix: {
      const auto fill = [&](int64_t row, int64_t num_rows, void* out) {
        CopyStoredRows(source, slot, row, num_rows, out);
      };
      return PackMatrix(source.config, slot, device, fill, pool, target);
    }
    case WeightSlot::Kind::kTable:
      return PackTable(source, slot, pool, target);
    case WeightSlot::Kind::kVector:
    case WeightSlot::Kind::kOrder:
      return PackRows(source, slot, 0, slot.shape[0], target);
  }
}

}  // namespace inflight::builder
