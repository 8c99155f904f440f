// SPDX-License-Identifier: Apache-2.0
// Every operator without a product against ops/reference, over the shared list of cases. The
// reference computes in float32 from what the GPU's operands stand for.
#include <algorithm>
#include <cmath>

#include "against_reference.h"
#include "product_bounds.h"

namespace inflight::ops {
namespace {

constexpr DType kHalves[] = {DType::kF16, DType::kBF16};
constexpr DType kFloats[] = {DType::kF16, DType::kBF16, DType::kF32};

using CudaSharedCasesTest = AgainstReference;

// Sums of rows of tables, rounded once: equal bits.
TEST_F(CudaSharedCasesTest, Embed) {
  constexpr int kMaxPositions = 9;
  for (const EmbedCase& c : EmbedCases())
    for (const DType dtype : kFloats) {
      const Tensor rows = Tensor::Random(dtype, {c.vocab_size, c.hidden_size}, 1);
      const Tensor positions = Tensor::Random(dtype, {kMaxPositions, c.hidden_size}, 2);
      std::vector<int> ids;
      std::vector<int> at;
      for (int t = 0; t < c.num_tokens; ++t) {
        ids.push_back((c.vocab_size - 1 + t * 37) % c.vocab_size);
        at.push_back((kMaxPositions - 1 + t * 4) % kMaxPositions);
      }
      const Tensor host_ids = Tensor::Int32(ids);
      const Tensor host_at = Tensor::Int32(at);
      Weight table = {.data = rows.view().data,
                      .dtype = dtype,
                      .out_features = c.vocab_size,
                      .in_features = c.hidden_size};
      const Tensor want(DType::kF32, {c.num_tokens, c.hidden_size});
      ASSERT_EQ(
          ReferenceTable().embed({.ids = host_ids.view(),
                                  .positions = host_at.view(),
                                  .table = table,
                                  .position_table = c.positions ? positions.view() : TensorView{},
                                  .y = want.view()},
                                 host()),
          Status::Ok());

      const DeviceTensor device_rows = ToDevice(rows);
      const DeviceTensor device_positions = ToDevice(positions, c.offset_elements);
      const DeviceTensor device_ids = ToDevice(host_ids);
      const DeviceTensor device_at = ToDevice(host_at);
      const DeviceTensor y = Output(dtype, {c.num_tokens, c.hidden_size}, c.offset_elements);
      table.data = device_rows.view().data;
      ASSERT_EQ(TableOf(dtype).embed(
                    {.ids = device_ids.view(),
                     .positions = device_at.view(),
                     .table = table,
                     .position_table = c.positions ? device_positions.view() : TensorView{},
                     .y = y.view()},
                    stream()),
                Status::Ok());
      const Tensor rounded = Tensor::Of(dtype, want.view().shape, want.ToFloats());
      EXPECT_TRUE(SameBits(y.ToHost().ToFloats(), rounded.ToFloats()))
          << c.name << " " << DTypeName(dtype);
      EXPECT_TRUE(Intact(y)) << c.name;
    }
}

// The largest magnitude of a row is exact, its scale one division; codes are the nearest to the
// reference's quotients, next to the middle of two either.
TEST_F(CudaSharedCasesTest, Quantize) {
  for (const NormCase& c : NormCases())
    for (const DType dtype : kHalves)
      for (const int offset : {0, 1}) {
        const Shape shape = {c.num_tokens, c.hidden_size};
        const Tensor x = Tensor::Random(dtype, shape, 1);
        const Tensor codes(DType::kF8E4M3, shape);
        const Tensor scales(DType::kF32, {c.num_tokens});
        ASSERT_EQ(ReferenceTable().quantize(
                      {.x = x.view(), .y = codes.view(), .scales = scales.view()}, host()),
                  Status::Ok());
        const DeviceTensor device_x = ToDevice(x, offset);
        const DeviceTensor y = Output(DType::kF8E4M3, shape, offset);
        const DeviceTensor y_scales = Output(DType::kF32, {c.num_tokens});
        ASSERT_EQ(TableOf(dtype).quantize(
                      {.x = device_x.view(), .y = y.view(), .scales = y_scales.view()}, stream()),
                  Status::Ok());
        const Tensor got_scales = y_scales.ToHost();
        const Tensor got = y.ToHost();
        for (int64_t t = 0; t < c.num_tokens; ++t)
          ASSERT_NEAR(got_scales.Get(t), scales.Get(t), 2 * kUnit * scales.Get(t)) << c.name;
        for (int64_t i = 0; i < shape.num_elements(); ++i) {
          if (got.Get(i) == codes.Get(i)) continue;
          const double quotient = x.Get(i) / double{scales.Get(i / c.hidden_size)};
          const double middle = (double{got.Get(i)} + codes.Get(i)) / 2;
          ASSERT_NEAR(quotient, middle, 8 * kUnit * std::abs(quotient))
              << c.name << " " << DTypeName(dtype) << " at " << i;
        }
        EXPECT_TRUE(Intact(y)) << c.name;
      }
}

// One norm of the list on the GPU, and the reference's of the residual that the GPU left: what it
// rounded there shows in the residual alone.
class CudaSharedNormTest : public AgainstReference {
 protected:
  void Check(const NormCase& c, DType dtype, int offset, bool is_fp8);
};

void CudaSharedNormTest::Check(const NormCase& c, DType dtype, int offset, bool is_fp8) {
  SCOPED_TRACE(std::string(c.name) + " " + std::string(DTypeName(dtype)) + " offset " +
               std::to_string(offset) + (is_fp8 ? " to e4m3" : ""));
  const Shape shape = {c.num_tokens, c.hidden_size};
  const Tensor residual = Tensor::Random(dtype, shape, 1);
  const Tensor delta = Tensor::Random(dtype, shape, 2);
  const Tensor weight = Tensor::Random(DType::kF32, {c.hidden_size}, 3);
  const Tensor bias = Tensor::Random(DType::kF32, {c.hidden_size}, 4);
  const auto norm = [&](const TensorView& weights, const TensorView& biases) {
    return Norm{.kind = c.layer_norm ? NormKind::kLayerNorm : NormKind::kRmsNorm,
                .weight = weights,
                .bias = c.layer_norm ? biases : TensorView{},
                .eps = 1e-5F};
  };
  const DeviceTensor device_residual = ToDevice(residual, offset);
  const DeviceTensor device_delta = ToDevice(delta, offset);
  const DeviceTensor device_weight = ToDevice(weight);
  const DeviceTensor device_bias = ToDevice(bias);
  const DeviceTensor y = Output(is_fp8 ? DType::kF8E4M3 : dtype, shape, offset);
  const DeviceTensor y_scales = Output(DType::kF32, {c.num_tokens});
  ASSERT_EQ(TableOf(dtype).add_norm({.residual = device_residual.view(),
                                     .delta = c.delta ? device_delta.view() : TensorView{},
                                     .norm = norm(device_weight.view(), device_bias.view()),
                                     .y = y.view(),
                                     .y_scales = is_fp8 ? y_scales.view() : TensorView{}},
                                    stream()),
            Status::Ok());
  const Tensor left = device_residual.ToHost();

  const Tensor sum = InFloat32(residual);
  const Tensor added = InFloat32(delta);
  const Tensor unused(DType::kF32, shape);
  ASSERT_EQ(ReferenceTable().add_norm({.residual = sum.view(),
                                       .delta = c.delta ? added.view() : TensorView{},
                                       .norm = norm(weight.view(), bias.view()),
                                       .y = unused.view()},
                                      host()),
            Status::Ok());
  const Tensor rounded = Tensor::Of(dtype, shape, sum.ToFloats());
  EXPECT_TRUE(SameBits(left.ToFloats(), rounded.ToFloats())) << "a sum of two, rounded twice";

  const Tensor again = InFloat32(left);
  const Tensor want(DType::kF32, shape);
  ASSERT_EQ(
      ReferenceTable().add_norm(
          {.residual = again.view(), .norm = norm(weight.view(), bias.view()), .y = want.view()},
          host()),
      Status::Ok());
  // Means carry a relative error of n u each side (compare.h): half of it in y through the root,
  // and of the size of the scaled inputs through the center.
  const Tensor got_scales = y_scales.ToHost();
  std::vector<double> wanted = InFloat64(want);
  std::vector<double> bound;
  std::vector<double> largest(static_cast<size_t>(c.num_tokens), 1.0 / 512);
  std::vector<double> largest_bound(largest.size(), 0);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const size_t t = i / static_cast<size_t>(c.hidden_size);
    const auto column = static_cast<int64_t>(i) % c.hidden_size;
    const double size =
        std::abs(wanted[i]) + std::abs(bias.Get(column)) + 2.0 * std::abs(weight.Get(column));
    bound.push_back(2 * (c.hidden_size + 8) * kUnit * size);
    largest[t] = std::max(largest[t], std::abs(wanted[i]));
    largest_bound[t] = std::max(largest_bound[t], bound.back());
  }
  if (!is_fp8) {
    EXPECT_TRUE(Near(y.ToHost(), wanted, bound));
  } else {
    for (size_t t = 0; t < largest.size(); ++t)
      ASSERT_NEAR(got_scales.Get(static_cast<int64_t>(t)), largest[t] / 448,
                  (largest_bound[t] + 4 * kUnit * largest[t]) / 448);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double scale = got_scales.Get(static_cast<int64_t>(i) / c.hidden_size);
      wanted[i] /= scale;
      bound[i] = bound[i] / scale + 4 * kUnit * std::abs(wanted[i]);
    }
    EXPECT_TRUE(NearestCodes(y.ToHost(), wanted, bound));
  }
  for (const DeviceTensor* tensor : {&device_residual, &y, &y_scales}) EXPECT_TRUE(Intact(*tensor));
}

TEST_F(CudaSharedNormTest, AddNorm) {
  for (const NormCase& c : NormCases())
    for (const DType dtype : kFloats)
      for (const int offset : {0, 1})
        for (const bool is_fp8 : {false, true})
          if (!is_fp8 || dtype != DType::kF32) Check(c, dtype, offset, is_fp8);
}

// Attention of the list over a cache of `kv_dtype`, elements of an FP8 one standing for `kv_scale`
// times themselves.
class CudaSharedAttentionTest : public AgainstReference {
 protected:
  static constexpr int kLayer = 1;

  static void Fill(const AttentionCase& c, const std::vector<int>& lengths, DeviceCache& cache,
                   const PagedCache& reference);
  void Check(const AttentionCase& c, DType dtype, DType kv_dtype, float kv_scale);
};

// With |q| <= 1, |k| and |v| <= m: a score is at most ds = m sqrt(head_dim), and a side's softmax
// weights have the relative error 4 (head_dim + 8) u ds + 16 u, on the GPU also that of its fast
// exponential and of rounding them to the dtype of the products (2^-25 each where they fall below
// float16's normal numbers); sums of n keys 4 n u a side; and |y| <= m.
double AttentionBound(const AttentionCase& c, DType kv_dtype, double m, int n) {
  const DType products = kv_dtype == DType::kF8E4M3 ? DType::kF16 : kv_dtype;
  const double side = 4 * (c.head_dim + 8) * kUnit * m * std::sqrt(c.head_dim) + 16 * kUnit;
  const double rounding = RoundingOf(products) + (products == DType::kF16 ? n * 0x1p-25 : 0);
  return m * (2 * side + 0x1p-19 + rounding + 8.0 * n * kUnit) + 1e-7;
}

// The same keys and values for the GPU, rounded to its datatype, and for the reference.
void CudaSharedAttentionTest::Fill(const AttentionCase& c, const std::vector<int>& lengths,
                                   DeviceCache& cache, const PagedCache& reference) {
  const KvCacheView& kv = reference.view();
  for (const int s : SequencesOf(c.rows)) {
    const int length = lengths[static_cast<size_t>(s)];
    cache.Fill(kLayer, s, length, 100 + static_cast<uint64_t>(s));
    pool().ParallelFor(length, [&](int64_t at) {
      const auto position = static_cast<int>(at);
      const int64_t slot = reference.Slot(s, position);
      const auto offset = static_cast<int>(slot % kv.block_size);
      for (int head = 0; head < c.num_kv_heads; ++head)
        for (int d = 0; d < c.head_dim; ++d) {
          auto* keys = reinterpret_cast<float*>(kv.Keys(kLayer, slot / kv.block_size, head));
          auto* values = reinterpret_cast<float*>(kv.Values(kLayer, slot / kv.block_size, head));
          keys[kv.KeyIndex(offset, d)] = cache.Key(kLayer, s, position, head, d);
          values[kv.ValueIndex(offset, d)] = cache.Value(kLayer, s, position, head, d);
        }
    });
  }
}

// Heads with zeros behind them.
Tensor InRows(const Tensor& heads, int64_t row_dim) {
  const Shape& shape = heads.view().shape;
  Tensor rows(heads.view().dtype, {shape[0], shape[1], row_dim});
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
    for (int64_t d = 0; d < row_dim; ++d)
      rows.Set(i * row_dim + d, d < shape[2] ? heads.Get(i * shape[2] + d) : 0);
  return rows;
}

void CudaSharedAttentionTest::Check(const AttentionCase& c, DType dtype, DType kv_dtype,
                                    float kv_scale) {
  SCOPED_TRACE(std::string(c.name) + " " + std::string(DTypeName(dtype)) + " kv " +
               std::string(DTypeName(kv_dtype)));
  const std::vector<int> lengths = LengthsOf(c.rows);
  const bool has_scales = kv_dtype == DType::kF8E4M3;
  const bool is_wide = dtype == DType::kF32;
  const int row_dim = is_wide ? c.head_dim : CudaRowDim(c.head_dim);
  DeviceCache cache(device(), {kv_dtype, c.num_kv_heads, c.head_dim, c.block_size, row_dim},
                    lengths, 5,
                    has_scales ? std::vector<float>(4, kv_scale) : std::vector<float>{});
  const PagedCache reference({DType::kF32, c.num_kv_heads, c.head_dim, c.block_size}, lengths, 6);
  Fill(c, lengths, cache, reference);
  cache.Upload();
  const DeviceBatch batch(device(), cache, c.rows, SequencesOf(c.rows));
  const BatchArrays host_batch(reference, c.rows, SequencesOf(c.rows));
  const int64_t num_tokens = batch.view().num_tokens;
  const int64_t width = int64_t{c.num_heads} * c.head_dim;
  const Tensor q = Tensor::Random(dtype, {num_tokens, c.num_heads, c.head_dim}, 6);
  const float scale = 1 / std::sqrt(static_cast<float>(c.head_dim));

  const Tensor host_q = InFloat32(q);
  const Tensor want(DType::kF32, {num_tokens, width});
  ASSERT_EQ(ReferenceTable().attention({.q = host_q.view(),
                                        .batch = host_batch.view(),
                                        .kv = reference.view(),
                                        .layer = kLayer,
                                        .scale = scale,
                                        .y = want.view()},
                                       host()),
            Status::Ok());

  const ShapeClass shape = {.weight_dtype = dtype,
                            .dtype = dtype,
                            .kv_dtype = kv_dtype,
                            .head_dim = c.head_dim,
                            .num_heads = c.num_heads,
                            .num_kv_heads = c.num_kv_heads,
                            .hidden_size = 64,
                            .intermediate_size = 64};
  const auto attention_stream = NewStream(shape, 1024, 256);
  const OpTable table = Table(shape);
  const Tensor rows = InRows(q, row_dim);
  const DeviceTensor device_q = ToDevice(rows);
  const DeviceTensor y = Output(dtype, {num_tokens, width});
  AttentionParams params = {.q = device_q.view(),
                            .batch = batch.view(),
                            .kv = cache.view(),
                            .layer = kLayer,
                            .scale = scale,
                            .y = y.view()};
  if (!is_wide) {
    ASSERT_EQ(
        table.plan_attention({.batch = batch.view(), .kv = cache.view(), .num_heads = c.num_heads},
                             *attention_stream),
        Status::Ok());
  }
  ASSERT_EQ(table.attention(params, *attention_stream), Status::Ok());
  std::vector<double> bound;
  for (const SequenceRow& row : c.rows)
    bound.insert(bound.end(), static_cast<size_t>(row.num_queries * width),
                 AttentionBound(c, kv_dtype, has_scales ? kv_scale : 1, row.seq_len));
  const std::vector<double> wanted = InFloat64(want);
  for (size_t i = 0; i < bound.size(); ++i) bound[i] = AfterRounding(bound[i], wanted[i], dtype);
  EXPECT_TRUE(Within(y.ToHost().ToFloats(), want.ToFloats(), bound));
  EXPECT_TRUE(Intact(y));
  if (is_wide) return;
  // Rows are read as whole vectors: others are refused.
  const DeviceTensor odd_q = ToDevice(rows, 1);
  params.q = odd_q.view();
  EXPECT_EQ(table.attention(params, *attention_stream).message(), "q: not aligned to 16 bytes");
}

TEST_F(CudaSharedCasesTest, HeadsWithoutKernelsAreNotOffered) {
  for (const AttentionCase& c : AttentionCases()) {
    for (const DType dtype : kFloats) {
      const ShapeClass shape = {
          .weight_dtype = dtype, .dtype = dtype, .kv_dtype = dtype, .head_dim = c.head_dim};
      EXPECT_EQ(CudaOpTables(shape, device()).empty(), c.head_dim % 8 != 0 || c.head_dim > 256)
          << c.name;
    }
  }
}

TEST_F(CudaSharedAttentionTest, Attention) {
  for (const AttentionCase& c : AttentionCases())
    for (const DType dtype : kFloats) {
      const ShapeClass shape = {
          .weight_dtype = dtype, .dtype = dtype, .kv_dtype = dtype, .head_dim = c.head_dim};
      if (CudaOpTables(shape, device()).empty()) continue;
      Check(c, dtype, dtype, 1);
      if (dtype != DType::kF32) Check(c, dtype, DType::kF8E4M3, 0.25F);
    }
}

}  // namespace
}  // namespace inflight::ops
