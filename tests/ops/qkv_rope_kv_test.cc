// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "compare.h"
#include "ops/attention.h"

namespace inflight::ops {
namespace {

// cos and sin of p * 10000^(-2j / rotary_dim), [max_seq_len, 2, rotary_dim / 2]
Tensor CosSin(int max_seq_len, int rotary_dim) {
  const int half = rotary_dim / 2;
  Tensor table(DType::kF32, {max_seq_len, 2, half});
  for (int p = 0; p < max_seq_len; ++p)
    for (int j = 0; j < half; ++j) {
      const double angle = p * std::pow(10000.0, -2.0 * j / rotary_dim);
      table.Set((p * 2 + 0) * half + j, static_cast<float>(std::cos(angle)));
      table.Set((p * 2 + 1) * half + j, static_cast<float>(std::sin(angle)));
    }
  return table;
}

// What the operator must give for one value, computed here from the projection in double.
double Rotated(const std::vector<float>& row, int head_first, int d, RopeStyle style,
               int rotary_dim, int position) {
  const double x = row[static_cast<size_t>(head_first + d)];
  if (style == RopeStyle::kNone || d >= rotary_dim) return x;
  const int half = rotary_dim / 2;
  const bool neox = style == RopeStyle::kNeox;
  const int j = neox ? d % half : d / 2;
  const bool second = neox ? d >= half : d % 2 == 1;
  const int partner = neox ? (second ? d - half : d + half) : (second ? d - 1 : d + 1);
  const double other = row[static_cast<size_t>(head_first + partner)];
  const double angle = position * std::pow(10000.0, -2.0 * j / rotary_dim);
  return x * std::cos(angle) + (second ? other : -other) * std::sin(angle);
}

class QkvRopeKvTest : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Device> device_ = Device::Cpu(2);
  Stream stream_{*device_};
};

TEST_P(QkvRopeKvTest, RotatesAndStoresWhereTheBlockTableSays) {
  constexpr int kHeads = 4;
  constexpr int kKvHeads = 2;
  constexpr int kHeadDim = 24;
  constexpr int kHidden = 40;
  constexpr int kWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
  const DType dtype = GetParam();
  const std::vector<SequenceRow> rows = {{5, 5}, {1, 18}, {3, 34}};
  for (const auto& [style, rotary_dim] : {std::pair{RopeStyle::kNone, 0},
                                          {RopeStyle::kNeox, 24},
                                          {RopeStyle::kNeox, 16},
                                          {RopeStyle::kGptj, 24},
                                          {RopeStyle::kGptj, 10}}) {
    const Tensor x = Tensor::Random(InputDType(dtype), {9, kHidden}, 1);
    const Tensor w = Tensor::Random(dtype, {kWidth, kHidden}, 2);
    const PackedWeight packed(dtype, CpuWeightLayout(dtype), w);
    const Tensor bias = Tensor::Random(DType::kF32, {kWidth}, 3);
    const Tensor cos_sin = rotary_dim > 0 ? CosSin(64, rotary_dim) : Tensor();
    for (const OpTable& table : CpuOpTables({.weight_dtype = dtype, .kv_dtype = dtype})) {
      const PagedCache cache({dtype, kKvHeads, kHeadDim, 16}, {5, 18, 34}, 4);
      const BatchArrays batch(cache, rows, {0, 1, 2});
      Tensor projected(DType::kF32, {9, kWidth});
      ASSERT_EQ(table.linear({.x = {.values = x.view()},
                              .weight = packed.weight(),
                              .bias = bias.view(),
                              .y = projected.view()},
                             stream_),
                Status::Ok());
      Tensor workspace(DType::kF32, {9, kWidth});
      Tensor q(DType::kF32, {9, kHeads, kHeadDim});
      ASSERT_EQ(table.qkv_rope_kv(
                    {.x = {.values = x.view()},
                     .weight = packed.weight(),
                     .bias = bias.view(),
                     .num_heads = kHeads,
                     .rope = {.style = style, .rotary_dim = rotary_dim, .cos_sin = cos_sin.view()},
                     .batch = batch.view(),
                     .kv = cache.view(),
                     .layer = 1,
                     .workspace = workspace.view(),
                     .q = q.view()},
                    stream_),
                Status::Ok());
      const std::vector<float> all = projected.ToFloats();
      int t = 0;
      for (int sequence = 0; sequence < 3; ++sequence) {
        const SequenceRow& row = rows[static_cast<size_t>(sequence)];
        for (int p = row.seq_len - row.num_queries; p < row.seq_len; ++p, ++t) {
          const std::vector<float> one(all.begin() + t * kWidth, all.begin() + (t + 1) * kWidth);
          for (int h = 0; h < kHeads; ++h)
            for (int d = 0; d < kHeadDim; ++d)
              ASSERT_NEAR(q.Get((t * kHeads + h) * kHeadDim + d),
                          Rotated(one, h * kHeadDim, d, style, rotary_dim, p), 1e-5)
                  << table.name << " token " << t << " head " << h << " dim " << d;
          for (int h = 0; h < kKvHeads; ++h)
            for (int d = 0; d < kHeadDim; ++d) {
              const double k = Rotated(one, (kHeads + h) * kHeadDim, d, style, rotary_dim, p);
              const double v = one[static_cast<size_t>((kHeads + kKvHeads + h) * kHeadDim + d)];
              ASSERT_NEAR(cache.Key(1, sequence, p, h, d), k,
                          1e-5 + RoundingOf(dtype) * std::abs(k));
              ASSERT_NEAR(cache.Value(1, sequence, p, h, d), v, RoundingOf(dtype) * std::abs(v));
            }
        }
      }
      // Nothing else was written: the slot before the chunk, the other layer.
      EXPECT_TRUE(std::isnan(cache.Key(1, 1, 16, 0, 0)));
      EXPECT_TRUE(std::isnan(cache.Value(0, 0, 0, 0, 0)));
    }
  }
}

// One head of dimension 8 of which two rotate, at position 1 by a quarter turn: (1, 2) -> (-2, 1);
// weights are chosen so that q = k = (1, 2, 3, 0, ...), v = (5, 0, ...).
TEST_P(QkvRopeKvTest, HandCheckedQuarterTurn) {
  const DType dtype = GetParam();
  std::vector<float> w(24 * 1, 0.0F);
  w[0] = w[8] = 1;
  w[1] = w[9] = 2;
  w[2] = w[10] = 3;
  w[16] = 5;
  const PackedWeight packed(dtype, CpuWeightLayout(dtype), Tensor::Of(DType::kF32, {24, 1}, w));
  const Tensor x = Tensor::Of(InputDType(dtype), {1, 1}, {1});
  const Tensor cos_sin = Tensor::Of(DType::kF32, {2, 2, 1}, {1, 0, 0, 1});  // positions 0 and 1
  for (const OpTable& table : CpuOpTables({.weight_dtype = dtype, .kv_dtype = dtype})) {
    const PagedCache cache({dtype, 1, 8, 16}, {2}, 4);
    const BatchArrays batch(cache, {{1, 2}}, {0});
    Tensor workspace(DType::kF32, {1, 24});
    Tensor q(DType::kF32, {1, 1, 8});
    ASSERT_EQ(table.qkv_rope_kv(
                  {.x = {.values = x.view()},
                   .weight = packed.weight(),
                   .num_heads = 1,
                   .rope = {.style = RopeStyle::kNeox, .rotary_dim = 2, .cos_sin = cos_sin.view()},
                   .batch = batch.view(),
                   .kv = cache.view(),
                   .layer = 0,
                   .workspace = workspace.view(),
                   .q = q.view()},
                  stream_),
              Status::Ok());
    EXPECT_EQ(q.ToFloats(), (std::vector<float>{-2, 1, 3, 0, 0, 0, 0, 0})) << table.name;
    EXPECT_EQ(cache.Key(0, 0, 1, 0, 0), -2);
    EXPECT_EQ(cache.Key(0, 0, 1, 0, 1), 1);
    EXPECT_EQ(cache.Key(0, 0, 1, 0, 2), 3);
    EXPECT_EQ(cache.Value(0, 0, 1, 0, 0), 5);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, QkvRopeKvTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::ops
