// SPDX-License-Identifier: Apache-2.0
// What tests of integer linears run on: both weights by both activations, a CPU with three threads.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cases.h"
#include "compare.h"
#include "integer_weight.h"

namespace inflight::ops {

struct IntegerDTypes {
  DType weights;
  DType activations;
};

class IntegerLinears : public testing::TestWithParam<IntegerDTypes> {
 public:
  static auto All() {
    return testing::Values(
        IntegerDTypes{DType::kI8, DType::kF32}, IntegerDTypes{DType::kI8, DType::kBF16},
        IntegerDTypes{DType::kI4, DType::kF32}, IntegerDTypes{DType::kI4, DType::kBF16});
  }
  static std::string NameOf(const testing::TestParamInfo<IntegerDTypes>& info) {
    return std::string(DTypeName(info.param.weights)) + "_" +
           std::string(DTypeName(info.param.activations));
  }

 protected:
  DType weights() const { return GetParam().weights; }
  DType activations() const { return GetParam().activations; }
  // y of the linear, whose memory begins `offset` elements behind an aligned place.
  std::vector<float> Run(const OpTable& table, LinearParams params, DType y_dtype = DType::kF32,
                         int offset = 0) {
    const int64_t num_tokens = params.x.values.shape[0];
    const Tensor scratch = ScratchOf(params.weight, num_tokens);
    const Tensor y(y_dtype, {num_tokens, params.weight.out_features}, offset);
    params.scratch = scratch.view();
    params.y = y.view();
    EXPECT_EQ(table.linear(params, stream_), Status::Ok());
    return y.ToFloats();
  }

  const ShapeClass shape_ = {.weight_dtype = weights()};
  std::unique_ptr<Device> device_ = Device::Cpu(3);
  Stream stream_{*device_};
};

}  // namespace inflight::ops
