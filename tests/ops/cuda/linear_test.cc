// SPDX-License-Identifier: Apache-2.0
// Products and the linears made of them, against float64 on the host from the operands as rounded.
//
// A sum of k products differs from the exact one by at most k u sum|x w| in float32 (compare.h),
// FP8 sums by what the tensor cores drop on the way (kFp8Error); then it is rounded to y's dtype.
// Beside each element the whole is held to a relative error of 5e-3 (spec/kernels.md 8.5).
#include "ops/linear.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cuda_test.h"
#include "ops/cuda/gemm_plans.h"

namespace inflight::ops {
namespace {

using cuda::GemmParams;

// Tensor cores align FP8 products of one instruction, and with fast accumulation also the sum so
// far, to the largest of them and keep 13 bits behind its first (arXiv:2412.19437, 3.3.2).
constexpr double kFp8Error = 0x1p-11;

// Rows of x times rows of w, exactly, and the sum of the absolute values of their products.
struct Sums {
  Sums(CpuPool& pool, const Tensor& x, const Tensor& w)
      : n(w.view().shape[0]),
        exact(static_cast<size_t>(x.view().shape[0] * n)),
        absolute(exact.size()) {
    const int64_t k = x.view().shape[1];
    const std::vector<float> a = x.ToFloats(), b = w.ToFloats();
    pool.ParallelFor(x.view().shape[0], [&](int64_t i) {
      for (int64_t j = 0; j < n; ++j) {
        const float* row = &a[static_cast<size_t>(i * k)];
        const float* column = &b[static_cast<size_t>(j * k)];
        double sum = 0, sum_of_absolutes = 0;
        for (int64_t l = 0; l < k; ++l) {
          const double product = static_cast<double>(row[l]) * column[l];
          sum += product;
          sum_of_absolutes += std::abs(product);
        }
        exact[static_cast<size_t>(i * n + j)] = sum;
        absolute[static_cast<size_t>(i * n + j)] = sum_of_absolutes;
      }
    });
  }
  int64_t n;
  std::vector<double> exact, absolute;  // [m, n]
};

// What a product of `k` terms in `dtype` may be off before it is rounded.
double ProductBound(DType dtype, int64_t k, double absolute) {
  const double fp8 = dtype == DType::kF8E4M3 ? kFp8Error * absolute : 0;
  return fp8 + static_cast<double>(k + 2) * kUnit * absolute + 1e-30;
}

// Succeeds if every got[i] is within bound[i] of want[i] once rounded to its dtype, and all of them
// within 5e-3 of the whole.
testing::AssertionResult Near(const Tensor& got, const std::vector<double>& want,
                              const std::vector<double>& bound) {
  std::vector<float> wanted;
  std::vector<double> bounds;
  double errors = 0, squares = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = got.Get(static_cast<int64_t>(i)) - want[i];
    errors += error * error;
    squares += want[i] * want[i];
    wanted.push_back(static_cast<float>(want[i]));
    bounds.push_back(
        AfterRounding(bound[i] + std::abs(want[i]) * kUnit, want[i], got.view().dtype));
  }
  const testing::AssertionResult within = Within(got.ToFloats(), wanted, bounds);
  if (!within || want.empty() || std::sqrt(errors / squares) < 5e-3) return within;
  return testing::AssertionFailure() << "relative error " << std::sqrt(errors / squares);
}

// The first `rows` rows.
TensorView Head(TensorView view, int64_t rows) {
  view.shape = {rows, view.shape[1]};
  return view;
}

// The dtypes of y that operands of `dtype` have beside float32.
std::vector<DType> HalvesOf(DType dtype) {
  if (dtype == DType::kF8E4M3) return {DType::kBF16, DType::kF16};
  return {dtype};
}

class GemmTest : public CudaTest {
 protected:
  struct Route {
    const char* name;
    Status (*run)(const GemmParams&, cuda::CudaStream&);
  };
  static constexpr Route kRoutes[] = {{"chosen", cuda::Gemm}, {"cublasLt", cuda::GemmCublasLt}};

  // Every route against the exact product, twice.
  void Check(const GemmParams& base, const Tensor& x, const Sums& sums) {
    const int64_t m = base.m, n = base.n, k = base.k;
    const auto size = static_cast<size_t>(m * n);
    std::vector<double> want(size);
    std::vector<double> bound(size);
    for (size_t i = 0; i < size; ++i) {
      want[i] = sums.exact[i] * base.scale;
      bound[i] = ProductBound(x.view().dtype, k, sums.absolute[i]) * base.scale;
    }
    for (const Route& route : kRoutes) {
      const std::string where = std::string(route.name) + " " + std::string(DTypeName(base.dtype)) +
                                " to " + std::string(DTypeName(base.y_dtype)) + " m " +
                                std::to_string(m) + " n " + std::to_string(n) + " k " +
                                std::to_string(k);
      const DeviceTensor y = Output(base.y_dtype, {m, n}), again = Output(base.y_dtype, {m, n});
      GemmParams params = base;
      params.y = y.view().data;
      ASSERT_EQ(route.run(params, stream()), Status::Ok()) << where;
      params.y = again.view().data;
      ASSERT_EQ(route.run(params, stream()), Status::Ok()) << where;
      const Tensor got = y.ToHost();
      ASSERT_TRUE(Near(got, want, bound)) << where;
      EXPECT_TRUE(SameBits(again.ToHost().ToFloats(), got.ToFloats())) << where;
      EXPECT_TRUE(Intact(y)) << where;
    }
  }
};

struct GemmCase {
  int64_t n, k;
  std::vector<int64_t> rows;
};

// Tiles of 8 to 256 rows, one vector more or less; K of one vector or two, of no multiple of a
// slab.
std::vector<GemmCase> GemmCases() {
  std::vector<int64_t> few;
  for (int64_t m = 1; m <= 65; m += m < 18 ? 1 : 5) few.push_back(m);
  const std::vector<int64_t> many = {1,  8,  16,  17,  63,  64,  65,  80,
                                     96, 97, 128, 200, 256, 257, 1000};
  return {{8, 32, many},
          {64, 64, many},
          {136, 272, few},
          {120, 1040, many},
          {1000, 528, many},
          {256, 1024, many},
          {264, 4112, {1, 8, 13, 33, 64, 96, 200}},
          {128, 14336, {1, 9, 16, 24, 48, 64, 80, 256}}};
}

TEST_F(GemmTest, EveryKernelMultiplies) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF8E4M3}) {
    for (const GemmCase& c : GemmCases()) {
      const Tensor x = Tensor::Random(dtype, {c.rows.back(), c.k}, 3);
      const Tensor w = Tensor::Random(dtype, {c.n, c.k}, 4);
      const Sums sums(device().cpu_pool(), x, w);
      const DeviceTensor device_x = ToDevice(x), device_w = ToDevice(w);
      std::vector<DType> y_dtypes = HalvesOf(dtype);
      y_dtypes.push_back(DType::kF32);
      for (const DType y_dtype : y_dtypes)
        for (const int64_t m : c.rows)
          Check({.x = device_x.view().data,
                 .w = device_w.view().data,
                 .dtype = dtype,
                 .y_dtype = y_dtype,
                 .m = m,
                 .n = c.n,
                 .k = c.k,
                 .scale = dtype == DType::kF8E4M3 ? 0.125F : 1.0F},
                x, sums);
    }
  }
}

// Vocabularies are of any size; FP8 has none.
TEST_F(GemmTest, OddNumbersOfFeatures) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const Tensor x = Tensor::Random(dtype, {200, 208}, 5),
                 w = Tensor::Random(dtype, {1001, 208}, 6);
    const Sums sums(device().cpu_pool(), x, w);
    const DeviceTensor device_x = ToDevice(x), device_w = ToDevice(w);
    for (const DType y_dtype : {dtype, DType::kF32})
      for (const int64_t m : {1, 7, 16, 40, 64, 65, 200})
        Check({.x = device_x.view().data,
               .w = device_w.view().data,
               .dtype = dtype,
               .y_dtype = y_dtype,
               .m = m,
               .n = 1001,
               .k = 208},
              x, sums);
  }
}

// What an 8B model has, where exact sums are too slow for the host: rows of the whole against the
// same rows alone.
TEST_F(GemmTest, LargeShapesAgreeWithEachOther) {
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    const Tensor x = Tensor::Random(dtype, {512, 4096}, 7);
    const DeviceTensor device_x = ToDevice(x), w = ToDevice(Tensor::Random(dtype, {6144, 4096}, 8));
    GemmParams params = {.x = device_x.view().data,
                         .w = w.view().data,
                         .dtype = dtype,
                         .m = 512,
                         .n = 6144,
                         .k = 4096};
    const DeviceTensor whole = Output(DType::kBF16, {512, 6144});
    params.y = whole.view().data;
    ASSERT_EQ(Gemm(params, stream()), Status::Ok());
    const std::vector<float> want = whole.ToHost().ToFloats();
    double scale = 0;
    for (const float value : want) scale = std::max(scale, std::abs(static_cast<double>(value)));
    for (const int64_t m : {1, 16, 64, 96, 128, 192, 256, 300, 384}) {
      const DeviceTensor part = Output(DType::kBF16, {m, 6144});
      params.m = m;
      params.y = part.view().data;
      ASSERT_EQ(Gemm(params, stream()), Status::Ok());
      const std::vector<float> head(want.begin(), want.begin() + m * 6144);
      std::vector<double> bound;  // sums of both may be rounded to neighbours
      for (const float value : head) bound.push_back(0x1p-7 * std::abs(value) + 1e-3 * scale);
      EXPECT_TRUE(Within(part.ToHost().ToFloats(), head, bound)) << DTypeName(dtype) << " " << m;
    }
  }
}

TEST_F(GemmTest, RowsOfYMayBeApart) {
  const Tensor x = Tensor::Random(DType::kBF16, {70, 128}, 1);
  const Tensor w = Tensor::Random(DType::kBF16, {40, 128}, 2);
  const Sums sums(device().cpu_pool(), x, w);
  const DeviceTensor device_x = ToDevice(x), device_w = ToDevice(w);
  for (const int64_t m : {1, 5, 17, 70}) {
    const DeviceTensor y = Output(DType::kBF16, {m, 96});
    ASSERT_EQ(Gemm({.x = device_x.view().data,
                    .w = device_w.view().data,
                    .y = y.view().as<uint16_t>() + 48,
                    .m = m,
                    .n = 40,
                    .k = 128,
                    .y_stride = 96},
                   stream()),
              Status::Ok());
    const Tensor got = y.ToHost();
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < 96; ++j) {
        const float value = got.Get(i * 96 + j);
        if (j < 48 || j >= 88) {
          ASSERT_TRUE(std::isnan(value)) << i << ", " << j << ": written, " << value;
        } else {
          const auto at = static_cast<size_t>(i * 40 + j - 48);
          ASSERT_NEAR(value, sums.exact[at],
                      AfterRounding(ProductBound(DType::kBF16, 128, sums.absolute[at]),
                                    sums.exact[at], DType::kBF16));
        }
      }
  }
}

TEST_F(GemmTest, NothingToDoAndNothingToRead) {
  const DeviceTensor x = Output(DType::kBF16, {4, 64}), w = Output(DType::kBF16, {64, 64});
  GemmParams params = {
      .x = x.view().data, .w = w.view().data, .y = x.view().data, .m = 0, .n = 64, .k = 64};
  EXPECT_EQ(Gemm(params, stream()), Status::Ok());
  params.m = 4;
  params.k = 60;
  const Status status = Gemm(params, stream());
  EXPECT_EQ(status, InvalidArgument("k: got 60, needed a multiple of 8"));
  params.k = 64;
  params.y_dtype = DType::kF16;
  EXPECT_EQ(Gemm(params, stream()).code(), StatusCode::kInvalidArgument);
}

// The error of FP8 sums over a long row, which decides about fast accumulation.
TEST_F(GemmTest, FastAccumulationOfFp8LosesLittle) {
  constexpr int64_t kM = 96, kN = 64, kK = 14336;
  const Tensor x = Tensor::Random(DType::kF8E4M3, {kM, kK}, 3);
  const Tensor w = Tensor::Random(DType::kF8E4M3, {kN, kK}, 4);
  const Sums sums(device().cpu_pool(), x, w);
  const DeviceTensor device_x = ToDevice(x), device_w = ToDevice(w);
  for (const bool fast : {false, true}) {
    auto plans = cuda::GemmPlans::Create(device());
    Must(plans.status());
    (*plans)->set_fast_accumulation(fast);
    const DeviceTensor y = Output(DType::kF32, {kM, kN});
    ASSERT_EQ((*plans)->Run({.x = device_x.view().data,
                             .w = device_w.view().data,
                             .y = y.view().data,
                             .dtype = DType::kF8E4M3,
                             .y_dtype = DType::kF32,
                             .m = kM,
                             .n = kN,
                             .k = kK},
                            stream()),
              Status::Ok());
    const Tensor got = y.ToHost();
    double errors = 0, squares = 0;
    for (size_t i = 0; i < sums.exact.size(); ++i) {
      errors += std::pow(got.Get(static_cast<int64_t>(i)) - sums.exact[i], 2);
      squares += std::pow(sums.exact[i], 2);
    }
    const double relative = std::sqrt(errors / squares);
    std::cout << "fp8 sums of " << kK << (fast ? ", fast" : ", exact")
              << " accumulation: relative error " << relative << "\n";
    EXPECT_LT(relative, 2e-3);
  }
}

class GemmPlansTest : public CudaTest {};

TEST_F(GemmPlansTest, TuningIsSavedAndLoaded) {
  auto first = NewStream(kShape, 256, 64), second = NewStream(kShape, 256, 64);
  const LinearShape shapes[] = {{256, 128, DType::kBF16, DType::kBF16, 40},
                                {512, 256, DType::kF8E4M3, DType::kBF16, 3},
                                {1000, 64, DType::kF16, DType::kF32, 1}};
  ASSERT_EQ(TuneLinears(shapes, *first), Status::Ok());
  const std::string text = SaveTuning(*first);
  EXPECT_EQ(std::ranges::count(text, '\n'), 1 + 7 + 3 + 1) << text;
  EXPECT_EQ(second->gemm_plans().Load(text).value(), 11);
  EXPECT_EQ(SaveTuning(*second), text);
  const size_t memory = device().ledger().entries().size();
  ASSERT_EQ(TuneLinears(shapes, *second), Status::Ok());  // nothing is left to time
  EXPECT_EQ(device().ledger().entries().size(), memory);
  EXPECT_EQ(SaveTuning(*second), text);
}

TEST_F(GemmPlansTest, AnotherGpusTuningIsIgnored) {
  auto stream = NewStream(kShape, 256, 64);
  std::string text = "inflight gemm plans 1, NVIDIA Z9, 7 SMs, cublasLt 1\nnot even read\n";
  EXPECT_EQ(LoadTuning(text, *stream), Status::Ok());
  EXPECT_EQ(stream->gemm_plans().num_plans(), 0U);
}

TEST_F(GemmPlansTest, ProductsCanBeCaptured) {
  const Tensor x = Tensor::Random(DType::kBF16, {100, 64}, 1);
  const DeviceTensor device_x = ToDevice(x),
                     w = ToDevice(Tensor::Random(DType::kBF16, {96, 64}, 2));
  const DeviceTensor eager = Output(DType::kBF16, {100, 96});
  const DeviceTensor captured = Output(DType::kBF16, {100, 96});
  GemmParams params = {.x = device_x.view().data,
                       .w = w.view().data,
                       .y = eager.view().data,
                       .m = 100,
                       .n = 96,
                       .k = 64};
  ASSERT_EQ(GemmCublasLt(params, stream()), Status::Ok());
  params.y = captured.view().data;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream().handle(), cudaStreamCaptureModeThreadLocal),
            cudaSuccess);
  EXPECT_EQ(GemmCublasLt(params, stream()), Status::Ok());
  ASSERT_EQ(cudaStreamEndCapture(stream().handle(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, stream().handle()), cudaSuccess);
  EXPECT_TRUE(SameBits(captured.ToHost().ToFloats(), eager.ToHost().ToFloats()));
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

// These need no GPU.
TEST(GemmPlanTextTest, RowsFallIntoBuckets) {
  EXPECT_EQ(cuda::GemmBucket(1), 1);
  EXPECT_EQ(cuda::GemmBucket(65), 80);
  EXPECT_EQ(cuda::GemmBucket(512), 512);
  EXPECT_EQ(cuda::GemmBucket(513), 1024);
  EXPECT_EQ(cuda::BucketBefore(1024), 512);
  EXPECT_EQ(cuda::BucketBefore(96), 80);
  EXPECT_EQ(cuda::BucketBefore(1), 0);
}

TEST(GemmPlanTextTest, PlansSurviveTheirText) {
  cuda::GemmPlanMap plans;
  const cuda::GemmPlanKey key = {4096, 14336, 192, DType::kF8E4M3, DType::kBF16, 16};
  plans[key] = {.algorithm = {{1, 2, 3, 0xfedcba9876543210, 5, 6, 7, 8}}, .is_tuned = true};
  plans[{8, 8, 1, DType::kBF16, DType::kBF16, 16}] = {};  // a first suggestion, which is not saved
  const std::string text = cuda::FormatGemmPlans("a card", plans);
  auto read = cuda::ParseGemmPlans(text, "a card");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->size(), 1U);
  EXPECT_EQ(read->at(key).algorithm.data[3], 0xfedcba9876543210);
  EXPECT_EQ(cuda::ParseGemmPlans(text, "another card")->size(), 0U);
  EXPECT_EQ(cuda::ParseGemmPlans("", "a card")->size(), 0U);
}

TEST(GemmPlanTextTest, AnUnreadableLineIsNamed) {
  for (const char* line : {"bfloat16", "bfloat16 float32 0 8 8 16 00", "float3 float32 8 8 8 16 00",
                           "bfloat16 bfloat16 8 8 8 16 0123"}) {
    const auto read = cuda::ParseGemmPlans(std::string("a card\n") + line + "\n", "a card");
    ASSERT_FALSE(read.ok());
    EXPECT_TRUE(
        read.status().message().starts_with("tuned products, line 2: got \"" + std::string(line)))
        << read.status().message();
  }
}

// An operand of a linear on the host and on the device: its codes or values, and the scales that
// rows of quantised ones have.
struct Operand {
  Operand(Device& device, DType dtype, int64_t rows, int64_t width, uint64_t seed)
      : values(Tensor::Random(IsInteger(dtype) ? DType::kF32 : dtype, {rows, width}, seed)) {
    if (IsInteger(dtype)) values = Codes(values, dtype == DType::kI4 ? 8.0F : 128.0F);
    has_scales = IsInteger(dtype) || dtype == DType::kF8E4M3;
    scales = Tensor::Random(DType::kF32, {rows}, seed + 100);
    const float steps = dtype == DType::kI4 ? 4 : 64;
    for (int64_t i = 0; i < rows; ++i) scales.Set(i, (scales.Get(i) + 1.5F) / steps);
    if (dtype == DType::kI4)
      device_values = {device, PackedInt4(values)};
    else
      device_values = {device, values};
    device_scales = {device, scales};
  }
  // The integers in [-range, range), in int8.
  static Tensor Codes(const Tensor& values, float range) {
    Tensor codes(DType::kI8, values.view().shape);
    for (int64_t i = 0; i < values.view().num_elements(); ++i)
      codes.view().as<int8_t>()[i] = static_cast<int8_t>(std::floor(range * values.Get(i)));
    return codes;
  }
  double Scale(int64_t row) const { return has_scales ? scales.Get(row) : 1; }
  Activation activation() const {
    return {.values = device_values.view(),
            .scales = has_scales ? device_scales.view() : TensorView{}};
  }
  Weight weight(int64_t first = 0, int64_t rows = -1) const {
    const TensorView& view = device_values.view();
    return {.data = view.as<std::byte>() + BytesOf(view.dtype, first * view.shape[1]),
            .dtype = view.dtype,
            .out_features = rows < 0 ? view.shape[0] : rows,
            .in_features = view.shape[1],
            .scales = has_scales ? device_scales.view().as<const float>() + first : nullptr};
  }

  Tensor values, scales;
  DeviceTensor device_values, device_scales;
  bool has_scales = false;
};

struct LinearDTypes {
  DType x, w, model;
};
constexpr LinearDTypes kLinearDTypes[] = {
    {DType::kBF16, DType::kBF16, DType::kBF16},     {DType::kF16, DType::kF16, DType::kF16},
    {DType::kF8E4M3, DType::kF8E4M3, DType::kBF16}, {DType::kF8E4M3, DType::kF8E4M3, DType::kF16},
    {DType::kBF16, DType::kI8, DType::kBF16},       {DType::kF16, DType::kI8, DType::kF16},
    {DType::kBF16, DType::kI4, DType::kBF16},       {DType::kF16, DType::kI4, DType::kF16}};

std::string Name(const LinearDTypes& dtypes, int64_t m) {
  return std::string(DTypeName(dtypes.x)) + " x " + std::string(DTypeName(dtypes.w)) + " of a " +
         std::string(DTypeName(dtypes.model)) + " model, m " + std::to_string(m);
}

// The weight as the product reads it: of integers the elements rounded to the model's dtype.
Tensor AsMultiplied(const Operand& w, const LinearDTypes& dtypes) {
  if (!IsInteger(dtypes.w)) {
    Tensor same(dtypes.w, w.values.view().shape);
    for (int64_t i = 0; i < same.view().num_elements(); ++i) same.Set(i, w.values.Get(i));
    return same;
  }
  Tensor rounded(dtypes.x, w.values.view().shape);
  const int64_t width = rounded.view().shape[1];
  for (int64_t i = 0; i < rounded.view().num_elements(); ++i)
    rounded.Set(i, static_cast<float>(w.values.view().as<int8_t>()[i]) * w.scales.Get(i / width));
  return rounded;
}

double Activated(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

// y = act(x w^T * scales + bias), exactly, and how far a kernel that rounds the product to the
// model's dtype before it goes on may be from it.
struct Wanted {
  std::vector<double> value, bound;
};
Wanted Finish(const Operand& x, const Operand& w, const LinearDTypes& dtypes, const Sums& sums,
              int64_t m, const Tensor* bias, ActivationKind activation, int64_t first_bias = 0) {
  // Largest slope of GELU and SiLU, and the relative error of their fast exponentials.
  constexpr double kSlope = 1.2, kFunctionError = 1e-4;
  Wanted wanted;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < sums.n; ++j) {
      const auto at = static_cast<size_t>(i * sums.n + j);
      const bool is_fp8 = dtypes.x == DType::kF8E4M3;
      const double scale = is_fp8 ? x.Scale(i) * w.Scale(j) : 1;
      const double product = sums.exact[at] * scale;
      const int64_t k = x.values.view().shape[1];
      double bound = ProductBound(dtypes.x, k, sums.absolute[at]) * scale;
      // What is rounded to the model's dtype is the product before its scales.
      const double stored = is_fp8 ? Fp8ProductScale(dtypes.model, k) / scale : 1;
      bound = AfterRounding(bound * stored, product * stored, dtypes.model) / stored;
      const double sum = product + (bias == nullptr ? 0 : bias->Get(first_bias + j));
      bound += 4 * kUnit * (std::abs(sum) + std::abs(product));
      const double y = Activated(activation, sum);
      wanted.value.push_back(y);
      wanted.bound.push_back(activation == ActivationKind::kNone
                                 ? bound
                                 : kSlope * bound + kFunctionError * (std::abs(y) + 1e-3));
    }
  return wanted;
}

class CudaLinearTest : public CudaTest {
 protected:
  // A stream with room for what weights of that dtype need.
  cuda::CudaStream& stream_for(DType weight) {
    if (!IsInteger(weight) && weight != DType::kF8E4M3) return stream();
    std::unique_ptr<cuda::CudaStream>& made = streams_[weight];
    if (made == nullptr) {
      ShapeClass shape = kShape;
      shape.weight_dtype = weight;
      made = NewStream(shape, 1024, 256);
    }
    return *made;
  }

 private:
  std::map<DType, std::unique_ptr<cuda::CudaStream>> streams_;
};

constexpr int64_t kSomeRows[] = {1, 5, 16, 33, 64, 96, 130};

TEST_F(CudaLinearTest, LinearAddsBiasAndActivates) {
  constexpr int64_t kN = 264, kK = 512;
  const Tensor bias = Tensor::Random(DType::kF32, {kN}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const LinearDTypes& dtypes : kLinearDTypes) {
    for (const int64_t m : kSomeRows) {
      const Operand x(device(), dtypes.x, m, kK, 1), w(device(), dtypes.w, kN, kK, 2);
      const Sums sums(device().cpu_pool(), x.values, AsMultiplied(w, dtypes));
      for (const auto activation :
           {ActivationKind::kNone, ActivationKind::kGeluTanh, ActivationKind::kRelu})
        for (const bool has_bias : {false, true})
          for (const DType y_dtype : {dtypes.model, DType::kF32}) {
            const DeviceTensor y = Output(y_dtype, {m, kN});
            ASSERT_EQ(cuda::Linear({.x = x.activation(),
                                    .weight = w.weight(),
                                    .bias = has_bias ? device_bias.view() : TensorView{},
                                    .activation = activation,
                                    .y = y.view()},
                                   stream_for(dtypes.w)),
                      Status::Ok())
                << Name(dtypes, m);
            const Wanted wanted =
                Finish(x, w, dtypes, sums, m, has_bias ? &bias : nullptr, activation);
            ASSERT_TRUE(Near(y.ToHost(), wanted.value, wanted.bound))
                << Name(dtypes, m) << " activation " << static_cast<int>(activation) << " bias "
                << has_bias << " y " << DTypeName(y_dtype);
          }
    }
  }
}

TEST_F(CudaLinearTest, DeferredScalesLeaveTheProductOfCodes) {
  constexpr int64_t kN = 128, kK = 256;
  const DType f8 = DType::kF8E4M3;
  for (const DType model : {DType::kBF16, DType::kF16})
    for (const int64_t m : kSomeRows) {
      const Operand x(device(), f8, m, kK, 1), w(device(), f8, kN, kK, 2);
      const Sums sums(device().cpu_pool(), x.values, w.values);
      const DeviceTensor y = Output(model, {m, kN});
      ASSERT_EQ(
          cuda::Linear(
              {.x = x.activation(), .weight = w.weight(), .y = y.view(), .defer_scales = true},
              stream()),
          Status::Ok());
      const double scale = model == DType::kF16 ? 0x1p-10 : 1;  // 448^2 * 256 / 65504 < 2^10
      std::vector<double> want, bound;
      for (size_t i = 0; i < sums.exact.size(); ++i) {
        want.push_back(sums.exact[i] * scale);
        bound.push_back(ProductBound(f8, kK, sums.absolute[i]) * scale);
      }
      EXPECT_TRUE(Near(y.ToHost(), want, bound)) << DTypeName(model) << " " << m;
    }
}

// Every code at 448: sums beyond float16 by four orders of magnitude, which the scales undo.
TEST_F(CudaLinearTest, TheLargestFp8SumsDoNotOverflowFloat16) {
  constexpr int64_t kN = 64, kK = 4096;
  const DType f8 = DType::kF8E4M3;
  for (const int64_t m : {1, 16, 80}) {
    Tensor x(f8, {m, kK}), w(f8, {kN, kK});
    for (int64_t i = 0; i < m * kK; ++i) x.Set(i, 448);
    for (int64_t i = 0; i < kN * kK; ++i) w.Set(i, i / kK % 2 == 0 ? 448 : -448);
    Tensor x_scales(DType::kF32, {m}), w_scales(DType::kF32, {kN});
    for (int64_t i = 0; i < m; ++i) x_scales.Set(i, 0x1p-15F);
    for (int64_t i = 0; i < kN; ++i) w_scales.Set(i, 0x1p-10F);
    const DeviceTensor device_x = ToDevice(x), device_w = ToDevice(w);
    const DeviceTensor device_x_scales = ToDevice(x_scales), device_w_scales = ToDevice(w_scales);
    const DeviceTensor y = Output(DType::kF16, {m, kN});
    ASSERT_EQ(cuda::Linear({.x = {.values = device_x.view(), .scales = device_x_scales.view()},
                            .weight = {.data = device_w.view().data,
                                       .dtype = f8,
                                       .out_features = kN,
                                       .in_features = kK,
                                       .scales = device_w_scales.view().as<const float>()},
                            .y = y.view()},
                           stream()),
              Status::Ok());
    const Tensor got = y.ToHost();
    // The library's sums are rounded towards zero at every step, by 8 % of 4,096 equal products
    // (docs/performance-cuda-gemm.txt). Beyond float16 they would be infinite.
    constexpr double kBound = 24.5 / 10;
    for (int64_t i = 0; i < m * kN; ++i)  // 448^2 * 4096 / 2^25 = 24.5
      ASSERT_NEAR(got.Get(i), i % kN % 2 == 0 ? 24.5 : -24.5, kBound) << m << " " << i;
  }
}

TEST_F(CudaLinearTest, GatedLinearMultipliesItsBranches) {
  constexpr int64_t kN = 136, kK = 256;
  const Tensor bias = Tensor::Random(DType::kF32, {2 * kN}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const LinearDTypes& dtypes : kLinearDTypes)
    for (const int64_t m : kSomeRows)
      for (const bool is_adjacent : {true, false}) {
        const Operand x(device(), dtypes.x, m, kK, 1), both(device(), dtypes.w, 2 * kN, kK, 2);
        const Operand apart(device(), dtypes.w, 2 * kN, kK, 2);  // equal, elsewhere
        const Sums sums(device().cpu_pool(), x.values, AsMultiplied(both, dtypes));
        const DeviceTensor workspace = Output(dtypes.model, {m, 2 * kN});
        const DeviceTensor y = Output(dtypes.model, {m, kN});
        TensorView gate_bias = device_bias.view(), up_bias = device_bias.view();
        gate_bias.shape = up_bias.shape = {kN};
        up_bias.data = device_bias.view().as<float>() + kN;
        ASSERT_EQ(cuda::GatedLinear({.x = x.activation(),
                                     .gate = both.weight(0, kN),
                                     .up = (is_adjacent ? both : apart).weight(kN, kN),
                                     .gate_bias = gate_bias,
                                     .up_bias = up_bias,
                                     .y = y.view(),
                                     .workspace = workspace.view()},
                                    stream_for(dtypes.w)),
                  Status::Ok())
            << Name(dtypes, m);
        const Wanted sum = Finish(x, both, dtypes, sums, m, &bias, ActivationKind::kNone);
        const Wanted act = Finish(x, both, dtypes, sums, m, &bias, ActivationKind::kSilu);
        std::vector<double> want, bound;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < kN; ++j) {
            const auto g = static_cast<size_t>(i * 2 * kN + j), u = g + kN;
            want.push_back(act.value[g] * sum.value[u]);
            bound.push_back(act.bound[g] * std::abs(sum.value[u]) +
                            std::abs(act.value[g]) * sum.bound[u] + act.bound[g] * sum.bound[u]);
          }
        ASSERT_TRUE(Near(y.ToHost(), want, bound))
            << Name(dtypes, m) << (is_adjacent ? " adjacent" : " apart");
      }
}

TEST_F(CudaLinearTest, HeadReadsTheRowsAskedFor) {
  constexpr int64_t kN = 1001, kK = 1024, kTokens = 300;
  for (const LinearDTypes& dtypes : kLinearDTypes) {
    if (dtypes.w == DType::kF8E4M3) continue;
    const Operand x(device(), dtypes.x, kTokens, kK, 1), w(device(), dtypes.w, kN, kK, 2);
    const Tensor multiplied = AsMultiplied(w, dtypes);
    for (const int num_rows : {0, 1, 3, 16, 40, 70, 256, 290}) {  // the last in two portions
      std::vector<int> rows;
      Random random(static_cast<uint64_t>(num_rows));
      Tensor chosen(dtypes.x, {num_rows, kK});
      for (int i = 0; i < num_rows; ++i) {
        rows.push_back(random.Below(kTokens));
        for (int64_t k = 0; k < kK; ++k) chosen.Set(i * kK + k, x.values.Get(rows.back() * kK + k));
      }
      const DeviceTensor device_rows = ToDevice(Tensor::Int32(rows));
      const DeviceTensor logits = Output(DType::kF32, {num_rows, kN});
      ASSERT_EQ(cuda::LmHead({.x = x.activation(),
                              .rows = device_rows.view(),
                              .weight = w.weight(),
                              .logits = logits.view()},
                             stream_for(dtypes.w)),
                Status::Ok())
          << Name(dtypes, num_rows);
      const Sums sums(device().cpu_pool(), chosen, multiplied);
      std::vector<double> bound;
      for (const double absolute : sums.absolute)
        bound.push_back(ProductBound(dtypes.x, kK, absolute));
      EXPECT_TRUE(Near(logits.ToHost(), sums.exact, bound)) << Name(dtypes, num_rows);
      EXPECT_TRUE(Intact(logits));
    }
  }
}

// FP8 heads read 16-bit rows and round them as Quantize does.
TEST_F(CudaLinearTest, HeadRoundsItsRowsToTheCodesOfFp8Weights) {
  constexpr int64_t kN = 1008, kK = 1024, kTokens = 300;
  const DType f8 = DType::kF8E4M3;
  const Operand w(device(), f8, kN, kK, 2);
  const Tensor bias = Tensor::Random(DType::kF32, {kN}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const DType model : {DType::kBF16, DType::kF16}) {
    const Operand x(device(), model, kTokens, kK, 1);
    for (const int num_rows : {1, 3, 16, 40, 256, 290}) {  // the last in two portions
      std::vector<int> rows;
      Random random(static_cast<uint64_t>(num_rows));
      Tensor chosen(model, {num_rows, kK});
      for (int i = 0; i < num_rows; ++i) {
        rows.push_back(random.Below(kTokens));
        for (int64_t k = 0; k < kK; ++k) chosen.Set(i * kK + k, x.values.Get(rows.back() * kK + k));
      }
      const DeviceTensor device_chosen = ToDevice(chosen);
      const DeviceTensor codes = Output(f8, {num_rows, kK});
      const DeviceTensor scales = Output(DType::kF32, {num_rows});
      ASSERT_EQ(
          cuda::Quantize({.x = device_chosen.view(), .y = codes.view(), .scales = scales.view()},
                         stream_for(f8)),
          Status::Ok());
      const DeviceTensor device_rows = ToDevice(Tensor::Int32(rows));
      for (const bool has_bias : {false, true}) {
        const DeviceTensor logits = Output(DType::kF32, {num_rows, kN});
        ASSERT_EQ(cuda::LmHead({.x = x.activation(),
                                .rows = device_rows.view(),
                                .weight = w.weight(),
                                .bias = has_bias ? device_bias.view() : TensorView{},
                                .logits = logits.view()},
                               stream_for(f8)),
                  Status::Ok())
            << DTypeName(model) << " " << num_rows;
        const Sums sums(device().cpu_pool(), codes.ToHost(), w.values);
        const Tensor token = scales.ToHost();
        std::vector<double> want, bound;
        for (int64_t i = 0; i < num_rows; ++i)
          for (int64_t j = 0; j < kN; ++j) {
            const auto at = static_cast<size_t>(i * kN + j);
            const double scale = static_cast<double>(token.Get(i)) * w.Scale(j);
            const double product = sums.exact[at] * scale;
            want.push_back(product + (has_bias ? bias.Get(j) : 0));
            bound.push_back(ProductBound(f8, kK, sums.absolute[at]) * scale +
                            4 * kUnit * (std::abs(want.back()) + std::abs(product)));
          }
        EXPECT_TRUE(Near(logits.ToHost(), want, bound)) << DTypeName(model) << " " << num_rows;
        EXPECT_TRUE(Intact(logits));
      }
    }
  }
}

// Without rotation, q, k and v are the product and its bias; rotation is RopeKv's own test.
TEST_F(CudaLinearTest, QkvGoesToWorkspaceAndCache) {
  constexpr int kHeads = 4, kKvHeads = 2, kHeadDim = 64,
                kWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
  constexpr int64_t kK = 256;
  const Tensor bias = Tensor::Random(DType::kF32, {kWidth}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const LinearDTypes& dtypes : kLinearDTypes)
    for (const int m : {1, 16, 70}) {
      DeviceCache cache(device(), {dtypes.model, kKvHeads, kHeadDim, 16}, {m + 3}, 1);
      cache.Upload();
      const DeviceBatch batch(device(), cache, {{m, m + 3}}, {0});
      const Operand x(device(), dtypes.x, m, kK, 1), w(device(), dtypes.w, kWidth, kK, 2);
      const DeviceTensor workspace = Output(dtypes.model, {m, kWidth});
      const TensorView q = {workspace.view().data, dtypes.model, {m, kHeads, kHeadDim}};
      ASSERT_EQ(cuda::QkvRopeKv({.x = x.activation(),
                                 .weight = w.weight(),
                                 .bias = device_bias.view(),
                                 .num_heads = kHeads,
                                 .batch = batch.view(),
                                 .kv = cache.view(),
                                 .layer = 1,
                                 .workspace = workspace.view(),
                                 .q = q,
                                 .q_stride = kWidth},
                                stream_for(dtypes.w)),
                Status::Ok())
          << Name(dtypes, m);
      const Sums sums(device().cpu_pool(), x.values, AsMultiplied(w, dtypes));
      const Wanted wanted = Finish(x, w, dtypes, sums, m, &bias, ActivationKind::kNone);
      const Tensor got = workspace.ToHost();
      const std::vector<std::byte> pool = cache.Download();
      const auto element = [&](int64_t i) {
        const std::byte* at = pool.data() + static_cast<size_t>(i) * 2;
        return dtypes.model == DType::kF16 ? reinterpret_cast<const Float16*>(at)->ToFloat()
                                           : reinterpret_cast<const BFloat16*>(at)->ToFloat();
      };
      for (int t = 0; t < m; ++t)
        for (int j = 0; j < kWidth; ++j) {
          const int head = j / kHeadDim, dim = j % kHeadDim;
          float value = got.Get(t * kWidth + j);
          if (head >= kHeads)
            value = element(cache.ElementIndex(1, cache.Slot(0, t + 3), head >= kHeads + kKvHeads,
                                               (head - kHeads) % kKvHeads, dim));
          const auto at = static_cast<size_t>(t * kWidth + j);
          ASSERT_NEAR(value, wanted.value[at],
                      AfterRounding(wanted.bound[at], wanted.value[at], dtypes.model))
              << Name(dtypes, m) << " token " << t << " feature " << j;
        }
    }
}

TEST_F(CudaLinearTest, NoTokensNoWork) {
  const Operand w(device(), DType::kBF16, 64, 64, 1);
  const TensorView none = {w.device_values.view().data, DType::kBF16, {0, 64}};
  const TensorView wide = {w.device_values.view().data, DType::kBF16, {0, 128}};
  EXPECT_EQ(cuda::Linear({.x = {.values = none}, .weight = w.weight(), .y = none}, stream()),
            Status::Ok());
  EXPECT_EQ(cuda::GatedLinear({.x = {.values = none},
                               .gate = w.weight(),
                               .up = w.weight(),
                               .y = none,
                               .workspace = wide},
                              stream()),
            Status::Ok());
}

TEST_F(CudaLinearTest, WhatDoesNotFitIsNamed) {
  const Operand x(device(), DType::kBF16, 4, 64, 1), w(device(), DType::kBF16, 32, 64, 2);
  const Operand f8(device(), DType::kF8E4M3, 32, 64, 2), int8(device(), DType::kI8, 32, 64, 2);
  const Operand int4(device(), DType::kI4, 32, 64, 2);
  const DeviceTensor y = Output(DType::kBF16, {4, 32}), narrow = Output(DType::kBF16, {4, 31});
  const auto message = [&](const Activation& input, const Weight& weight,
                           const TensorView& output) {
    const Status status = cuda::Linear({.x = input, .weight = weight, .y = output}, stream());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message(x.activation(), w.weight(), narrow.view()),
            "y: got bfloat16 [4, 31], needed bfloat16 [4, 32]");
  EXPECT_EQ(message(x.activation(), f8.weight(), y.view()),
            "x: got bfloat16 [4, 64], needed float8_e4m3fn [4, 64]");
  EXPECT_EQ(message({.values = f8.device_values.view()}, f8.weight(), y.view()),
            "x.scales: got no tensor, needed float32 [32]");
  EXPECT_EQ(message(x.activation(), int8.weight(), y.view()),
            "weight: got int8, which this stream was not made for (weight_dtype)");
  EXPECT_EQ(message(x.activation(), int4.weight(), y.view()),
            "weight: got int4, which this stream was not made for (weight_dtype)");
  Weight packed = w.weight();
  packed.layout = WeightLayout::kPanel64Vnni2;
  EXPECT_TRUE(
      message(x.activation(), packed, y.view()).starts_with("weight: got bfloat16 panel64"));
}

}  // namespace
}  // namespace inflight::ops
