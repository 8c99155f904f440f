// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/skinny_integers.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/skinny_integers_args.h"

namespace inflight::ops::cuda {
namespace skinny_integers {
namespace {

constexpr int kRingStages = 3;  // that x as a whole must leave room for

int BitsOf(const Weight& weight) { return weight.dtype == DType::kI4 ? 4 : 8; }

// Groups that a slab has scales of.
int SlabGroups(const Weight& weight) {
  if (weight.group_size == 0) return 0;
  const int64_t slab = SlabElements(BitsOf(weight));
  return static_cast<int>(std::max<int64_t>(1, slab / weight.group_size));
}

bool GroupsFit(const Weight& weight) {
  const int64_t group = weight.group_size;
  const int64_t slab = SlabElements(BitsOf(weight));
  if (group == 0 || group % slab == 0) return true;
  return (2 * group == slab || 4 * group == slab) && weight.in_features % slab == 0;
}

int StageBytes(const Weight& weight, int row_tiles, int num_tokens) {
  const int bits = BitsOf(weight);
  const int scales = SlabsPerStage(row_tiles) * row_tiles * 16 * SlabGroups(weight) * 4;
  const int tokens = num_tokens * (StageElements(bits, row_tiles) * 2 + TokenPadding(bits));
  const int bytes =
      StageWeightBytes(row_tiles) + (weight.offsets == nullptr ? 1 : 2) * scales + tokens;
  return (bytes + 127) / 128 * 128;
}

int SumBytes(int row_tiles, int num_tokens) {
  return kWarps * num_tokens * SumStride(row_tiles) * 4;
}

// What a token takes in shared memory, all of k.
int64_t ResidentBytes(const Weight& weight) {
  const int64_t slab = SlabElements(BitsOf(weight));
  return (weight.in_features + slab - 1) / slab * slab * 2 + TokenPadding(BitsOf(weight));
}

// Whether a cut can be taken, asked for the most tokens that must have the same one.
bool Fits(const Weight& weight, int row_tiles, int64_t num_tokens, int limit) {
  const int most = num_tokens > 8 ? kMaxTokens : 8;
  return kWarps * 2 * StageBytes(weight, row_tiles, most) + SumBytes(row_tiles, most) <= limit;
}

int LimitOf(const CudaStream& stream) {
  return static_cast<int>(stream.gpu().max_shared_bytes_per_block);
}

// How shared memory is divided: x as a whole where several tiles read it and it leaves room, and as
// many stages as are wanted and fit.
void LayOut(const Weight& weight, const MmaCut& cut, bool has_several_tiles, int limit, Args& args,
            LaunchPlan& plan) {
  const int sums = SumBytes(cut.row_tiles, args.m);
  const int stage = StageBytes(weight, cut.row_tiles, 0);
  const int64_t x_bytes = args.m * ResidentBytes(weight);
  const int wanted = std::clamp(cut.stages, 2, kMaxStages);
  args.is_x_resident =
      has_several_tiles && sums + kWarps * std::min(wanted, kRingStages) * stage + x_bytes <= limit;
  args.stage_bytes = args.is_x_resident ? stage : StageBytes(weight, cut.row_tiles, args.m);
  const int rest = args.is_x_resident ? static_cast<int>(x_bytes) : 0;
  args.stages = std::clamp((limit - sums - rest) / (kWarps * args.stage_bytes), 2, wanted);
  const int bits = BitsOf(weight);
  args.x_stride = args.is_x_resident ? static_cast<int>(ResidentBytes(weight))
                                     : StageElements(bits, cut.row_tiles) * 2 + TokenPadding(bits);
  args.sums_at = kWarps * args.stages * args.stage_bytes + rest;
  plan.shared_bytes = args.sums_at + sums;
}

}  // namespace
}  // namespace skinny_integers

bool SkinnyIntegersCanRun(const GemmParams& p, const Weight& weight, const CudaStream& stream) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (!IsInteger(weight.dtype) || weight.layout != WeightLayout::kRowMajor || !IsHalf(p.dtype) ||
      (p.y_dtype != p.dtype && p.y_dtype != DType::kF32))
    return false;
  if (p.m > skinny_integers::kMaxTokens || p.n >= kMost || p.k >= kMost / 4 ||
      p.k % (128 / skinny_integers::BitsOf(weight)) != 0)
    return false;
  const auto scales =
      static_cast<size_t>(std::max(skinny_integers::SlabGroups(weight), 1)) * sizeof(float);
  if (!skinny_integers::GroupsFit(weight) || !IsAligned(p.x) || !IsAligned(weight.data) ||
      !IsAligned(weight.scales, scales) || !IsAligned(weight.offsets, scales))
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

// The height of tiles that leaves the fewest multiprocessors without one. Higher ones read x less
// often and add the warps' sums less often.
MmaCut SkinnyIntegersCut(const GemmParams& p, const Weight& weight, const CudaStream& stream) {
  constexpr double kWorth[] = {0.93, 1.0, 1.0};
  constexpr double kWorthHigh[] = {0.85, 1.0, 1.1};  // of more than 8 tokens
  constexpr int kStages[] = {8, 8, 5};               // 16 KiB a warp
  MmaCut best;
  double best_score = 0;
  for (int row_tiles = 1; row_tiles <= skinny_integers::kMaxRowTiles; ++row_tiles) {
    if (!skinny_integers::Fits(weight, row_tiles, p.m, skinny_integers::LimitOf(stream))) continue;
    const int64_t tiles = (p.n + 16 * row_tiles - 1) / (16 * row_tiles);
    const int64_t rounds = (tiles + stream.num_sms() - 1) / stream.num_sms();
    const double used =
        static_cast<double>(p.n) / static_cast<double>(rounds * stream.num_sms() * 16 * row_tiles);
    const double score = used * (p.m > 8 ? kWorthHigh : kWorth)[row_tiles - 1];
    if (score <= best_score) continue;
    best_score = score;
    best = {.row_tiles = row_tiles, .stages = kStages[row_tiles - 1]};
  }
  return best;
}

Status SkinnyIntegers(const GemmParams& p, const Weight& weight, const MmaCut& cut,
                      CudaStream& stream) {
  if (p.m == 0 || p.n == 0) return Status::Ok();
  const int limit = skinny_integers::LimitOf(stream);
  if (!SkinnyIntegersCanRun(p, weight, stream) || cut.row_tiles < 1 ||
      cut.row_tiles > skinny_integers::kMaxRowTiles ||
      !skinny_integers::Fits(weight, cut.row_tiles, p.m, limit))
    return Unimplemented("no streamed product of " + std::to_string(p.m) + " tokens and " +
                         std::string(DTypeName(weight.dtype)) + " weights of [" +
                         std::to_string(p.n) + ", " + std::to_string(p.k) + "], groups of " +
                         std::to_string(weight.group_size) + " (0: none), in tiles of " +
                         std::to_string(16 * cut.row_tiles) +
                         " rows (skinny_integers.h says what it takes)");
  const int64_t rows = 16 * cut.row_tiles;
  const int64_t num_tiles = (p.n + rows - 1) / rows;
  // Every CTA takes the same number of tiles but for one.
  const int64_t rounds = (num_tiles + stream.num_sms() - 1) / stream.num_sms();
  skinny_integers::Args args = {.x = static_cast<const uint8_t*>(p.x),
                                .w = static_cast<const uint8_t*>(weight.data),
                                .scales = weight.scales,
                                .offsets = weight.offsets,
                                .row_bytes = static_cast<int64_t>(BytesOf(weight.dtype, p.k)),
                                .k = static_cast<int>(p.k),
                                .m = static_cast<int>(p.m),
                                .group_size = static_cast<int>(weight.group_size),
                                .num_groups = static_cast<int>(weight.num_groups()),
                                .slab_groups = std::max(skinny_integers::SlabGroups(weight), 1),
                                .num_tiles = static_cast<int>(num_tiles),
                                .out = OutputOf(p)};
  skinny_integers::LaunchPlan plan = {
      .dtype = p.dtype,
      .row_tiles = cut.row_tiles,
      .num_ctas = static_cast<int>((num_tiles + rounds - 1) / rounds),
      .overlap = cut.overlap};
  skinny_integers::LayOut(weight, cut, rounds > 1, limit, args, plan);
  return weight.dtype == DType::kI4 ? skinny_integers::LaunchInt4(args, plan, stream)
                                    : skinny_integers::LaunchInt8(args, plan, stream);
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
