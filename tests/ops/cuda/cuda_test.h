// SPDX-License-Identifier: Apache-2.0
// The fixture of tests of CUDA operators (tensor/test_gpu.h: what happens without a GPU).
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "compare.h"
#include "device_support.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/kernels.h"

namespace inflight::ops {

class CudaTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;  // the GPU's work ended without an error

  Device& device();
  // One for the process, with the workspace of a small model (kShape) for 1,024 tokens in 256 rows.
  cuda::CudaStream& stream();
  std::unique_ptr<cuda::CudaStream> NewStream(const ShapeClass& shape, int max_num_tokens,
                                              int max_num_rows,
                                              OpChoice choice = OpChoice::kFastest);
  static constexpr ShapeClass kShape = {.weight_dtype = DType::kBF16,
                                        .dtype = DType::kBF16,
                                        .kv_dtype = DType::kBF16,
                                        .head_dim = 128,
                                        .num_heads = 8,
                                        .num_kv_heads = 2,
                                        .hidden_size = 1024,
                                        .intermediate_size = 2048};

  DeviceTensor ToDevice(const Tensor& host, int offset_elements = 0) {
    return {device(), host, offset_elements};
  }
  DeviceTensor Output(DType dtype, Shape shape, int offset_elements = 0) {
    return {device(), dtype, shape, offset_elements};
  }
};

// Succeeds if nothing outside `tensor` was written.
testing::AssertionResult Intact(const DeviceTensor& tensor);

// Succeeds if each code of `got` (float8_e4m3fn) is one of the nearest to want[i], which the kernel
// may have computed with an error of bound[i]: next to the middle of two codes either will do.
// Values beyond 448 saturate.
testing::AssertionResult NearestCodes(const Tensor& got, const std::vector<double>& want,
                                      const std::vector<double>& bound);

// |kernel - want| for a value that is right but for an error of `bound` before it is rounded to
// `dtype`; `want` is exact.
double AfterRounding(double bound, double want, DType dtype);

}  // namespace inflight::ops
