// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "cases.h"
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

// Each head of q and k as an RMSNorm leaves it (arXiv:1910.07467), in double; v stays. Where there
// are weights for several heads, the norm is of all heads of q, and of all of k.
std::vector<double> NormedHeads(const std::vector<float>& row, const QkvCase& c, const Tensor& q,
                                const Tensor& k, double eps) {
  std::vector<double> out(row.begin(), row.end());
  const int width_of_all = (c.num_heads + c.num_kv_heads) * c.head_dim;
  for (int first = 0; first < width_of_all;) {
    const Tensor& weight = first < c.num_heads * c.head_dim ? q : k;
    const auto width = static_cast<int>(weight.view().num_elements());
    double squares = 0;
    for (int d = 0; d < width; ++d) squares += std::pow(row[static_cast<size_t>(first + d)], 2);
    for (int d = 0; d < width; ++d)
      out[static_cast<size_t>(first + d)] *= weight.Get(d) / std::sqrt(squares / width + eps);
    first += width;
  }
  return out;
}

// What the operator must give for one value, computed here from the projection in double.
double Rotated(const std::vector<double>& row, int head_first, int d, RopeStyle style,
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

enum class Norms : uint8_t { kNone, kOfEachHead, kOfAllHeads };

std::vector<std::pair<QkvCase, Norms>> CasesWithAndWithoutNorm() {
  std::vector<std::pair<QkvCase, Norms>> cases;
  for (const QkvCase& c : QkvCases())
    for (const Norms norms : {Norms::kNone, Norms::kOfEachHead, Norms::kOfAllHeads})
      if (!c.gpu_only) cases.emplace_back(c, norms);
  return cases;
}

struct TokenPlace {
  int t, sequence, position;
};

// q of a token, and its key and value in layer 1 of the cache, are what its row `one` of heads
// gives.
void ExpectToken(const QkvCase& c, const std::vector<double>& one, const TokenPlace& place,
                 const Tensor& q, const PagedCache& cache) {
  const auto rotated = [&](int head, int d) {
    return Rotated(one, head * c.head_dim, d, c.style, c.rotary_dim, place.position);
  };
  const double rounding = RoundingOf(cache.view().dtype);
  for (int h = 0; h < c.num_heads; ++h)
    for (int d = 0; d < c.head_dim; ++d)
      ASSERT_NEAR(q.Get((place.t * c.num_heads + h) * c.head_dim + d), rotated(h, d), 1e-5)
          << "head " << h << " dim " << d;
  for (int h = 0; h < c.num_kv_heads; ++h)
    for (int d = 0; d < c.head_dim; ++d) {
      const double k = rotated(c.num_heads + h, d);
      const double v =
          one[static_cast<size_t>((c.num_heads + c.num_kv_heads + h) * c.head_dim + d)];
      ASSERT_NEAR(cache.Key(1, place.sequence, place.position, h, d), k,
                  1e-5 + rounding * std::abs(k));
      ASSERT_NEAR(cache.Value(1, place.sequence, place.position, h, d), v, rounding * std::abs(v));
    }
}

class QkvRopeKvTest : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Device> device_ = Device::Cpu(2);
  Stream stream_{*device_};
};

TEST_P(QkvRopeKvTest, RotatesAndStoresWhereTheBlockTableSays) {
  const DType dtype = GetParam();
  for (const auto& [c, norms] : CasesWithAndWithoutNorm()) {
    const bool has_norm = norms != Norms::kNone;
    const bool is_wide = norms == Norms::kOfAllHeads;
    const int width = (c.num_heads + 2 * c.num_kv_heads) * c.head_dim;
    std::vector<int> seq_lens;
    std::vector<int> sequences;
    int num_tokens = 0;
    for (const SequenceRow& row : c.rows) {
      sequences.push_back(static_cast<int>(seq_lens.size()));
      seq_lens.push_back(row.seq_len);
      num_tokens += row.num_queries;
    }
    const Tensor x = Tensor::Random(InputDType(dtype), {num_tokens, c.hidden_size}, 1);
    const Tensor w = Tensor::Random(dtype, {width, c.hidden_size}, 2);
    const PackedWeight packed(dtype, CpuWeightLayout(dtype), w);
    const Tensor random_bias = Tensor::Random(DType::kF32, {width}, 3);
    const TensorView bias = c.bias ? random_bias.view() : TensorView{};
    const Tensor cos_sin = c.rotary_dim > 0 ? CosSin(64, c.rotary_dim) : Tensor();
    constexpr float kEps = 1e-3F;
    const Tensor q_norm =
        Tensor::Random(DType::kF32, {is_wide ? c.num_heads * c.head_dim : c.head_dim}, 4);
    const Tensor k_norm =
        Tensor::Random(DType::kF32, {is_wide ? c.num_kv_heads * c.head_dim : c.head_dim}, 5);
    for (const OpTable& table : CpuOpTables({.weight_dtype = dtype, .kv_dtype = dtype})) {
      const PagedCache cache({dtype, c.num_kv_heads, c.head_dim, c.block_size}, seq_lens, 4);
      const BatchArrays batch(cache, c.rows, sequences);
      Tensor projected(DType::kF32, {num_tokens, width});
      ASSERT_EQ(table.linear({.x = {.values = x.view()},
                              .weight = packed.weight(),
                              .bias = bias,
                              .y = projected.view()},
                             stream_),
                Status::Ok());
      Tensor workspace(DType::kF32, {num_tokens, width}, c.offset_elements);
      Tensor q(DType::kF32, {num_tokens, c.num_heads, c.head_dim}, c.offset_elements);
      ASSERT_EQ(
          table.qkv_rope_kv(
              {.x = {.values = x.view()},
               .weight = packed.weight(),
               .bias = bias,
               .num_heads = c.num_heads,
               .q_norm = has_norm ? q_norm.view() : TensorView{},
               .k_norm = has_norm ? k_norm.view() : TensorView{},
               .norm_eps = kEps,
               .rope = {.style = c.style, .rotary_dim = c.rotary_dim, .cos_sin = cos_sin.view()},
               .batch = batch.view(),
               .kv = cache.view(),
               .layer = 1,
               .workspace = workspace.view(),
               .q = q.view()},
              stream_),
          Status::Ok());
      const std::vector<float> all = projected.ToFloats();
      int t = 0;
      for (const int sequence : sequences) {
        const SequenceRow& row = c.rows[static_cast<size_t>(sequence)];
        for (int p = row.seq_len - row.num_queries; p < row.seq_len; ++p, ++t) {
          const std::vector<float> raw(all.begin() + t * width, all.begin() + (t + 1) * width);
          const std::vector<double> one = has_norm ? NormedHeads(raw, c, q_norm, k_norm, kEps)
                                                   : std::vector<double>(raw.begin(), raw.end());
          SCOPED_TRACE(testing::Message() << table.name << " " << c.name << " token " << t);
          ASSERT_NO_FATAL_FAILURE(
              ExpectToken(c, one, {.t = t, .sequence = sequence, .position = p}, q, cache));
        }
        // Nothing else was written: the slot before the chunk, the other layer.
        const int before = row.seq_len - row.num_queries - 1;
        if (before >= 0) {
          EXPECT_TRUE(std::isnan(cache.Key(1, sequence, before, 0, 0))) << c.name;
        }
        EXPECT_TRUE(std::isnan(cache.Value(0, sequence, row.seq_len - 1, 0, 0))) << c.name;
      }
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
