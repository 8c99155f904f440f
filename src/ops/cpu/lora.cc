// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/lora.h"

#include <algorithm>

#include "ops/cpu/launch.h"

namespace inflight::ops::cpu {
namespace {

constexpr int kRowsPerItem = 8;     // of A
constexpr int kTokensPerItem = 64;  // that an item's rows of A stay in the cache for

int Parts(int n, int size) { return (n + size - 1) / size; }

}  // namespace

LoraSums::LoraSums(const KernelSet& kernels, const LoraTerm& term, LoraSite site, size_t index)
    : kernels_(kernels), term_(term), site_(site) {
  if (term.batch == nullptr) return;
  LoraBatch& batch = *term.batch;
  for (const LoraBatch::Run& run : batch.runs()) {
    is_empty_ &= run.adapter->Of(term.layer, site).empty();
    stride_ = std::max<int64_t>(stride_, run.adapter->RankOf(term.layer, site));
  }
  std::vector<float>& sums = batch.sums[index];
  const size_t size = batch.tokens().size() * static_cast<size_t>(stride_);
  if (sums.size() < size) sums.resize(size);
  sums_ = sums.data();
}

void LoraSums::Shrink(const TensorView& x, CpuPool& pool) const {
  for (const LoraBatch::Run& run : term_.batch->runs()) {
    const int token_parts = Parts(run.num, kTokensPerItem);
    int first_sum = 0;
    for (const LoraPart& part : run.adapter->Of(term_.layer, site_)) {
      if (part.rank == 0) continue;  // a bias
      pool.ParallelFor(
          int64_t{Parts(part.rank, kRowsPerItem)} * token_parts,
          [&](int64_t i) {
            const auto first_row = static_cast<int>(i / token_parts) * kRowsPerItem;
            const int first = static_cast<int>(i % token_parts) * kTokensPerItem;
            ShrinkPart(x,
                       {.adapter = run.adapter,
                        .first = run.first + first,
                        .num = std::min(kTokensPerItem, run.num - first)},
                       part, first_sum, first_row, std::min(kRowsPerItem, part.rank - first_row));
          },
          ThreadsFor(int64_t{part.rank} * run.num * part.in_features));
      first_sum += part.rank;
    }
  }
}

void LoraSums::ShrinkPart(const TensorView& x, const LoraBatch::Run& run, const LoraPart& part,
                          int first_sum, int first_row, int num_rows) const {
  const int64_t stride = LoraStride(part.in_features);
  const auto* a = static_cast<const std::byte*>(part.a) +
                  static_cast<size_t>(first_row * stride) * SizeOf(part.dtype);
  for (int entry = run.first; entry < run.first + run.num; ++entry)
    kernels_.shrink({.x = RowOf(x, term_.batch->tokens()[static_cast<size_t>(entry)]),
                     .x_element = ElementOf(x.dtype),
                     .size = part.in_features,
                     .a = a,
                     .element = ElementOf(part.dtype),
                     .stride = stride,
                     .num_rows = num_rows,
                     .sums = sums_ + entry * stride_ + first_sum + first_row});
}

void LoraSums::Add(int64_t token, int64_t column, int num_columns, float* sums) const {
  const int entry = term_.batch->EntryOf(token);
  if (entry < 0) return;
  const float* shrunk = sums_ + entry * stride_;
  for (const LoraPart& part : term_.batch->AdapterOf(entry).Of(term_.layer, site_)) {
    const int64_t first = std::max(column, part.first_feature);
    const int64_t end = std::min(column + num_columns, part.first_feature + part.num_features);
    if (first < end && part.bias != nullptr)
      for (int64_t i = first; i < end; ++i) sums[i - column] += part.bias[i - part.first_feature];
    else if (first < end)
      kernels_.expand({.shrunk = shrunk,
                       .b = static_cast<const std::byte*>(part.b) +
                            static_cast<size_t>(first - part.first_feature) * SizeOf(part.dtype),
                       .element = ElementOf(part.dtype),
                       .stride = LoraStride(part.num_features),
                       .rank = part.rank,
                       .num_columns = static_cast<int>(end - first),
                       .sums = sums + (first - column)});
    shrunk += part.rank;
  }
}

}  // namespace inflight::ops::cpu
