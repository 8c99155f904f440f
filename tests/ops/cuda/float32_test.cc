// SPDX-License-Identifier: Apache-2.0
// The operators of models in float32 where the shared cases do not go: factors, norms in place and
// of heads, scales and caps of logits, adapters, and rows whose bits do not depend on the batch.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/cuda/float32/kernels.h"
#include "product_reference.h"
#include "rope_table.h"

namespace inflight::ops {
namespace {

using testing::HasSubstr;

class CudaFloat32Test : public AgainstReference {
 protected:
  // Each within 2^-16 of itself, or of what it was made of: sums of a few thousand terms.
  static testing::AssertionResult Follows(const DeviceTensor& got, const Tensor& want,
                                          double size) {
    std::vector<double> bound;
    for (const float value : want.ToFloats())
      bound.push_back(0x1p-16 * std::max(size, std::abs(double{value})));
    return Within(got.ToHost().ToFloats(), want.ToFloats(), bound);
  }
};

TEST_F(CudaFloat32Test, FactorsOfDeltasAndNormsOfEachKindInPlaceAndNot) {
  for (const int width : {1, 37, 768, 9000})
    for (const NormKind kind : {NormKind::kRmsNorm, NormKind::kLayerNorm, NormKind::kNone})
      for (const bool has_delta : {false, true})
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << width << " kind " << static_cast<int>(kind) << " delta " << has_delta
                       << (in_place ? " in place" : ""));
          const Shape shape = {5, width};
          const Tensor residual = Tensor::Random(DType::kF32, shape, 1);
          const Tensor delta = Tensor::Random(DType::kF32, shape, 2);
          const Tensor weight = Tensor::Random(DType::kF32, {width}, 3);
          const Tensor bias = Tensor::Random(DType::kF32, {width}, 4);
          const DeviceTensor device_residual = ToDevice(residual), device_delta = ToDevice(delta),
                             device_weight = ToDevice(weight), device_bias = ToDevice(bias);
          const DeviceTensor device_y = Output(DType::kF32, shape);
          const Tensor y(DType::kF32, shape);
          const auto params = [&](const auto& x, const auto& d, const auto& w, const auto& b,
                                  const auto& out) {
            AddNormParams p = {.residual = x.view(),
                               .delta = has_delta ? d.view() : TensorView{},
                               .delta_factor = 0.22F,
                               .norm = {.kind = kind},
                               .y = in_place ? x.view() : out.view()};
            if (kind != NormKind::kNone) p.norm.weight = w.view();
            if (kind == NormKind::kLayerNorm) p.norm.bias = b.view();
            return p;
          };
          ASSERT_EQ(ReferenceTable().add_norm(params(residual, delta, weight, bias, y), host()),
                    Status::Ok());
          ASSERT_EQ(cuda::float32::AddNorm(
                        params(device_residual, device_delta, device_weight, device_bias, device_y),
                        stream()),
                    Status::Ok());
          EXPECT_TRUE(Follows(device_residual, residual, 1));
          if (!in_place) {
            EXPECT_TRUE(Follows(device_y, y, 1));
          }
          EXPECT_TRUE(Intact(device_residual) && Intact(device_y));
        }
}

// Of the tokens of the step.
void ExpectSameCaches(const DeviceCache& cache, const PagedCache& want,
                      const std::vector<SequenceRow>& rows, int layer) {
  const std::vector<std::byte> pool = cache.Download();
  const auto* const elements = reinterpret_cast<const float*>(pool.data());
  for (const int s : SequencesOf(rows)) {
    const SequenceRow& row = rows[static_cast<size_t>(s)];
    for (int p = row.seq_len - row.num_queries; p < row.seq_len; ++p)
      for (int h = 0; h < want.view().num_kv_heads; ++h)
        for (int d = 0; d < want.view().head_dim; ++d) {
          const int64_t slot = cache.Slot(s, p);
          ASSERT_NEAR(elements[cache.ElementIndex(layer, slot, /*is_value=*/false, h, d)],
                      want.Key(layer, s, p, h, d), 2e-5)
              << s << " " << p << " " << h << " " << d;
          ASSERT_NEAR(elements[cache.ElementIndex(layer, slot, /*is_value=*/true, h, d)],
                      want.Value(layer, s, p, h, d), 2e-5)
              << s << " " << p << " " << h << " " << d;
        }
  }
}

// q where the projection is, as a decoder has it.
TEST_F(CudaFloat32Test, HeadsAreNormalisedEachOrTogetherBeforeTheyRotate) {
  constexpr int kHeads = 6, kKvHeads = 2, kHidden = 40, kLayer = 1;
  const std::vector<SequenceRow> rows = {{5, 5}, {1, 18}, {3, 34}};
  for (const int head_dim : {8, 24, 128, 256})
    for (const RopeStyle style : {RopeStyle::kNone, RopeStyle::kNeox, RopeStyle::kGptj})
      for (const bool is_wide : {false, true}) {
        SCOPED_TRACE(testing::Message() << head_dim << " style " << static_cast<int>(style)
                                        << (is_wide ? " together" : ""));
        const bool has_rope = style != RopeStyle::kNone;
        const int rotary_dim = head_dim - 4;
        const int64_t width = int64_t{kHeads + 2 * kKvHeads} * head_dim;
        const DeviceCache cache(device(), {DType::kF32, kKvHeads, head_dim, 16}, LengthsOf(rows),
                                5);
        const DeviceBatch batch(device(), cache, rows, SequencesOf(rows));
        const PagedCache host_cache({DType::kF32, kKvHeads, head_dim, 16}, LengthsOf(rows), 6);
        const BatchArrays host_batch(host_cache, rows, SequencesOf(rows));
        const int64_t num_tokens = batch.view().num_tokens;
        const Tensor x = Tensor::Random(DType::kF32, {num_tokens, kHidden}, 1);
        const Tensor w = Tensor::Random(DType::kF32, {width, kHidden}, 2);
        const Tensor bias = Tensor::Random(DType::kF32, {width}, 3);
        const Tensor q_norm =
            Tensor::Random(DType::kF32, {is_wide ? kHeads * head_dim : head_dim}, 4);
        const Tensor k_norm =
            Tensor::Random(DType::kF32, {is_wide ? kKvHeads * head_dim : head_dim}, 5);
        std::vector<int> positions(40);
        std::iota(positions.begin(), positions.end(), 0);
        const Tensor cos_sin = CosSinTable(rotary_dim, 40, positions);
        const Tensor workspace(DType::kF32, {num_tokens, width});
        const Tensor q(DType::kF32, {num_tokens, kHeads, head_dim});
        const auto params = [&](const auto& of_x, const auto& of_w, const auto& of_bias,
                                const auto& of_q_norm, const auto& of_k_norm, const auto& table,
                                const auto& in) {
          QkvRopeKvParams p = {.x = {.values = of_x.view()},
                               .weight = Float32Weight(w),
                               .bias = of_bias.view(),
                               .num_heads = kHeads,
                               .q_norm = of_q_norm.view(),
                               .k_norm = of_k_norm.view(),
                               .norm_eps = 1e-5F,
                               .rope = {.style = style, .rotary_dim = has_rope ? rotary_dim : 0},
                               .layer = kLayer,
                               .workspace = in.view()};
          p.weight.data = of_w.view().data;
          if (has_rope) p.rope.cos_sin = table.view();
          return p;
        };
        QkvRopeKvParams of_host = params(x, w, bias, q_norm, k_norm, cos_sin, workspace);
        of_host.batch = host_batch.view();
        of_host.kv = host_cache.view();
        of_host.q = q.view();
        ASSERT_EQ(ReferenceTable().qkv_rope_kv(of_host, host()), Status::Ok());
        const DeviceTensor device_x = ToDevice(x), device_w = ToDevice(w),
                           device_bias = ToDevice(bias), device_q_norm = ToDevice(q_norm),
                           device_k_norm = ToDevice(k_norm), device_table = ToDevice(cos_sin);
        const DeviceTensor projected = Output(DType::kF32, {num_tokens, width});
        QkvRopeKvParams of_device = params(device_x, device_w, device_bias, device_q_norm,
                                           device_k_norm, device_table, projected);
        of_device.batch = batch.view();
        of_device.kv = cache.view();
        of_device.q = {projected.view().data, DType::kF32, {num_tokens, kHeads, head_dim}};
        of_device.q_stride = width;
        ASSERT_EQ(cuda::float32::QkvRopeKv(of_device, stream()), Status::Ok());

        const Tensor got = projected.ToHost();
        std::vector<float> got_q;
        for (int64_t t = 0; t < num_tokens; ++t)
          for (int64_t i = 0; i < kHeads * head_dim; ++i) got_q.push_back(got.Get(t * width + i));
        EXPECT_TRUE(Within(got_q, q.ToFloats(), std::vector<double>(got_q.size(), 2e-5)));
        ExpectSameCaches(cache, host_cache, rows, kLayer);
        EXPECT_TRUE(Intact(projected));
      }
}

TEST_F(CudaFloat32Test, HeadScalesAndCapsItsLogits) {
  constexpr int64_t kN = 1009, kK = 1025, kTokens = 40;
  const Operand x(device(), DType::kF32, kTokens, kK, 1), w(device(), DType::kF32, kN, kK, 2);
  const Tensor bias = Tensor::Random(DType::kF32, {kN}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const int num_rows : {1, 12, 40})
    for (const auto& [scale, softcap] :
         {std::pair{1.0F, 2.0F}, {0.125F, 0.0F}, {4.0F, 30.0F}, {1.0F, 1e-3F}}) {
      std::vector<int> chosen;
      for (int i = 0; i < num_rows; ++i) chosen.push_back(static_cast<int>(kTokens) - 1 - i);
      const Tensor rows = Tensor::Int32(chosen);
      const DeviceTensor device_rows = ToDevice(rows);
      const DeviceTensor logits = Output(DType::kF32, {num_rows, kN});
      const Tensor want(DType::kF32, {num_rows, kN});
      ASSERT_EQ(ReferenceTable().lm_head({.x = {.values = x.values.view()},
                                          .rows = rows.view(),
                                          .weight = Float32Weight(w.values),
                                          .bias = bias.view(),
                                          .logits = want.view(),
                                          .scale = scale,
                                          .softcap = softcap},
                                         host()),
                Status::Ok());
      ASSERT_EQ(cuda::float32::LmHead({.x = x.activation(),
                                       .rows = device_rows.view(),
                                       .weight = w.weight(),
                                       .bias = device_bias.view(),
                                       .logits = logits.view(),
                                       .scale = scale,
                                       .softcap = softcap},
                                      stream()),
                Status::Ok());
      // A cap moves what was off no further.
      EXPECT_TRUE(Follows(logits, want, 32.0 * scale))
          << num_rows << " " << scale << " " << softcap;
      EXPECT_TRUE(Intact(logits));
    }
}

TEST_F(CudaFloat32Test, ARowHasTheSameBitsAloneAndAmongOthers) {
  constexpr int64_t kN = 333, kTokens = 41;
  for (const int64_t k : {64, 1021, 4096}) {
    const Operand x(device(), DType::kF32, kTokens, k, 1), w(device(), DType::kF32, kN, k, 2),
        up(device(), DType::kF32, kN, k, 3);
    const Tensor bias = Tensor::Random(DType::kF32, {kN}, 9);
    const DeviceTensor device_bias = ToDevice(bias);
    const auto run = [&](int64_t first, int64_t num_rows, bool is_gated) {
      const TensorView rows = {
          x.device_values.view().as<float>() + first * k, DType::kF32, {num_rows, k}};
      const DeviceTensor y = Output(DType::kF32, {num_rows, kN});
      EXPECT_EQ(is_gated ? cuda::float32::GatedLinear({.x = {.values = rows},
                                                       .gate = w.weight(),
                                                       .up = up.weight(),
                                                       .gate_bias = device_bias.view(),
                                                       .y = y.view()},
                                                      stream())
                         : cuda::float32::Linear({.x = {.values = rows},
                                                  .weight = w.weight(),
                                                  .bias = device_bias.view(),
                                                  .activation = ActivationKind::kGelu,
                                                  .y = y.view()},
                                                 stream()),
                Status::Ok());
      return y.ToHost().ToFloats();
    };
    for (const bool is_gated : {false, true}) {
      const std::vector<float> all = run(0, kTokens, is_gated);
      for (const auto& [first, count] : {std::pair{0, 1}, {40, 1}, {7, 2}, {13, 9}}) {
        const auto row = all.begin() + std::ptrdiff_t{first} * kN;
        EXPECT_TRUE(SameBits(run(first, count, is_gated), {row, row + std::ptrdiff_t{count} * kN}))
            << count << " rows from " << first << " of " << k << (is_gated ? ", gated" : "");
      }
    }
  }
}

// Beside adapters that no token of the step has.
TEST_F(CudaFloat32Test, TokensWithoutAdaptersKeepTheirBits) {
  constexpr int64_t kN = 96, kK = 200, kTokens = 11;
  const Operand x(device(), DType::kF32, kTokens, kK, 1), gate(device(), DType::kF32, kN, kK, 2),
      up(device(), DType::kF32, kN, kK, 3);
  const DeviceTensor zero = ToDevice(Tensor::Int32({0}));
  const DeviceTensor sums = Output(DType::kF32, {kTokens, 8});
  LoraBatch batch;
  batch.device = {.num_layers = 1,
                  .num_tiles = zero.view().as<const int32_t>(),
                  .tile_tokens = kSmallLoraTile,
                  .sums = sums.view().as<float>(),
                  .num_sums = kTokens,
                  .sums_stride = 8};
  std::vector<float> plain;
  for (LoraBatch* const adapters : {static_cast<LoraBatch*>(nullptr), &batch}) {
    const DeviceTensor workspace = Output(DType::kF32, {kTokens, 2 * kN});
    const DeviceTensor y = Output(DType::kF32, {kTokens, kN});
    ASSERT_EQ(cuda::float32::GatedLinear({.x = x.activation(),
                                          .gate = gate.weight(),
                                          .up = up.weight(),
                                          .y = y.view(),
                                          .lora = {adapters, 0},
                                          .workspace = workspace.view()},
                                         stream()),
              Status::Ok());
    EXPECT_TRUE(Intact(y) && Intact(workspace));
    if (adapters == nullptr)
      plain = y.ToHost().ToFloats();
    else
      EXPECT_TRUE(SameBits(y.ToHost().ToFloats(), plain));
  }
}

TEST_F(CudaFloat32Test, WhatDoesNotFitIsNamed) {
  const Operand x(device(), DType::kF32, 3, 8, 1), w(device(), DType::kBF16, 16, 8, 2);
  const DeviceTensor y = Output(DType::kF32, {3, 16});
  EXPECT_THAT(
      cuda::float32::Linear({.x = x.activation(), .weight = w.weight(), .y = y.view()}, stream())
          .message(),
      HasSubstr("weight: got bfloat16 row_major [16, 8]"));
  const Operand wide(device(), DType::kF32, 16, 12, 2);
  EXPECT_THAT(
      cuda::float32::Linear({.x = x.activation(), .weight = wide.weight(), .y = y.view()}, stream())
          .message(),
      HasSubstr("needed float32 [3, 12]"));
  const Operand half(device(), DType::kBF16, 3, 8, 1);
  EXPECT_THAT(cuda::float32::AddNorm({.residual = half.activation().values,
                                      .norm = {.kind = NormKind::kNone},
                                      .y = half.activation().values},
                                     stream())
                  .message(),
              HasSubstr("needed float32 [rows, columns]"));
}

}  // namespace
}  // namespace inflight::ops
