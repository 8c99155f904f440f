// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/skinny_integers.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/skinny_integers_args.h"

namespace inflight::ops::cuda {
namespace skinny_integers {
namespace {

constexpr int kRingStages = 3;  // that x as a whole must leave room for

constexpr int HalfOf(int limit) { return (limit + 1024) / 2 - 1024; }

// Slabs that a group has, where it has several.
int GroupSlabs(const Weight& weight) {
  const int64_t slab = SlabElements(CodeBits(weight));
  return weight.group_size > slab ? static_cast<int>(weight.group_size / slab) : 0;
}

int StageBytes(const Weight& weight, int row_tiles, int num_tokens) {
  const int bits = CodeBits(weight);
  const int groups = weight.group_size == 0 ? 0 : SlabGroups(weight);
  const int scales = SlabsPerStage(row_tiles) * row_tiles * 16 * groups * 4;
  const int tokens = num_tokens * (StageElements(bits, row_tiles) * 2 + kTokenPadding);
  const int bytes =
      StageWeightBytes(row_tiles) + (weight.offsets == nullptr ? 1 : 2) * scales + tokens;
  return (bytes + 127) / 128 * 128;
}

int SumBytes(int row_tiles, int num_tokens) {
  return kWarps * num_tokens * SumStride(row_tiles) * 4;
}

// What a token takes in shared memory, all of k.
int64_t ResidentBytes(const Weight& weight) { return weight.in_features * 2 + kTokenPadding; }

// Whether a cut can be taken, asked for the most tokens that must have the same one.
bool Fits(const Weight& weight, int row_tiles, int64_t num_tokens, int limit) {
  const int most = num_tokens > 8 ? kMaxTokens : 8;
  return kWarps * 2 * StageBytes(weight, row_tiles, most) + SumBytes(row_tiles, most) <= limit;
}

int LimitOf(const CudaStream& stream) {
  return static_cast<int>(stream.gpu().max_shared_bytes_per_block);
}

// CTAs that share a multiprocessor, and so its memory, of which each CTA's own KiB is the GPU's.
int CtasPerSm(const Weight& weight, int row_tiles, int64_t num_tokens, const CudaStream& stream) {
  return Fits(weight, row_tiles, num_tokens, HalfOf(LimitOf(stream))) ? 2 : 1;
}

// How shared memory is divided: x as a whole where several tiles read it and it leaves room, and as
// many stages as are wanted and fit.
void LayOut(const Weight& weight, const IntegersCut& cut, bool has_several_tiles, int limit,
            Args& args, LaunchPlan& plan) {
  const int sums = SumBytes(cut.row_tiles, args.m);
  const int stage = StageBytes(weight, cut.row_tiles, 0);
  const int64_t x_bytes = args.m * ResidentBytes(weight);
  const int wanted = std::clamp(cut.stages, 2, kMaxStages);
  args.is_x_resident =
      has_several_tiles && sums + kWarps * std::min(wanted, kRingStages) * stage + x_bytes <= limit;
  args.stage_bytes = args.is_x_resident ? stage : StageBytes(weight, cut.row_tiles, args.m);
  const int rest = args.is_x_resident ? static_cast<int>(x_bytes) : 0;
  args.stages = std::clamp((limit - sums - rest) / (kWarps * args.stage_bytes), 2, wanted);
  const int bits = CodeBits(weight);
  args.x_stride = args.is_x_resident ? static_cast<int>(ResidentBytes(weight))
                                     : StageElements(bits, cut.row_tiles) * 2 + kTokenPadding;
  args.sums_at = kWarps * args.stages * args.stage_bytes + rest;
  plan.shared_bytes = args.sums_at + sums;
}

}  // namespace
}  // namespace skinny_integers

bool SkinnyIntegersCanRun(const GemmParams& p, const Weight& weight, const CudaStream& stream) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (weight.layout != WeightLayout::kTensorCore || !IsHalf(p.dtype) ||
      (p.y_dtype != p.dtype && p.y_dtype != DType::kF32))
    return false;
  if (p.m > skinny_integers::kMaxTokens || p.n >= kMost || p.k >= kMost / 4 || !IsAligned(p.x) ||
      !IsAligned(weight.data) || !IsAligned(weight.scales) || !IsAligned(weight.offsets))
    return false;
  for (int row_tiles = 1; row_tiles <= skinny_integers::kMaxRowTiles; ++row_tiles)
    if (skinny_integers::Fits(weight, row_tiles, p.m, skinny_integers::LimitOf(stream)))
      return true;
  return false;
}

bool PreferSkinnyIntegers(const GemmParams& p, const Weight& weight, const CudaStream& stream) {
  constexpr int64_t kMost = 32;
  if (stream.is_fixed() || p.m > kMost) return false;
  GemmParams launch = p;
  launch.m = std::min<int64_t>(p.m, skinny_integers::kMaxTokens);
  return SkinnyIntegersCanRun(launch, weight, stream);
}

// The height of tiles that leaves the fewest CTAs without one. Higher ones read x less
// often and add the warps' sums less often.
IntegersCut SkinnyIntegersCut(const GemmParams& p, const Weight& weight, const CudaStream& stream) {
  constexpr double kWorth[] = {0.93, 1.0, 1.0};
  constexpr double kWorthHigh[] = {0.85, 1.0, 1.1};  // of more than 8 tokens
  constexpr int kStages[] = {8, 8, 5};
  IntegersCut best;
  double best_score = 0;
  for (int row_tiles = 1; row_tiles <= skinny_integers::kMaxRowTiles; ++row_tiles) {
    if (!skinny_integers::Fits(weight, row_tiles, p.m, skinny_integers::LimitOf(stream))) continue;
    const int64_t tiles = (p.n + 16 * row_tiles - 1) / (16 * row_tiles);
    const int64_t ctas =
        stream.num_sms() * skinny_integers::CtasPerSm(weight, row_tiles, p.m, stream);
    // High tiles, where a multiprocessor has more than two, are computed side by side: barriers are
    // of fewer warps, and no CTA has one less than others. Of more than 8 tokens that was slower.
    const int64_t tiles_of_sm = (tiles + stream.num_sms() - 1) / stream.num_sms();
    const bool is_side_by_side = p.m <= 8 && row_tiles > 1 && tiles_of_sm > 2;
    const int64_t room =
        is_side_by_side ? tiles_of_sm * stream.num_sms() : (tiles + ctas - 1) / ctas * ctas;
    const double used = static_cast<double>(p.n) / static_cast<double>(room * 16 * row_tiles);
    const double score = used * (p.m > 8 ? kWorthHigh : kWorth)[row_tiles - 1];
    if (score <= best_score) continue;
    best_score = score;
    best = {.row_tiles = row_tiles,
            .split = is_side_by_side ? skinny_integers::kWarps / 2 : skinny_integers::kWarps,
            .stages = kStages[row_tiles - 1]};
  }
  return best;
}

Status SkinnyIntegers(const GemmParams& p, const Weight& weight, const IntegersCut& cut,
                      CudaStream& stream) {
  if (p.m == 0 || p.n == 0) return Status::Ok();
  const int limit = skinny_integers::LimitOf(stream);
  if (!SkinnyIntegersCanRun(p, weight, stream) || cut.row_tiles < 1 ||
      cut.row_tiles > skinny_integers::kMaxRowTiles ||
      !std::has_single_bit(static_cast<unsigned>(cut.split)) ||
      cut.split > skinny_integers::kWarps ||
      !skinny_integers::Fits(weight, cut.row_tiles, p.m, limit))
    return Unimplemented(
        "no streamed product of " + std::to_string(p.m) + " tokens and " +
        std::string(DTypeName(weight.dtype)) + " weights of [" + std::to_string(p.n) + ", " +
        std::to_string(p.k) + "], groups of " + std::to_string(weight.group_size) +
        " (0: none), in tiles of " + std::to_string(16 * cut.row_tiles) + " rows by " +
        std::to_string(cut.split) + " warps (skinny_integers.h says what it takes)");
  const int64_t rows = 16 * cut.row_tiles;
  const int64_t num_tiles = (p.n + rows - 1) / rows;
  const int ctas_per_sm = skinny_integers::CtasPerSm(weight, cut.row_tiles, p.m, stream);
  const int64_t most_ctas = int64_t{stream.num_sms()} * ctas_per_sm;
  const int64_t rounds = (num_tiles + most_ctas - 1) / most_ctas;
  skinny_integers::Args args = {.x = static_cast<const uint8_t*>(p.x),
                                .w = static_cast<const uint8_t*>(weight.data),
                                .scales = weight.scales,
                                .offsets = weight.offsets,
                                .row_bytes = static_cast<int64_t>(BytesOf(weight.dtype, p.k)),
                                .k = static_cast<int>(p.k),
                                .m = static_cast<int>(p.m),
                                .group_size = static_cast<int>(weight.group_size),
                                .num_groups = static_cast<int>(weight.num_groups()),
                                .slab_groups = SlabGroups(weight),
                                .group_slabs = skinny_integers::GroupSlabs(weight),
                                .num_tiles = static_cast<int>(num_tiles),
                                .split = cut.split,
                                .out = OutputOf(p)};
  skinny_integers::LaunchPlan plan = {
      .dtype = p.dtype,
      .row_tiles = cut.row_tiles,
      // Where all warps have a tile together every CTA has the same number of them but for one.
      .num_ctas =
          static_cast<int>(cut.split == skinny_integers::kWarps ? (num_tiles + rounds - 1) / rounds
                                                                : std::min(num_tiles, most_ctas)),
      .ctas_per_sm = ctas_per_sm,
      .overlap = cut.overlap};
  skinny_integers::LayOut(weight, cut, num_tiles > plan.num_ctas,
                          ctas_per_sm == 2 ? skinny_integers::HalfOf(limit) : limit, args, plan);
  if (weight.dtype == DType::kI4) return skinny_integers::LaunchInt4(args, plan, stream);
  return weight.dtype == DType::kI8 ? skinny_integers::LaunchInt8(args, plan, stream)
                                    : skinny_integers::LaunchFp8(args, plan, stream);
}

Status SkinnyIntegers(const GemmParams& params, const Weight& weight, CudaStream& stream) {
  constexpr int64_t kMost = skinny_integers::kMaxTokens;
  const int64_t num_launches = (params.m + kMost - 1) / kMost;
  const int64_t stride = params.y_stride == 0 ? params.n : params.y_stride;
  for (int64_t i = 0; i < num_launches; ++i) {
    const int64_t first = i * params.m / num_launches;
    GemmParams part = params;
    part.m = (i + 1) * params.m / num_launches - first;
    part.x = static_cast<const std::byte*>(params.x) + BytesOf(params.dtype, first * params.k);
    part.y = static_cast<std::byte*>(params.y) + BytesOf(params.y_dtype, first * stride);
    RETURN_IF_ERROR(SkinnyIntegers(part, weight, SkinnyIntegersCut(part, weight, stream), stream));
  }
  return Status::Ok();
}

}  // namespace inflight::ops::cuda
