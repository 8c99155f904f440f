// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/streamed_integers.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/split_sums.h"
#include "ops/cuda/streamed_integers_args.h"
#include "ops/cuda/tensor_map.h"

namespace inflight::ops::cuda {
namespace {

using streamed_integers::kRows;

// Tokens from which on the kernel was faster than SkinnyIntegers, and up to which it was than
// widening (bench/results/h200-llama-3-8b.md).
constexpr int64_t kFewestTokens = 5;
constexpr int64_t kMostTokens = 256;

int SlabOf(const Weight& weight) { return SlabElements(CodeBits(weight)); }
int TileTokens(int64_t m) { return m <= 16 ? 16 : m <= 32 ? 32 : m <= 64 ? 64 : 128; }
int NumParts(const Weight& weight) {
  if (weight.group_size == 0) return 0;
  return weight.offsets == nullptr ? 1 : 2;
}

int StageBytes(const Weight& weight, int tokens) {
  const int x_bytes = SlabOf(weight) * 2 * tokens;
  const int parts = NumParts(weight);
  const int sums = parts == 2 ? SlabGroups(weight) * tokens * 4 : 0;
  const int bytes = kRows * kSlabBytes + x_bytes + parts * SlabGroups(weight) * kRows * 4 + sums;
  return (bytes + 1023) / 1024 * 1024;
}

Status DescribeAll(const GemmParams& p, const Weight& weight, int tokens,
                   streamed_integers::Maps* maps) {
  RETURN_IF_ERROR(Describe({.data = weight.data,
                            .dtype = DType::kI8,
                            .rows = p.n,
                            .columns = static_cast<int64_t>(BytesOf(weight.dtype, p.k)),
                            .box_rows = kRows,
                            .box_columns = kSlabBytes,
                            .is_swizzled = false},
                           &maps->codes));
  RETURN_IF_ERROR(Describe({.data = p.x,
                            .dtype = p.dtype,
                            .rows = p.m,
                            .columns = p.k,
                            .box_rows = tokens,
                            .box_columns = streamed_integers::kBoxBytes / 2},
                           &maps->x));
  if (weight.group_size == 0) return Status::Ok();
  BoxedMatrix scales = {.data = weight.scales,
                        .dtype = DType::kF32,
                        .rows = p.n / kScalePanelRows,
                        .columns = weight.num_groups() * kScalePanelRows,
                        .box_rows = kRows / kScalePanelRows,
                        .box_columns = SlabGroups(weight) * kScalePanelRows,
                        .is_swizzled = false};
  RETURN_IF_ERROR(Describe(scales, &maps->scales));
  if (weight.offsets == nullptr) return Status::Ok();
  scales.data = weight.offsets;
  return Describe(scales, &maps->offsets);
}

}  // namespace

bool StreamedIntegersCanRun(const GemmParams& p, const Weight& weight) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return weight.layout == WeightLayout::kTensorCore && IsHalf(p.dtype) &&
         (p.y_dtype == p.dtype || p.y_dtype == DType::kF32) && p.n < kMost && p.k < kMost / 4 &&
         p.m < kMost && SlabGroups(weight) <= streamed_integers::kMaxSlabGroups && IsAligned(p.x) &&
         IsAligned(weight.data) && IsAligned(weight.scales) && IsAligned(weight.offsets) &&
         streamed_integers::HasCode();
}

bool PreferStreamedIntegers(const GemmParams& p, const Weight& weight, const CudaStream& stream) {
  return !stream.is_fixed() && p.m >= kFewestTokens && p.m <= kMostTokens &&
         StreamedIntegersCanRun(p, weight);
}

// As many as give each multiprocessor about one and a half CTAs, with 4 slabs or more each.
int StreamedIntegersSplits(const GemmParams& p, const Weight& weight, const CudaStream& stream) {
  const int tokens = TileTokens(p.m);
  const int64_t tiles = (p.n + kRows - 1) / kRows * ((p.m + tokens - 1) / tokens);
  const int64_t slabs = p.k / SlabOf(weight);
  const int64_t ctas =
      streamed_integers::CtasPerSm(tokens) == 2 ? stream.num_sms() * 3 / 2 : stream.num_sms();
  return static_cast<int>(
      std::clamp<int64_t>(std::min(ctas / tiles, slabs / 4), 1, kMaxSummedSplits));
}

Status StreamedIntegers(const GemmParams& p, const Weight& weight, int num_splits,
                        CudaStream& stream) {
  if (p.m == 0 || p.n == 0) return Status::Ok();
  const int64_t slabs = p.k / SlabOf(weight);
  if (!StreamedIntegersCanRun(p, weight) || num_splits < 1 || num_splits > kMaxSummedSplits)
    return Unimplemented("no streamed product of " + std::string(DTypeName(weight.dtype)) +
                         " weights of [" + std::to_string(p.n) + ", " + std::to_string(p.k) +
                         "], groups of " + std::to_string(weight.group_size) + " (0: none), in " +
                         std::to_string(num_splits) +
                         " parts (streamed_integers.h says what it takes)");
  const int tokens = TileTokens(p.m);
  const int stage_bytes = StageBytes(weight, tokens);
  // Of a multiprocessor's memory each CTA has 1 KiB of the GPU's, 1 KiB for its barriers and 1 KiB
  // that aligns the ring.
  const int ctas = streamed_integers::CtasPerSm(tokens);
  const int limit =
      (static_cast<int>(stream.gpu().max_shared_bytes_per_block) + 1024) / ctas - 3 * 1024;
  const int sum_bytes = tokens * SplitSumStride(kRows) * 4;
  const int stages = std::clamp(limit / stage_bytes, 2, streamed_integers::kMaxStages);
  const ProductOutput out = OutputOf(p);
  streamed_integers::Maps maps = {};
  RETURN_IF_ERROR(DescribeAll(p, weight, tokens, &maps));
  const streamed_integers::Args args = {
      .num_slabs = static_cast<int>(slabs),
      .num_splits = num_splits,
      .m = static_cast<int>(p.m),
      .slab_groups = SlabGroups(weight),
      .group_slabs = static_cast<int>(std::max<int64_t>(1, weight.group_size / SlabOf(weight))),
      .has_offsets = weight.offsets != nullptr,
      .has_vectors = out.stride % 4 == 0 && IsAligned(p.y),
      .stages = stages,
      .stage_bytes = stage_bytes,
      .scales = weight.group_size == 0 ? weight.scales : nullptr,
      .out = out};
  const streamed_integers::LaunchPlan plan = {
      .dtype = p.dtype,
      .tokens = tokens,
      .shared_bytes = std::max(stages * stage_bytes, sum_bytes) + 1024};
  if (weight.dtype == DType::kI4) return streamed_integers::LaunchInt4(maps, args, plan, stream);
  return weight.dtype == DType::kI8 ? streamed_integers::LaunchInt8(maps, args, plan, stream)
                                    : streamed_integers::LaunchFp8(maps, args, plan, stream);
}

Status StreamedIntegers(const GemmParams& params, const Weight& weight, CudaStream& stream) {
  return StreamedIntegers(params, weight, StreamedIntegersSplits(params, weight, stream), stream);
}

}  // namespace inflight::ops::cuda
