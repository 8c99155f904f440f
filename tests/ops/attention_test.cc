// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cases.h"
#include "compare.h"

namespace inflight::ops {
namespace {

constexpr int kLayer = 1;

std::vector<int> Iota(size_t n) {
  std::vector<int> v(n);
  std::iota(v.begin(), v.end(), 0);
  return v;
}

std::vector<int> SeqLens(const std::vector<SequenceRow>& rows) {
  std::vector<int> lens;
  for (const SequenceRow& row : rows) lens.push_back(row.seq_len);
  return lens;
}

// A filled cache, its batch and queries.
struct Inputs {
  Inputs(const AttentionCase& c, DType kv_dtype)
      : cache({kv_dtype, c.num_kv_heads, c.head_dim, c.block_size}, SeqLens(c.rows), 5),
        batch(cache, c.rows, Iota(c.rows.size())),
        q(Tensor::Random(DType::kF32, {batch.view().num_tokens, c.num_heads, c.head_dim}, 6, 1)) {
    for (int64_t i = 0; i < q.view().num_elements(); ++i)
      q.Set(i, BFloat16::FromFloat(q.Get(i)).ToFloat());
    for (size_t s = 0; s < c.rows.size(); ++s)
      cache.Fill(kLayer, static_cast<int>(s), c.rows[s].seq_len, 100 + s);
  }
  AttentionParams Params(const Tensor& y) const {
    return {.q = q.view(),
            .batch = batch.view(),
            .kv = cache.view(),
            .layer = kLayer,
            .scale = 1 / std::sqrt(static_cast<float>(cache.view().head_dim)),
            .y = y.view()};
  }
  PagedCache cache;
  BatchArrays batch;
  Tensor q;
};

Tensor Output(const AttentionCase& c, int num_tokens, DType dtype) {
  return Tensor(dtype, {num_tokens, static_cast<int64_t>(c.num_heads) * c.head_dim}, 1);
}

class AttentionTest : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Device> device_ = Device::Cpu(3);
  Stream stream_{*device_};
};

// Inputs lie in [-1, 1), so a score is at most ds = scale * head_dim in absolute value and carries
//   e_s = scale * SumBound(head_dim, head_dim) + 8 u ds.
// A softmax weight then has the relative error 2 e_s + e_exp, once above and once below the
// fraction bar; above it is rounded to bf16 with a bf16 cache, which also rounds queries: those of
// the tests are bf16 numbers already. With |v| <= 1 that is the error of the result, but for the
// two sums' own n u.
double Bound(const AttentionCase& c, DType kv_dtype, int seq_len) {
  const double ds = std::sqrt(static_cast<double>(c.head_dim));
  const double weight = 2 * (SumBound(c.head_dim, ds) + 8 * kUnit * ds) + 8 * kUnit;
  const double rounding = kv_dtype == DType::kBF16 ? RoundingOf(DType::kBF16) : 0;
  return 2 * weight + rounding + 4 * seq_len * kUnit;
}

TEST_P(AttentionTest, EveryTableAgreesWithTheReference) {
  const DType kv_dtype = GetParam();
  for (const AttentionCase& c : CpuAttentionCases()) {
    const Inputs in(c, kv_dtype);
    const int num_tokens = in.batch.view().num_tokens;
    const Tensor want = Output(c, num_tokens, c.y_dtype);
    ASSERT_EQ(ReferenceTable().attention(in.Params(want), stream_), Status::Ok());
    std::vector<double> bound;
    for (const SequenceRow& row : c.rows)
      for (int i = 0; i < row.num_queries * c.num_heads * c.head_dim; ++i)
        bound.push_back(RoundedBound(Bound(c, kv_dtype, row.seq_len),
                                     want.Get(static_cast<int64_t>(bound.size())), c.y_dtype));
    for (const OpTable& table : VectorTables({.kv_dtype = kv_dtype, .head_dim = c.head_dim})) {
      const Tensor got = Output(c, num_tokens, c.y_dtype);
      ASSERT_EQ(table.attention(in.Params(got), stream_), Status::Ok());
      EXPECT_TRUE(Within(got.ToFloats(), want.ToFloats(), bound)) << table.name << " " << c.name;
    }
  }
}

// Full attention with a mask, in float64: what a sliding window has to equal. `softcap` 0: no cap;
// `sinks` [num_heads] are logits of a further key whose value is zeros.
std::vector<float> Masked(const AttentionCase& c, const Inputs& in, const SlidingWindow& sliding,
                          double softcap = 0, const std::vector<float>& sinks = {}) {
  const auto group = c.num_heads / c.num_kv_heads;
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  std::vector<float> out;
  int64_t t = 0;
  for (size_t s = 0; s < c.rows.size(); ++s) {
    const SequenceRow& row = c.rows[s];
    for (int p = row.seq_len - row.num_queries; p < row.seq_len; ++p, ++t) {
      for (int h = 0; h < c.num_heads; ++h) {
        std::vector<double> y(static_cast<size_t>(c.head_dim));
        double sum = sinks.empty() ? 0 : std::exp(double{sinks[static_cast<size_t>(h)]});
        for (int key = 0; key <= p; ++key) {
          const bool is_sink = key < sliding.num_sinks;
          const bool is_recent = p - key < sliding.window - sliding.num_sinks;
          if (sliding.window > 0 && !is_sink && !is_recent) continue;
          double score = 0;
          for (int d = 0; d < c.head_dim; ++d)
            score += in.q.Get((t * c.num_heads + h) * c.head_dim + d) *
                     in.cache.Key(kLayer, static_cast<int>(s), key, h / group, d);
          score *= scale;
          if (softcap > 0) score = softcap * std::tanh(score / softcap);
          const double weight = std::exp(score);
          sum += weight;
          for (int d = 0; d < c.head_dim; ++d)
            y[static_cast<size_t>(d)] +=
                weight * in.cache.Value(kLayer, static_cast<int>(s), key, h / group, d);
        }
        for (const double value : y) out.push_back(static_cast<float>(value / sum));
      }
    }
  }
  return out;
}

// Blocks that no query of their row sees: their table entries point nowhere.
void HideBlocks(const AttentionCase& c, const SlidingWindow& sliding, const PagedBatch& batch) {
  const int64_t width = batch.block_tables.shape.rank() == 2 ? batch.block_tables.shape[1] : 0;
  for (size_t r = 0; r < c.rows.size(); ++r) {
    const int first = sliding.First(c.rows[r].seq_len - c.rows[r].num_queries);
    for (int i = 0; (i + 1) * c.block_size <= first; ++i)
      if (i * c.block_size >= sliding.num_sinks)
        batch.block_tables.as<int32_t>()[static_cast<int64_t>(r) * width + i] = -1'000'000;
  }
}

TEST_P(AttentionTest, ASlidingWindowIsMaskedFullAttentionAndReadsNoHiddenBlock) {
  const DType kv_dtype = GetParam();
  for (const SlidingWindow& sliding :
       {SlidingWindow{1, 0}, SlidingWindow{20, 0}, SlidingWindow{64, 4}, SlidingWindow{100, 33},
        SlidingWindow{130, 64}, SlidingWindow{5000, 7}}) {
    for (const AttentionCase& c : CpuAttentionCases()) {
      const Inputs in(c, kv_dtype);
      const int num_tokens = in.batch.view().num_tokens;
      const std::vector<float> want = Masked(c, in, sliding);
      HideBlocks(c, sliding, in.batch.view());
      std::vector<double> bound;
      for (const SequenceRow& row : c.rows)
        for (int i = 0; i < row.num_queries * c.num_heads * c.head_dim; ++i)
          bound.push_back(
              RoundedBound(Bound(c, kv_dtype, row.seq_len), want[bound.size()], c.y_dtype));
      for (const OpTable& table : CpuOpTables({.kv_dtype = kv_dtype, .head_dim = c.head_dim})) {
        const Tensor got = Output(c, num_tokens, c.y_dtype);
        AttentionParams params = in.Params(got);
        params.sliding = sliding;
        ASSERT_EQ(table.attention(params, stream_), Status::Ok());
        EXPECT_TRUE(Within(got.ToFloats(), want, bound))
            << table.name << " " << c.name << " window " << sliding.window;
      }
    }
  }
}

// The slope of a cap is at most 1, so that it adds to a score's error a few roundings of what is no
// larger than the score.
TEST_P(AttentionTest, ASoftCapBendsScoresBeforeTheSoftmax) {
  const DType kv_dtype = GetParam();
  for (const double softcap : {0.25, 3.0}) {
    for (const AttentionCase& c : CpuAttentionCases()) {
      const Inputs in(c, kv_dtype);
      const SlidingWindow sliding = softcap < 1 ? SlidingWindow{} : SlidingWindow{100, 33};
      const std::vector<float> want = Masked(c, in, sliding, softcap);
      std::vector<double> bound;
      for (const SequenceRow& row : c.rows)
        for (int i = 0; i < row.num_queries * c.num_heads * c.head_dim; ++i)
          bound.push_back(
              RoundedBound(Bound(c, kv_dtype, row.seq_len), want[bound.size()], c.y_dtype));
      for (const OpTable& table : CpuOpTables({.kv_dtype = kv_dtype, .head_dim = c.head_dim})) {
        const Tensor got = Output(c, in.batch.view().num_tokens, c.y_dtype);
        AttentionParams params = in.Params(got);
        params.sliding = sliding;
        params.softcap = static_cast<float>(softcap);
        ASSERT_EQ(table.attention(params, stream_), Status::Ok());
        EXPECT_TRUE(Within(got.ToFloats(), want, bound))
            << table.name << " " << c.name << " cap " << softcap;
      }
    }
  }
  const AttentionCase& c = AttentionCases()[1];
  const Inputs in(c, kv_dtype);
  const Tensor y = Output(c, in.batch.view().num_tokens, DType::kF32);
  AttentionParams params = in.Params(y);
  params.softcap = -1;
  EXPECT_EQ(ReferenceTable().attention(params, stream_).message(),
            "softcap: got -1, needed 0 or a cap above it");
}

// Logits below, among and above all scores, which are at most sqrt(head_dim).
TEST_P(AttentionTest, ASinkLogitTakesItsPartOfTheWeights) {
  const DType kv_dtype = GetParam();
  for (const AttentionCase& c : CpuAttentionCases()) {
    const Inputs in(c, kv_dtype);
    std::vector<float> sinks;
    for (int h = 0; h < c.num_heads; ++h) sinks.push_back(static_cast<float>(h % 5) * 7 - 13);
    const Tensor logits = Tensor::Of(DType::kF32, {c.num_heads}, sinks);
    for (const SlidingWindow& sliding : {SlidingWindow{}, SlidingWindow{100, 33}}) {
      const std::vector<float> want = Masked(c, in, sliding, 0, sinks);
      std::vector<double> bound;
      for (const SequenceRow& row : c.rows)
        for (int i = 0; i < row.num_queries * c.num_heads * c.head_dim; ++i)
          bound.push_back(
              RoundedBound(Bound(c, kv_dtype, row.seq_len), want[bound.size()], c.y_dtype));
      for (const OpTable& table : CpuOpTables({.kv_dtype = kv_dtype, .head_dim = c.head_dim})) {
        const Tensor got = Output(c, in.batch.view().num_tokens, c.y_dtype);
        AttentionParams params = in.Params(got);
        params.sliding = sliding;
        params.sink_logits = logits.view();
        ASSERT_EQ(table.attention(params, stream_), Status::Ok());
        EXPECT_TRUE(Within(got.ToFloats(), want, bound))
            << table.name << " " << c.name << " window " << sliding.window;
      }
    }
  }
  const AttentionCase& c = AttentionCases()[1];
  const Inputs in(c, kv_dtype);
  const Tensor y = Output(c, in.batch.view().num_tokens, DType::kF32);
  const Tensor logits = Tensor(DType::kF32, {c.num_heads + 1});
  AttentionParams params = in.Params(y);
  params.sink_logits = logits.view();
  EXPECT_THAT(ReferenceTable().attention(params, stream_).message(),
              testing::HasSubstr("sink_logits: got "));
}

TEST_P(AttentionTest, AWindowNeedsFewerSinks) {
  const AttentionCase& c = AttentionCases()[1];
  const Inputs in(c, GetParam());
  const Tensor y = Output(c, in.batch.view().num_tokens, DType::kF32);
  AttentionParams params = in.Params(y);
  params.sliding = {.window = 4, .num_sinks = 4};
  EXPECT_EQ(ReferenceTable().attention(params, stream_).message(),
            "sliding: got a window of 4 with 4 sinks, needed fewer");
}

// Each row computed in a batch of its own: the same bits, whatever else was in the batch.
TEST_P(AttentionTest, ARowIsTheSameAloneAndInABatch) {
  for (const AttentionCase& c : CpuAttentionCases()) {
    const Inputs in(c, GetParam());
    const int num_tokens = in.batch.view().num_tokens;
    for (const OpTable& table : VectorTables({.kv_dtype = GetParam(), .head_dim = c.head_dim})) {
      const Tensor together = Output(c, num_tokens, c.y_dtype);
      const Tensor alone = Output(c, num_tokens, c.y_dtype);
      ASSERT_EQ(table.attention(in.Params(together), stream_), Status::Ok());
      int first = 0;
      for (size_t r = 0; r < c.rows.size(); ++r) {
        const int n = c.rows[r].num_queries;
        const int64_t width = static_cast<int64_t>(c.num_heads) * c.head_dim;
        const BatchArrays batch(in.cache, {c.rows[r]}, {static_cast<int>(r)});
        AttentionParams params = in.Params(alone);
        params.batch = batch.view();
        params.q = {.data = in.q.view().as<float>() + first * width,
                    .dtype = DType::kF32,
                    .shape = {n, c.num_heads, c.head_dim}};
        params.y = {.data = alone.view().as<std::byte>() +
                            static_cast<size_t>(first * width) * SizeOf(c.y_dtype),
                    .dtype = c.y_dtype,
                    .shape = {n, width}};
        ASSERT_EQ(table.attention(params, stream_), Status::Ok());
        first += n;
      }
      EXPECT_TRUE(SameBits(alone.ToFloats(), together.ToFloats())) << table.name << " " << c.name;
    }
  }
}

// A prompt prefilled whole, in chunks, or token by token gives the same bits: a token's sums depend
// on its position alone.
TEST_P(AttentionTest, AChunkingDoesNotShow) {
  constexpr int kLength = 150;
  for (const int block_size : {16, 64}) {
    const AttentionCase c = {"chunks", 6, 2, 40, block_size, {{kLength, kLength}}};
    const Inputs in(c, GetParam());
    const int64_t width = static_cast<int64_t>(c.num_heads) * c.head_dim;
    for (const OpTable& table : VectorTables({.kv_dtype = GetParam(), .head_dim = c.head_dim})) {
      const Tensor whole = Output(c, kLength, DType::kF32);
      ASSERT_EQ(table.attention(in.Params(whole), stream_), Status::Ok());
      for (const std::vector<int>& chunks :
           {std::vector<int>{1, 16, 63, 70}, std::vector<int>{64, 64, 22},
            std::vector<int>(150, 1)}) {
        const Tensor parts = Output(c, kLength, DType::kF32);
        int done = 0;
        for (const int n : chunks) {
          const BatchArrays batch(in.cache, {{n, done + n}}, {0});
          AttentionParams params = in.Params(parts);
          params.batch = batch.view();
          params.q = {.data = in.q.view().as<float>() + done * width,
                      .dtype = DType::kF32,
                      .shape = {n, c.num_heads, c.head_dim}};
          params.y = {.data = parts.view().as<float>() + done * width,
                      .dtype = DType::kF32,
                      .shape = {n, width}};
          ASSERT_EQ(table.attention(params, stream_), Status::Ok());
          done += n;
        }
        EXPECT_TRUE(SameBits(parts.ToFloats(), whole.ToFloats()))
            << table.name << " " << chunks.size() << " chunks, block " << block_size;
      }
    }
  }
}

// Two keys: q . k0 = 0 and q . k1 = 2; scale ln(3) / 2 makes the weights 1/4 and 3/4. Values are
// 4 and 8 in dimension 0, so y = 7; at position 0 the first key is alone, y = 4.
TEST_P(AttentionTest, HandCheckedCase) {
  const KvShape shape = {GetParam(), 1, 8, 16};
  const PagedCache cache(shape, {2}, 1);
  cache.Fill(0, 0, 2, 1);
  const KvCacheView& kv = cache.view();
  const auto set = [&](std::byte* base, int64_t index, float value) {
    TensorView view = {.data = base, .dtype = kv.dtype, .shape = {16 * 8}};
    if (kv.dtype == DType::kF32) view.as<float>()[index] = value;
    if (kv.dtype == DType::kF16) view.as<Float16>()[index] = Float16::FromFloat(value);
    if (kv.dtype == DType::kBF16) view.as<BFloat16>()[index] = BFloat16::FromFloat(value);
  };
  const int block = cache.blocks(0)[0];
  for (int token = 0; token < 2; ++token)
    for (int d = 0; d < 8; ++d) {
      set(kv.Keys(0, block, 0), kv.KeyIndex(token, d), token == 1 && d == 3 ? 2.0F : 0.0F);
      set(kv.Values(0, block, 0), kv.ValueIndex(token, d),
          d == 0 ? 4.0F + 4.0F * static_cast<float>(token) : 0.0F);
    }
  std::vector<float> q(16, 0.0F);
  q[3] = 1;
  q[8 + 3] = 1;
  const Tensor queries = Tensor::Of(DType::kF32, {2, 1, 8}, q);
  const BatchArrays batch(cache, {{2, 2}}, {0});
  for (const OpTable& table : CpuOpTables({.kv_dtype = GetParam(), .head_dim = 8})) {
    Tensor y(DType::kF32, {2, 8});
    ASSERT_EQ(table.attention({.q = queries.view(),
                               .batch = batch.view(),
                               .kv = kv,
                               .layer = 0,
                               .scale = std::log(3.0F) / 2,
                               .y = y.view()},
                              stream_),
              Status::Ok());
    const double tolerance = GetParam() == DType::kBF16 ? 7 * 2 * RoundingOf(DType::kBF16) : 1e-5;
    EXPECT_NEAR(y.Get(0), 4, 1e-5) << table.name;
    EXPECT_NEAR(y.Get(8), 7, tolerance) << table.name;
    EXPECT_EQ(y.Get(1), 0) << table.name;
  }
}

INSTANTIATE_TEST_SUITE_P(KvDTypes, AttentionTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST(AttentionErrorTest, AHeadWiderThanTheKernelsRunsOnTheReference) {
  const auto tables = CpuOpTables({.head_dim = 512});
  ASSERT_EQ(tables.size(), 1U);
  EXPECT_EQ(tables[0].name, "reference");
}

}  // namespace
}  // namespace inflight::ops
