// SPDX-License-Identifier: Apache-2.0
#include "builder/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace inflight::builder {
namespace {

constexpr int64_t kRowsPerItem = 256;

// Added once, after the sum over ranks (docs/reference/artifacts.md, "Ranks").
bool IsAddedOnce(std::string_view name) {
  return name.ends_with(".attention.dense.bias") || name.ends_with(".mlp.proj.bias");
}

WeightBlock RowsOf(const WeightPart& part, int64_t first, int64_t num_rows) {
  return {.row = part.row + first,
          .num_rows = num_rows,
          .column = part.column,
          .num_columns = part.num_columns};
}

// `block` of `recipe` in `dtype`.
std::vector<std::byte> Read(const WeightRecipe& recipe, const WeightBlock& block, DType dtype) {
  std::vector<std::byte> bytes(BytesOf(dtype, block.num_rows * block.num_columns));
  CopyBlock(recipe, block, dtype, bytes.data());
  return bytes;
}

bool IsZero(const std::vector<std::byte>& values) {
  return std::ranges::all_of(values, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

Status CheckCopies(const WeightSource& source, CpuPool& pool) {
  for (const WeightCopy& copy : source.copies) {
    const WeightRecipe& recipe = source.recipes.at(copy.name);
    const WeightRecipe alone{.shape = recipe.shape, .parts = {copy.part}};
    const DType dtype = copy.part.tensor->dtype;
    const bool may_be_zero = IsAddedOnce(copy.name);
    std::atomic<int64_t> differs = -1;
    pool.ParallelFor((copy.part.num_rows + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item) {
      const int64_t first = item * kRowsPerItem;
      const WeightBlock rows =
          RowsOf(copy.part, first, std::min(kRowsPerItem, copy.part.num_rows - first));
      const std::vector<std::byte> found = Read(alone, rows, dtype);
      if (found != Read(recipe, rows, dtype) && !(may_be_zero && IsZero(found))) differs = rows.row;
    });
    if (differs < 0) continue;
    const auto ends = [&](std::string_view end) { return copy.name.ends_with(end); };
    if (ends(".per_channel_scale") || ends(".weights_scaling_factor") || ends(".zero"))
      return Unimplemented(fmt::format(
          "{}: {}: {}: quantised weights that each rank scaled for its own columns are not "
          "merged; convert the Hugging Face model with `inflight convert`",
          source.where, copy.file, copy.part.tensor->name));
    return Status(
        StatusCode::kDataLoss,
        fmt::format("{}: {}: {} ({}) differs from the copy of another rank near row {}; the files "
                    "are not of one checkpoint, convert the model again",
                    source.where, copy.file, copy.part.tensor->name, copy.name, differs.load()));
  }
  return Status::Ok();
}

void FoldHead(WeightSource& source) {
  const auto head = source.recipes.find("lm_head.weight");
  if (head == source.recipes.end() || source.config.quantize_lm_head ||
      HasQuantizedTables(source.config))
    return;
  const WeightRecipe& table = source.recipes.at("transformer.vocab_embedding.weight");
  const DType dtype = head->second.parts.front().tensor->dtype;
  const auto has_dtype = [&](const WeightPart& part) { return part.tensor->dtype == dtype; };
  if (!std::ranges::all_of(head->second.parts, has_dtype) ||
      !std::ranges::all_of(table.parts, has_dtype))
    return;
  const int64_t num_rows = table.shape[0];
  for (int64_t row = 0; row < num_rows; row += kRowsPerItem) {
    const WeightBlock rows{.row = row,
                           .num_rows = std::min(kRowsPerItem, num_rows - row),
                           .num_columns = table.shape[1]};
    if (Read(table, rows, dtype) != Read(head->second, rows, dtype)) return;
  }
  source.recipes.erase(head);
  source.config.tied_embeddings = true;
}

}  // namespace inflight::builder
