// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "cuda_test.h"

namespace inflight::ops {
namespace {

class CudaQuantizeTest : public CudaTest {
 protected:
  void Check(const Tensor& x, int offset = 0);
};

void CudaQuantizeTest::Check(const Tensor& x, int offset) {
  const Shape& shape = x.view().shape;
  const DeviceTensor device_x = ToDevice(x, offset);
  const DeviceTensor y = Output(DType::kF8E4M3, shape, offset);
  const DeviceTensor scales = Output(DType::kF32, {shape[0]});
  ASSERT_EQ(
      cuda::Quantize({.x = device_x.view(), .y = y.view(), .scales = scales.view()}, stream()),
      Status::Ok());
  const Tensor got_scales = scales.ToHost();
  std::vector<double> want;
  std::vector<double> bound;
  for (int64_t t = 0; t < shape[0]; ++t) {
    double largest = 1.0 / 512;
    for (int64_t i = 0; i < shape[1]; ++i)
      largest = std::max(largest, std::abs(double{x.Get(t * shape[1] + i)}));
    // One division in float32.
    EXPECT_NEAR(got_scales.Get(t), largest / 448, kUnit * largest / 448) << "token " << t;
    for (int64_t i = 0; i < shape[1]; ++i) {
      want.push_back(x.Get(t * shape[1] + i) / double{got_scales.Get(t)});
      bound.push_back(4 * kUnit * std::abs(want.back()));  // a reciprocal and a product
    }
  }
  EXPECT_TRUE(NearestCodes(y.ToHost(), want, bound)) << x.view().ToString() << " offset " << offset;
  EXPECT_TRUE(Intact(y));
  EXPECT_TRUE(Intact(scales));
}

TEST_F(CudaQuantizeTest, RowsOfEveryWidth) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const int width : {1, 8, 100, 104, 4096, 8192, 14336, 32768, 32776, 33001})
      for (const int num_tokens : {1, 3}) Check(Tensor::Random(dtype, {num_tokens, width}, 1));
  Check(Tensor::Random(DType::kBF16, {500, 512}, 2));
  Check(Tensor::Random(DType::kBF16, {3, 64}, 2), /*offset=*/1);
}

// Zeros, numbers below the floor of the scale, the largest number, an outlier.
TEST_F(CudaQuantizeTest, UnusualRows) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Tensor x = Tensor::Random(dtype, {5, 96}, 3);
    const float largest = dtype == DType::kF16 ? 65504.0F : 0x1.fep127F;
    for (int64_t i = 0; i < 96; ++i) {
      x.Set(i, 0);
      x.Set(96 + i, x.Get(96 + i) * 1e-5F);
      x.Set(2 * 96 + i, i % 2 == 0 ? largest : -largest);
    }
    x.Set(3 * 96 + 17, 100);
    Check(x);
  }
}

// Of (448, 1, -0.5, 0): scale 1, codes 0x7e, 0x38, 0xb0, 0.
TEST_F(CudaQuantizeTest, HandCheckedRow) {
  const DeviceTensor x = ToDevice(Tensor::Of(DType::kBF16, {1, 4}, {448, 1, -0.5F, 0}));
  const DeviceTensor y = Output(DType::kF8E4M3, {1, 4});
  const DeviceTensor scales = Output(DType::kF32, {1});
  ASSERT_EQ(cuda::Quantize({.x = x.view(), .y = y.view(), .scales = scales.view()}, stream()),
            Status::Ok());
  EXPECT_EQ(scales.ToHost().Get(0), 1);
  const Tensor codes = y.ToHost();
  const auto* bytes = codes.view().as<const uint8_t>();
  EXPECT_EQ(std::vector<int>(bytes, bytes + 4), (std::vector<int>{0x7e, 0x38, 0xb0, 0}));
}

}  // namespace
}  // namespace inflight::ops
