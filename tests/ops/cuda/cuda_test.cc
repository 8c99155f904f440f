// SPDX-License-Identifier: Apache-2.0
#include "cuda_test.h"

#include <cmath>

#include "tensor/element.h"
#include "tensor/test_gpu.h"

namespace inflight::ops {
namespace {

// The distance between neighbouring numbers of `dtype` at `value`.
double Spacing(double value, DType dtype) {
  const bool is_f16 = dtype == DType::kF16;
  if (dtype == DType::kF32) return std::abs(value) * 0x1p-23 + 0x1p-149;
  if (value == 0) return is_f16 ? 0x1p-24 : 0x1p-133;
  const int exponent = std::ilogb(value);
  return is_f16 ? std::ldexp(1.0, std::max(exponent, -14) - 10)
                : std::ldexp(1.0, std::max(exponent, -126) - 7);
}

}  // namespace

void CudaTest::SetUp() { NEED_TEST_GPU(); }

void CudaTest::TearDown() {
  if (TestGpu().ok()) Synchronize();
}

Device& CudaTest::device() { return *TestGpu().value(); }

cuda::CudaStream& CudaTest::stream() {
  static auto* stream = NewStream(kShape, 1024, 256).release();
  return *stream;
}

std::unique_ptr<cuda::CudaStream> CudaTest::NewStream(const ShapeClass& shape, int max_num_tokens,
                                                      int max_num_rows, OpChoice choice) {
  auto stream = cuda::CudaStream::Create(device(), shape, max_num_tokens, max_num_rows, choice);
  Must(stream.status());
  Synchronize();  // the workspace is zeroed on the default stream
  return std::move(stream.value());
}

testing::AssertionResult Intact(const DeviceTensor& tensor) {
  const std::string damage = tensor.Damage();
  if (damage.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << damage;
}

testing::AssertionResult NearestCodes(const Tensor& got, const std::vector<double>& want,
                                      const std::vector<double>& bound) {
  const auto* codes = got.view().as<const uint8_t>();
  for (size_t i = 0; i < want.size(); ++i) {
    const double clipped = std::clamp(want[i], -448.0, 448.0);
    const double nearest =
        std::abs(double{Float8E4M3::FromFloat(static_cast<float>(clipped)).ToFloat()} - clipped);
    const double value = Float8E4M3{codes[i]}.ToFloat();
    if (std::abs(value - clipped) <= nearest + 2 * bound[i]) continue;  // false for NaN
    return testing::AssertionFailure()
           << "at " << i << " of " << want.size() << ": got code " << int{codes[i]} << " = "
           << value << ", want the nearest to " << want[i] << " within " << bound[i];
  }
  return testing::AssertionSuccess();
}

double AfterRounding(double bound, double want, DType dtype) {
  return bound + 0.5 * Spacing(std::abs(want) + bound, dtype);
}

}  // namespace inflight::ops
