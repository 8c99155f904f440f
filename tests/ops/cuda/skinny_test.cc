// SPDX-License-Identifier: Apache-2.0
// The streaming linear against sums in float64 of the same rounded numbers, over cuts and
// remainders.
#include "ops/cuda/skinny.h"

#include <cmath>

#include "cuda_test.h"

namespace inflight::ops {
namespace {

using cuda::GemmParams;
using cuda::MmaCut;

constexpr int64_t kTokens = 16;  // the kernel's most

std::vector<MmaCut> Cuts() {
  std::vector<MmaCut> cuts;
  for (const int row_tiles : {1, 2, 3, 4})
    for (const int stages : {2, 4, 5}) cuts.push_back({.row_tiles = row_tiles, .stages = stages});
  return cuts;
}

std::string NameOf(const MmaCut& cut) {
  return std::to_string(cut.row_tiles) + " row tiles, " + std::to_string(cut.stages) + " stages";
}

// Operands on both sides, and for `columns` of y the exact sums and the sums of magnitudes.
struct Product {
  int64_t n, k;
  DType dtype;
  Tensor x, w;
  std::vector<int64_t> columns;
  std::vector<double> sums, magnitudes;  // [kTokens, columns]
};

Product MakeProduct(DType dtype, int64_t n, int64_t k) {
  Product p = {.n = n,
               .k = k,
               .dtype = dtype,
               .x = Tensor::Random(dtype, {kTokens, k}, 1),
               .w = Tensor::Random(dtype, {n, k}, 2)};
  const int64_t step = std::max<int64_t>(1, n * k / 600'000);
  for (int64_t i = 0; i < n; i += step) p.columns.push_back(i);
  if (p.columns.back() != n - 1) p.columns.push_back(n - 1);
  const std::vector<float> x = p.x.ToFloats();
  const std::vector<float> w = p.w.ToFloats();
  for (int64_t t = 0; t < kTokens; ++t) {
    for (const int64_t column : p.columns) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double product = double{x[t * k + i]} * double{w[column * k + i]};
        sum += product;
        magnitude += std::abs(product);
      }
      p.sums.push_back(sum);
      p.magnitudes.push_back(magnitude);
    }
  }
  return p;
}

// Tensor cores add at least 8 products at a time and cut off what they align at 2^-23 of the
// largest; errors have random signs. Times 4 to be safe.
double BoundOf(const Product& p, double magnitude) {
  return 4 * (std::sqrt(static_cast<double>(p.k)) + 8) * 0x1p-24 * magnitude + 1e-30;
}

class SkinnyTest : public CudaTest {
 protected:
  // Runs one cut for m tokens and compares; returns y as it is.
  std::vector<float> Check(const Product& p, const DeviceTensor& x, const DeviceTensor& w,
                           const MmaCut& cut, int64_t m, DType y_dtype, bool has_epilogue) {
    const DeviceTensor y = Output(y_dtype, {m, p.n});
    Tensor bias = Tensor::Random(DType::kF32, {p.n}, 3);
    const DeviceTensor device_bias = ToDevice(bias);
    GemmParams params = {.x = x.view().data,
                         .w = w.view().data,
                         .y = y.view().data,
                         .dtype = p.dtype,
                         .y_dtype = y_dtype,
                         .m = m,
                         .n = p.n,
                         .k = p.k};
    if (has_epilogue) {
      params.bias = device_bias.view().as<float>();
      params.activation = ActivationKind::kGeluTanh;
    }
    Must(SkinnyMma(params, cut, stream()));
    Synchronize();
    EXPECT_TRUE(Intact(y));
    std::vector<float> got = y.ToHost().ToFloats();
    const auto num_columns = static_cast<int64_t>(p.columns.size());
    for (int64_t t = 0; t < m; ++t) {
      for (int64_t c = 0; c < num_columns; ++c) {
        const int64_t column = p.columns[c];
        double want = p.sums[t * num_columns + c];
        double bound = BoundOf(p, p.magnitudes[t * num_columns + c]);
        if (has_epilogue) {
          const double v = want + double{bias.Get(column)};
          want = 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
          bound = 1.2 * bound + 0x1p-19 * std::abs(v);
        }
        bound = AfterRounding(bound, want, y_dtype);
        const double error = std::abs(double{got[t * p.n + column]} - want);
        if (error <= bound) continue;
        ADD_FAILURE() << NameOf(cut) << ", " << DTypeName(p.dtype) << " m " << m << " n " << p.n
                      << " k " << p.k << ": y[" << t << ", " << column
                      << "] = " << got[t * p.n + column] << ", want " << want << " within "
                      << bound;
        return got;
      }
    }
    return got;
  }

  // Products of n by k, every cut for each number of tokens.
  void CheckAll(const std::vector<std::pair<int64_t, int64_t>>& shapes,
                const std::vector<int64_t>& tokens) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF8E4M3}) {
      for (const auto& [n, k] : shapes) {
        const Product p = MakeProduct(dtype, n, k);
        const DeviceTensor x = ToDevice(p.x);
        const DeviceTensor w = ToDevice(p.w);
        for (const MmaCut& cut : Cuts()) {
          for (const int64_t m : tokens) {
            Check(p, x, w, cut, m, m % 2 == 0 ? DType::kBF16 : DType::kF32,
                  /*has_epilogue=*/false);
            if (HasFailure()) break;
          }
        }
      }
    }
  }
};

TEST_F(SkinnyTest, MatchesFloat64OverRemainders) {
  CheckAll({{1, 16},
            {8, 64},
            {15, 128},
            {33, 80},
            {64, 512},
            {65, 1040},
            {127, 528},
            {136, 2048},
            {255, 640},
            {264, 768},
            {520, 1008},
            {1000, 1536}},
           {1, 2, 7, 8, 9, 15, 16});
}
// The same in little, for compute-sanitizer.
TEST_F(SkinnyTest, AFewMatchFloat64) { CheckAll({{33, 80}, {136, 528}}, {1, 9, 16}); }

TEST_F(SkinnyTest, MatchesFloat64InTheShapesOfA8BModel) {
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{6144, 4096}, {4096, 14336}}) {
      const Product p = MakeProduct(dtype, n, k);
      const DeviceTensor x = ToDevice(p.x);
      const DeviceTensor w = ToDevice(p.w);
      for (const MmaCut& cut : Cuts()) {
        for (const int64_t m : {1, 4, 8, 16})
          Check(p, x, w, cut, m, DType::kF32, /*has_epilogue=*/false);
      }
    }
  }
}

TEST_F(SkinnyTest, BiasAndActivationFollowTheSum) {
  for (const DType y_dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const Product p = MakeProduct(DType::kF16, 300, 256);
    const DeviceTensor x = ToDevice(p.x);
    const DeviceTensor w = ToDevice(p.w);
    for (const MmaCut& cut : Cuts()) {
      for (const int64_t m : {1, 13}) Check(p, x, w, cut, m, y_dtype, /*has_epilogue=*/true);
    }
  }
}

TEST_F(SkinnyTest, TwoRunsGiveTheSameBitsAndARowDoesNotDependOnTheOthers) {
  const Product p = MakeProduct(DType::kBF16, 4096, 4096);
  const DeviceTensor x = ToDevice(p.x);
  const DeviceTensor w = ToDevice(p.w);
  for (const MmaCut& cut : Cuts()) {
    const int64_t m = kTokens;
    const auto first = Check(p, x, w, cut, m, DType::kF32, /*has_epilogue=*/false);
    const auto second = Check(p, x, w, cut, m, DType::kF32, /*has_epilogue=*/false);
    EXPECT_TRUE(SameBits(first, second)) << NameOf(cut);
    const auto alone = Check(p, x, w, cut, 1, DType::kF32, /*has_epilogue=*/false);
    EXPECT_TRUE(SameBits(alone, {first.begin(), first.begin() + p.n})) << NameOf(cut);
  }
}

// A product reads what the one before wrote, while both run.
TEST_F(SkinnyTest, OverlappingKernelsSeeWhatTheOneBeforeWrote) {
  constexpr int64_t kSize = 2048;
  constexpr int kChain = 40;
  Tensor weights = Tensor::Random(DType::kBF16, {kSize, kSize}, 5);
  for (int64_t i = 0; i < kSize * kSize; ++i) weights.Set(i, weights.Get(i) * 0.04F);
  const DeviceTensor w = ToDevice(weights);
  const Tensor start = Tensor::Random(DType::kBF16, {kTokens, kSize}, 6);
  for (const int64_t m : {1, 8, 16}) {
    for (const MmaCut& base : Cuts()) {
      std::vector<std::vector<float>> ends;
      for (const bool overlap : {false, true, true}) {
        MmaCut cut = base;
        cut.overlap = overlap;
        const DeviceTensor a = ToDevice(start);
        const DeviceTensor b = Output(DType::kBF16, {kTokens, kSize});
        for (int i = 0; i < kChain; ++i) {
          const bool is_even = i % 2 == 0;
          Must(SkinnyMma({.x = (is_even ? a : b).view().data,
                          .w = w.view().data,
                          .y = (is_even ? b : a).view().data,
                          .m = m,
                          .n = kSize,
                          .k = kSize},
                         cut, stream()));
        }
        Synchronize();
        ends.push_back(a.ToHost().ToFloats());
        ends.back().resize(m * kSize);
      }
      EXPECT_TRUE(SameBits(ends[1], ends[0])) << NameOf(base) << " m " << m;
      EXPECT_TRUE(SameBits(ends[2], ends[0])) << NameOf(base) << " m " << m;
      EXPECT_TRUE(std::isfinite(ends[0][5]) && ends[0][5] != 0) << NameOf(base);
    }
  }
}

TEST_F(SkinnyTest, RowsOfYMayLieApart) {
  constexpr int64_t kM = 5, kN = 200, kK = 128, kStride = 456;
  const DeviceTensor x = ToDevice(Tensor::Random(DType::kBF16, {kM, kK}, 1));
  const DeviceTensor w = ToDevice(Tensor::Random(DType::kBF16, {kN, kK}, 2));
  const DeviceTensor dense = Output(DType::kBF16, {kM, kN});
  const DeviceTensor apart = Output(DType::kBF16, {kM, kStride});
  GemmParams params = {
      .x = x.view().data, .w = w.view().data, .y = dense.view().data, .m = kM, .n = kN, .k = kK};
  Must(SkinnyMma(params, stream()));
  params.y = apart.view().data;
  params.y_stride = kStride;
  Must(SkinnyMma(params, stream()));
  Synchronize();
  const std::vector<float> want = dense.ToHost().ToFloats();
  const std::vector<float> got = apart.ToHost().ToFloats();
  for (int64_t t = 0; t < kM; ++t) {
    for (int64_t i = 0; i < kStride; ++i) {
      if (i < kN)
        ASSERT_EQ(got[t * kStride + i], want[t * kN + i]) << t << ", " << i;
      else
        ASSERT_TRUE(std::isnan(got[t * kStride + i])) << t << ", " << i;
    }
  }
}

TEST_F(SkinnyTest, NoTokensAreNoWork) {
  for (const MmaCut& cut : Cuts())
    EXPECT_TRUE(SkinnyMma({.m = 0, .n = 64, .k = 64}, cut, stream()).ok());
}

}  // namespace
}  // namespace inflight::ops
