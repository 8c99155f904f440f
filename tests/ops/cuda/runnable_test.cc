// SPDX-License-Identifier: Apache-2.0
// What GPUs are refused for which models; needs none.
#include <gtest/gtest.h>

#include "ops/cuda/cuda.h"

namespace inflight::ops {
namespace {

inflight::cuda::DeviceProperties Gpu(int major, int minor) {
  return {.index = 1, .name = "Card", .compute_major = major, .compute_minor = minor};
}

ShapeClass Shape(DType weights, DType kv) {
  return {.weight_dtype = weights, .dtype = DType::kBF16, .kv_dtype = kv, .head_dim = 128};
}

TEST(CudaRunnableTest, Fp8WeightsNeedTheirTensorCores) {
  constexpr DType kFp8 = DType::kF8E4M3;
  for (const DType kv : {DType::kBF16, kFp8}) {
    EXPECT_EQ(cuda::CheckRunnable(Shape(kFp8, kv), Gpu(8, 6)),
              Unimplemented("cuda:1: FP8 weights need compute capability 8.9 or later, this Card "
                            "has 8.6; build the model without FP8 (--use-weight-only is int8)"));
    EXPECT_EQ(cuda::CheckRunnable(Shape(kFp8, kv), Gpu(8, 9)), Status::Ok());
    EXPECT_EQ(cuda::CheckRunnable(Shape(kFp8, kv), Gpu(9, 0)), Status::Ok());
    EXPECT_EQ(cuda::CheckRunnable(Shape(DType::kBF16, kv), Gpu(8, 0)), Status::Ok())
        << "keys and values are widened";
  }
}

TEST(CudaRunnableTest, WhatNoKernelDoesIsNamed) {
  ShapeClass shape = Shape(DType::kBF16, DType::kBF16);
  shape.head_dim = 264;
  EXPECT_EQ(
      cuda::CheckRunnable(shape, Gpu(9, 0)).message(),
      "cuda:1: no kernels for bfloat16 weights, a model of dtype bfloat16, a KV cache of "
      "bfloat16 and head_dim 264 (docs/cuda.md lists what is supported; --dtype bfloat16 and head "
      "sizes that are multiples of 8 up to 256 are, and --dtype float32 with weights and a KV "
      "cache "
      "of float32)");
}

TEST(CudaRunnableTest, Float32RunsWithWeightsAndKeysOfFloat32Alone) {
  constexpr DType kFloat = DType::kF32;
  const ShapeClass plain = {
      .weight_dtype = kFloat, .dtype = kFloat, .kv_dtype = kFloat, .head_dim = 8};
  EXPECT_EQ(cuda::CheckRunnable(plain, Gpu(8, 0)), Status::Ok());
  for (const DType other : {DType::kI8, DType::kI4, DType::kF8E4M3, DType::kBF16}) {
    ShapeClass shape = plain;
    shape.weight_dtype = other;
    EXPECT_EQ(cuda::CheckRunnable(shape, Gpu(9, 0)).code(), StatusCode::kUnimplemented);
    shape = plain;
    shape.kv_dtype = other;
    EXPECT_EQ(cuda::CheckRunnable(shape, Gpu(9, 0)).code(), StatusCode::kUnimplemented);
  }
  EXPECT_FALSE(cuda::CheckRunnable(Shape(kFloat, DType::kBF16), Gpu(9, 0)).ok());
  ShapeClass odd = plain;
  odd.hidden_size = 6;
  EXPECT_EQ(cuda::CheckRunnable(odd, Gpu(9, 0)).message(),
            "cuda:1: hidden_size 6 is no multiple of 4, as kernels need of each rank's part; use "
            "fewer ranks (--tensor-parallel-size), or --device cpu");
}

TEST(CudaRunnableTest, TheWidthOfDenseLayersCountsWhereThereAreSome) {
  ShapeClass shape = Shape(DType::kBF16, DType::kBF16);
  shape.hidden_size = 128;
  shape.intermediate_size = 36;
  EXPECT_EQ(cuda::CheckRunnable(shape, Gpu(9, 0)).message(),
            "cuda:1: intermediate_size 36 is no multiple of 8, as kernels need of each rank's "
            "part; use fewer ranks (--tensor-parallel-size), or --device cpu");
  shape.intermediate_size = 0;
  EXPECT_EQ(cuda::CheckRunnable(shape, Gpu(9, 0)), Status::Ok());
}

}  // namespace
}  // namespace inflight::ops
