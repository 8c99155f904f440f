// SPDX-License-Identifier: Apache-2.0
// Products, against float64 on the host from the operands as rounded, and what is known of the
// fastest ways to make them.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>

#include "cuda_test.h"
#include "ops/cuda/gemm_plans.h"
#include "product_bounds.h"

namespace inflight::ops {
namespace {

using cuda::GemmParams;

// The dtypes of y that operands of `dtype` have beside float32.
std::vector<DType> HalvesOf(DType dtype) {
  if (dtype == DType::kF8E4M3) return {DType::kBF16, DType::kF16};
  return {dtype};
}

struct GemmCase {
  int64_t n, k;
  std::vector<int64_t> rows;
};

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

  void CheckEveryType(const GemmCase& c) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF8E4M3}) {
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
  for (const GemmCase& c : GemmCases()) CheckEveryType(c);
}
// The same in little, for compute-sanitizer.
TEST_F(GemmTest, AFewKernelsMultiply) { CheckEveryType({136, 272, {1, 17, 40, 65, 200}}); }

// For 65 to 256 rows the fastest may be one that the library has not suggested.
TEST_F(GemmTest, TunedKernelsMultiply) {
  struct Case {
    DType dtype;
    int64_t n, k;
  };
  for (const auto& [dtype, n, k] :
       {Case{DType::kBF16, 2048, 512}, Case{DType::kF8E4M3, 576, 1024}}) {
    const Tensor x = Tensor::Random(dtype, {256, k}, 3);
    const Tensor w = Tensor::Random(dtype, {n, k}, 4);
    const Sums sums(device().cpu_pool(), x, w);
    const DeviceTensor device_x = ToDevice(x), device_w = ToDevice(w);
    const LinearShape shape = {n, k, dtype, DType::kBF16, 256};
    ASSERT_EQ(TuneLinears({&shape, 1}, stream()), Status::Ok());
    for (const int64_t m : {65, 80, 96, 97, 128, 150, 192, 193, 256})
      Check({.x = device_x.view().data,
             .w = device_w.view().data,
             .dtype = dtype,
             .m = m,
             .n = n,
             .k = k},
            x, sums);
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

TEST(GemmPlanTextTest, AnotherVersionOfTheLibraryAloneIsAnotherTag) {
  cuda::GemmPlanMap plans;
  plans[{8, 8, 1, DType::kBF16, DType::kBF16, 16}] = {.is_tuned = true};
  const std::string tag = "inflight gemm plans 1, NVIDIA H200, 132 SMs, cublasLt 130000";
  const std::string text = cuda::FormatGemmPlans(tag, plans);
  EXPECT_EQ(cuda::ParseGemmPlans(text, tag)->size(), 1U);
  for (const char* other : {"inflight gemm plans 1, NVIDIA H200, 132 SMs, cublasLt 130001",
                            "inflight gemm plans 1, NVIDIA H200, 132 SMs, cublasLt 13000",
                            "inflight gemm plans 1, NVIDIA H200, 132 SMs, cublasLt 1300000",
                            "inflight gemm plans 1, NVIDIA H200, 144 SMs, cublasLt 130000",
                            "inflight gemm plans 1, NVIDIA H100, 132 SMs, cublasLt 130000"})
    EXPECT_EQ(cuda::ParseGemmPlans(text, other)->size(), 0U) << other;
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

}  // namespace
}  // namespace inflight::ops
