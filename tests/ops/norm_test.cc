// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "cases.h"
#include "compare.h"
#include "integer_weight.h"
#include "ops/add_norm.h"
#include "ops/embed.h"

namespace inflight::ops {
namespace {

class NormTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = Device::Cpu(3);
  Stream stream_{*device_};
};

Tensor Copy(const Tensor& t) { return Tensor::Of(t.view().dtype, t.view().shape, t.ToFloats()); }

TEST_F(NormTest, EveryTableAgreesWithTheReference) {
  for (const NormCase& c : NormCases()) {
    const Shape shape = {c.num_tokens, c.hidden_size};
    const Tensor residual = Tensor::Random(DType::kF32, shape, 1);
    const Tensor delta = Tensor::Random(DType::kF32, shape, 2);
    const Tensor weight = Tensor::Random(DType::kF32, {c.hidden_size}, 3, 1);
    const Tensor bias = Tensor::Random(DType::kF32, {c.hidden_size}, 4, 3);
    const auto run = [&](const OpTable& table, Tensor& x, Tensor& y) {
      return table.add_norm(
          {.residual = x.view(),
           .delta = c.delta ? delta.view() : TensorView{},
           .norm = {.kind = c.layer_norm ? NormKind::kLayerNorm : NormKind::kRmsNorm,
                    .weight = weight.view(),
                    .bias = c.layer_norm ? bias.view() : TensorView{},
                    .eps = 1e-5F},
           .y = y.view()},
          stream_);
    };
    Tensor want_x = Copy(residual);
    Tensor want(c.y_dtype, shape);
    ASSERT_EQ(run(ReferenceTable(), want_x, want), Status::Ok());
    // The mean of n squares (and the mean itself) carries a relative error of n u each side; y has
    // half of the former, and of the latter an absolute part of the size of the scaled inputs.
    std::vector<double> bound;
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      const int64_t column = i % c.hidden_size;
      const double y = std::abs(static_cast<double>(want.Get(i)));
      const double relative = 2 * (c.hidden_size + 8) * kUnit;
      const double size = (y + std::abs(static_cast<double>(bias.Get(column))) +
                           2 * std::abs(static_cast<double>(weight.Get(column))));
      bound.push_back(RoundedBound(relative * size, y, c.y_dtype));
    }
    for (const OpTable& table : VectorTables({})) {
      Tensor x = Copy(residual);
      Tensor got(c.y_dtype, shape, 1);
      ASSERT_EQ(run(table, x, got), Status::Ok());
      EXPECT_TRUE(SameBits(x.ToFloats(), want_x.ToFloats())) << table.name << " " << c.name;
      EXPECT_TRUE(Within(got.ToFloats(), want.ToFloats(), bound)) << table.name << " " << c.name;
    }
  }
}

// RMS of (3, 4) with weight (1, 2): mean square 25/2, y = (3, 8) / sqrt(12.5) =
// (0.848528, 2.262742). LayerNorm of (1, 3) with weight (1, 2), bias (10, 0): mean 2, variance 1: y
// = (9, 2).
TEST_F(NormTest, HandCheckedCases) {
  for (const OpTable& table : CpuOpTables({})) {
    Tensor x = Tensor::Of(DType::kF32, {1, 2}, {1, 5});
    const Tensor delta = Tensor::Of(DType::kF32, {1, 2}, {2, -1});
    const Tensor weight = Tensor::Of(DType::kF32, {2}, {1, 2});
    const Tensor bias = Tensor::Of(DType::kF32, {2}, {10, 0});
    Tensor y(DType::kF32, {1, 2});
    ASSERT_EQ(table.add_norm({.residual = x.view(),
                              .delta = delta.view(),
                              .norm = {.weight = weight.view(), .eps = 0},
                              .y = y.view()},
                             stream_),
              Status::Ok());
    EXPECT_EQ(x.ToFloats(), (std::vector<float>{3, 4})) << table.name;
    EXPECT_NEAR(y.Get(0), 0.848528, 1e-6) << table.name;
    EXPECT_NEAR(y.Get(1), 2.262742, 1e-6) << table.name;
    x = Tensor::Of(DType::kF32, {1, 2}, {1, 3});
    ASSERT_EQ(table.add_norm({.residual = x.view(),
                              .norm = {.kind = NormKind::kLayerNorm,
                                       .weight = weight.view(),
                                       .bias = bias.view(),
                                       .eps = 0},
                              .y = y.view()},
                             stream_),
              Status::Ok());
    EXPECT_EQ(y.ToFloats(), (std::vector<float>{9, 2})) << table.name;
  }
}

// (1, 5) + 1/2 (4, -2) = (3, 4), as it is or by RMSNorm in its own place: (3, 4) / sqrt(12.5).
TEST_F(NormTest, FactorsAndNormsInPlaceAndNone) {
  for (const OpTable& table : CpuOpTables({})) {
    Tensor x = Tensor::Of(DType::kF32, {1, 2}, {1, 5});
    const Tensor delta = Tensor::Of(DType::kF32, {1, 2}, {4, -2});
    const Tensor weight = Tensor::Of(DType::kF32, {2}, {1, 2});
    Tensor y(DType::kBF16, {1, 2});
    AddNormParams params = {.residual = x.view(),
                            .delta = delta.view(),
                            .delta_factor = 0.5F,
                            .norm = {.kind = NormKind::kNone},
                            .y = y.view()};
    ASSERT_EQ(table.add_norm(params, stream_), Status::Ok());
    EXPECT_EQ(x.ToFloats(), (std::vector<float>{3, 4})) << table.name;
    EXPECT_EQ(y.ToFloats(), (std::vector<float>{3, 4})) << table.name;
    const Norm norm = {.weight = weight.view(), .eps = 0};
    ASSERT_EQ(table.add_norm({.residual = x.view(), .norm = norm, .y = x.view()}, stream_),
              Status::Ok());
    EXPECT_NEAR(x.Get(0), 0.848528, 1e-6) << table.name;
    EXPECT_NEAR(x.Get(1), 2.262742, 1e-6) << table.name;
    params.norm.weight = weight.view();
    EXPECT_EQ(table.add_norm(params, stream_).message(),
              "norm.weight: got a tensor, needed none without a norm");
  }
}

// Beside the vectors' width, and many rows.
TEST_F(NormTest, NoNormCopiesEveryElement) {
  const Shape shape = {3, 515};
  const Tensor residual = Tensor::Random(DType::kF32, shape, 1);
  for (const OpTable& table : CpuOpTables({})) {
    Tensor x = Copy(residual);
    Tensor y(DType::kF32, shape, 1);
    ASSERT_EQ(
        table.add_norm({.residual = x.view(), .norm = {.kind = NormKind::kNone}, .y = y.view()},
                       stream_),
        Status::Ok());
    EXPECT_TRUE(SameBits(y.ToFloats(), residual.ToFloats())) << table.name;
  }
}

TEST_F(NormTest, ATokenIsTheSameAloneAndInABatch) {
  const Tensor x = Tensor::Random(DType::kF32, {16, 515}, 1);
  const Tensor weight = Tensor::Random(DType::kF32, {515}, 3);
  const Norm norm = {.weight = weight.view()};
  for (const OpTable& table : CpuOpTables({})) {
    Tensor together_x = Copy(x);
    Tensor alone_x = Copy(x);
    Tensor together(DType::kF32, {16, 515});
    Tensor alone(DType::kF32, {16, 515});
    ASSERT_EQ(table.add_norm({.residual = together_x.view(), .norm = norm, .y = together.view()},
                             stream_),
              Status::Ok());
    for (int64_t t = 0; t < 16; ++t) {
      const auto row = [t](const Tensor& all) {
        return TensorView{
            .data = all.view().as<float>() + t * 515, .dtype = DType::kF32, .shape = {1, 515}};
      };
      ASSERT_EQ(table.add_norm({.residual = row(alone_x), .norm = norm, .y = row(alone)}, stream_),
                Status::Ok());
    }
    EXPECT_TRUE(SameBits(together.ToFloats(), alone.ToFloats())) << table.name;
  }
}

// A row whose largest magnitude is 448 has the scale 1, and zeros the smallest, 2^-9 / 448. Of
// codes from 8 to 16 the step is 1, from 16 to 32 it is 2, and 17 and 19 go to the even of two.
TEST_F(NormTest, RowsAreRoundedToFp8) {
  const Tensor x =
      Tensor::Of(DType::kF32, {3, 4}, {448, 1, -0.5F, 0, 0, 0, 0, 0, 9.4F, -448, 17, 19});
  Tensor y(DType::kF8E4M3, {3, 4});
  Tensor scales(DType::kF32, {3});
  ASSERT_EQ(
      ReferenceTable().quantize({.x = x.view(), .y = y.view(), .scales = scales.view()}, stream_),
      Status::Ok());
  EXPECT_EQ(scales.ToFloats(), (std::vector<float>{1, 1.0F / 512 / 448, 1}));
  EXPECT_EQ(y.ToFloats(), (std::vector<float>{448, 1, -0.5F, 0, 0, 0, 0, 0, 9, -448, 16, 20}));
}

class EmbedTest : public NormTest {};

TEST_F(EmbedTest, RowsOfPackedTablesAndPositionsAreExact) {
  constexpr int kMaxPositions = 9;
  for (const EmbedCase& c : EmbedCases())
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Tensor rows = Tensor::Random(dtype, {c.vocab_size, c.hidden_size}, 1);
      const Tensor positions = Tensor::Random(dtype, {kMaxPositions, c.hidden_size}, 2);
      std::vector<int> ids;
      std::vector<int> at;
      std::vector<float> want;
      for (int t = 0; t < c.num_tokens; ++t) {
        ids.push_back((c.vocab_size - 1 + t * 37) % c.vocab_size);  // the last one first
        at.push_back((kMaxPositions - 1 + t * 4) % kMaxPositions);
        for (int i = 0; i < c.hidden_size; ++i)
          want.push_back(rows.Get(ids.back() * c.hidden_size + i) +
                         (c.positions ? positions.Get(at.back() * c.hidden_size + i) : 0.0F));
      }
      const Tensor id_tensor = Tensor::Int32(ids);
      const Tensor at_tensor = Tensor::Int32(at);
      for (const WeightLayout layout : {WeightLayout::kRowMajor, CpuWeightLayout(dtype)}) {
        const PackedWeight table(dtype, layout, rows);
        for (const OpTable& ops : CpuOpTables({.weight_dtype = dtype})) {
          Tensor y(DType::kF32, {c.num_tokens, c.hidden_size}, c.offset_elements);
          ASSERT_EQ(ops.embed({.ids = id_tensor.view(),
                               .positions = at_tensor.view(),
                               .table = table.weight(),
                               .position_table = c.positions ? positions.view() : TensorView{},
                               .y = y.view()},
                              stream_),
                    Status::Ok());
          EXPECT_TRUE(SameBits(y.ToFloats(), want)) << ops.name << " " << c.name;
        }
      }
    }
}

// Each element is its code times its group's scale and the offset, rounded once.
TEST_F(EmbedTest, RowsOfIntegersAreTheirNumbers) {
  for (const IntegerForm& form : {IntegerForm{DType::kI8},
                                  {DType::kI4},
                                  {DType::kI8, 16},
                                  {DType::kI4, 32, true},
                                  {DType::kF4E2M1, 32}}) {
    const auto some = IntegerWeight::Some(form, 70, 96, 3);
    const IntegerWeight plain(form, 70, 96, some.elements, some.scales, some.offsets,
                              WeightLayout::kRowMajor);
    const Tensor positions = Tensor::Random(DType::kBF16, {9, 96}, 4);
    const std::vector<int> ids = {69, 0, 63, 64};
    const std::vector<int> at = {8, 0, 3, 1};
    std::vector<float> want;
    for (size_t t = 0; t < ids.size(); ++t)
      for (int k = 0; k < 96; ++k)
        want.push_back(2 * static_cast<float>(some.Value(ids[t], k)) +
                       positions.Get(at[t] * 96 + k));
    const Tensor id_tensor = Tensor::Int32(ids);
    const Tensor at_tensor = Tensor::Int32(at);
    for (const OpTable& ops : CpuOpTables({.weight_dtype = form.dtype}))
      for (const IntegerWeight* table : {&some, &plain}) {
        const Tensor y(DType::kF32, {4, 96});
        ASSERT_EQ(ops.embed({.ids = id_tensor.view(),
                             .positions = at_tensor.view(),
                             .table = table->weight,
                             .position_table = positions.view(),
                             .scale = 2,
                             .y = y.view()},
                            stream_),
                  Status::Ok());
        EXPECT_TRUE(SameBits(y.ToFloats(), want)) << ops.name << " " << DTypeName(form.dtype);
      }
  }
}

TEST_F(EmbedTest, TokensWithARowOfTheirOwnHaveThatRow) {
  constexpr int kVocabSize = 70;
  constexpr int kHiddenSize = 40;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor rows = Tensor::Random(dtype, {kVocabSize, kHiddenSize}, 1);
    const Tensor own = Tensor::Random(dtype, {3, kHiddenSize}, 2);
    const Tensor positions = Tensor::Random(dtype, {9, kHiddenSize}, 3);
    const std::vector<int> ids = {5, kVocabSize + 2, 69, kVocabSize};
    const std::vector<int> own_rows = {-1, 2, -1, 0};
    const std::vector<int> at = {8, 0, 3, 1};
    std::vector<const void*> addresses;
    std::vector<float> want;
    for (size_t t = 0; t < ids.size(); ++t) {
      const int64_t offset = int64_t{own_rows[t]} * kHiddenSize;
      addresses.push_back(own_rows[t] < 0 ? nullptr
                                          : own.view().as<std::byte>() +
                                                static_cast<size_t>(offset) * SizeOf(dtype));
      for (int i = 0; i < kHiddenSize; ++i)
        want.push_back(
            (own_rows[t] < 0 ? rows.Get(ids[t] * kHiddenSize + i) : own.Get(offset + i)) +
            positions.Get(at[t] * kHiddenSize + i));
    }
    const Tensor id_tensor = Tensor::Int32(ids);
    const Tensor at_tensor = Tensor::Int32(at);
    const PackedWeight table(dtype, CpuWeightLayout(dtype), rows);
    for (const OpTable& ops : CpuOpTables({.weight_dtype = dtype})) {
      Tensor y(DType::kF32, {4, kHiddenSize});
      EmbedParams params = {.ids = id_tensor.view(),
                            .positions = at_tensor.view(),
                            .table = table.weight(),
                            .position_table = positions.view(),
                            .prompt_rows = addresses.data(),
                            .prompt_dtype = dtype,
                            .y = y.view()};
      ASSERT_EQ(ops.embed(params, stream_), Status::Ok());
      EXPECT_TRUE(SameBits(y.ToFloats(), want)) << ops.name << " " << DTypeName(dtype);
      params.position_table = {};
      params.scale = 3;  // of rows of the table alone
      ASSERT_EQ(ops.embed(params, stream_), Status::Ok());
      for (int i = 0; i < kHiddenSize; ++i) {
        EXPECT_EQ(y.Get(i), 3 * rows.Get(ids[0] * kHiddenSize + i)) << ops.name;
        EXPECT_EQ(y.Get(kHiddenSize + i), own.Get(2 * kHiddenSize + i)) << ops.name;
      }
      const std::vector<const void*> none = {nullptr, addresses[1], nullptr, nullptr};
      params.prompt_rows = none.data();
      EXPECT_EQ(ops.embed(params, stream_).message(),
                "ids[3]: got 70, needed [0, 70) or a row of prompt_rows");
    }
  }
}

// Adding zeros changes no bit.
TEST_F(EmbedTest, PartsOfATableAddUpToTheWhole) {
  constexpr int kVocabSize = 10;
  constexpr int kHiddenSize = 24;
  const std::vector<int> ids = {9, 0, 4, 5, 7, 4};
  const Tensor id_tensor = Tensor::Int32(ids);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor rows = Tensor::Random(dtype, {kVocabSize, kHiddenSize}, 1);
    std::vector<float> want;
    for (const int id : ids)
      for (int i = 0; i < kHiddenSize; ++i) want.push_back(rows.Get(id * kHiddenSize + i));
    for (const OpTable& ops : CpuOpTables({.weight_dtype = dtype})) {
      std::vector<float> sum(want.size());
      for (const int first : {0, 5}) {
        Tensor part(dtype, {5, kHiddenSize});
        for (int i = 0; i < 5 * kHiddenSize; ++i) part.Set(i, rows.Get(first * kHiddenSize + i));
        const PackedWeight table(dtype, CpuWeightLayout(dtype), part);
        Tensor y(DType::kF32, {static_cast<int>(ids.size()), kHiddenSize});
        ASSERT_EQ(ops.embed({.ids = id_tensor.view(),
                             .table = table.weight(),
                             .is_part = true,
                             .first_id = first,
                             .y = y.view()},
                            stream_),
                  Status::Ok());
        const std::vector<float> found = y.ToFloats();
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += found[i];
      }
      EXPECT_TRUE(SameBits(sum, want)) << ops.name << " " << DTypeName(dtype);
    }
  }
}

TEST_F(EmbedTest, AnIdOutsideTheVocabularyIsRefused) {
  const PackedWeight table(DType::kF32, WeightLayout::kPanel64,
                           Tensor::Random(DType::kF32, {10, 4}, 1));
  Tensor y(DType::kF32, {2, 4});
  for (const OpTable& ops : CpuOpTables({})) {
    for (const int bad : {10, -1}) {
      const Tensor ids = Tensor::Int32({3, bad});
      EXPECT_EQ(
          ops.embed({.ids = ids.view(), .table = table.weight(), .y = y.view()}, stream_).message(),
          "ids[1]: got " + std::to_string(bad) + ", needed [0, 10)");
    }
  }
}

}  // namespace
}  // namespace inflight::ops
