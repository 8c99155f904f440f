// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <tuple>

#include "cuda_test.h"
#include "linear_operands.h"
#include "ops/random.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

class CudaGatherRowsTest : public CudaTest {};

TEST_F(CudaGatherRowsTest, RowsComeInTheOrderAskedFor) {
  constexpr int64_t kRows = 9;
  const std::vector<int> wanted = {8, 0, 3, 3, 7};
  for (const int64_t row_bytes : {16, 48, 4096, 8192, 16400}) {
    Tensor host(DType::kU8, {kRows, row_bytes});
    Random random(1);
    auto* bytes = host.view().as<uint8_t>();
    for (int64_t i = 0; i < kRows * row_bytes; ++i) bytes[i] = static_cast<uint8_t>(random.Next());
    const DeviceTensor x = ToDevice(host);
    const DeviceTensor rows = ToDevice(Tensor::Int32(wanted));
    const DeviceTensor out = Output(DType::kU8, {5, row_bytes});
    ASSERT_EQ(cuda::GatherRows(x.view().data, rows.view().as<const int32_t>(), 5, row_bytes,
                               out.view().data, stream()),
              Status::Ok());
    const Tensor got = out.ToHost();
    for (size_t r = 0; r < wanted.size(); ++r)
      EXPECT_EQ(std::memcmp(got.view().as<uint8_t>() + static_cast<int64_t>(r) * row_bytes,
                            bytes + wanted[r] * row_bytes, static_cast<size_t>(row_bytes)),
                0)
          << "row " << r << " of " << row_bytes << " bytes";
    EXPECT_TRUE(Intact(out));
  }
}

TEST_F(CudaGatherRowsTest, RowsThatAreNotWholeVectorsAreRefused) {
  EXPECT_EQ(cuda::GatherRows(nullptr, nullptr, 1, 24, nullptr, stream()).message(),
            "rows: got 24 bytes each, needed a multiple of 16 at aligned addresses");
  EXPECT_EQ(cuda::GatherRows(nullptr, nullptr, 0, 32, nullptr, stream()), Status::Ok());
}

class CudaDequantizeTest : public CudaTest {};

// Products of an integer and a float32 scale, rounded to float32 and then to the dtype: exact.
TEST_F(CudaDequantizeTest, EveryCodeTimesItsRowsScale) {
  for (const DType weight : {DType::kI8, DType::kI4})
    for (const DType dtype : {DType::kF16, DType::kBF16})
      for (const auto& [n, k] :
           {std::pair{1, 16}, {3, 38}, {256, 256}, {2, 14336}, {5, 4104}, {2, 37}}) {
        const bool is_int4 = weight == DType::kI4;
        if (is_int4 && k % 2 != 0) continue;
        const int range = is_int4 ? 16 : 256;
        Tensor codes(DType::kI8, {n, k});
        auto* elements = codes.view().as<int8_t>();
        for (int64_t i = 0; i < int64_t{n} * k; ++i)
          elements[i] = static_cast<int8_t>((i + i / k) % range - range / 2);
        const Tensor scales = Tensor::Random(DType::kF32, {n}, 1);
        const DeviceTensor w = ToDevice(is_int4 ? PackedInt4(codes) : std::move(codes));
        const DeviceTensor device_scales = ToDevice(scales);
        const DeviceTensor out = Output(dtype, {n, k});
        ASSERT_EQ(cuda::Dequantize({.data = w.view().data,
                                    .dtype = weight,
                                    .out_features = n,
                                    .in_features = k,
                                    .scales = device_scales.view().as<const float>()},
                                   dtype, out.view().data, stream()),
                  Status::Ok());
        Tensor want(dtype, {n, k});
        for (int64_t i = 0; i < int64_t{n} * k; ++i)
          want.Set(i, static_cast<float>((i + i / k) % range - range / 2) * scales.Get(i / k));
        EXPECT_TRUE(SameBits(out.ToHost().ToFloats(), want.ToFloats()))
            << DTypeName(weight) << " to " << DTypeName(dtype) << " [" << n << ", " << k << "]";
        EXPECT_TRUE(Intact(out));
      }
}

// One fma in float32, rounded to the dtype: exact.
TEST_F(CudaDequantizeTest, EveryCodeTimesItsGroupsScalePlusItsOffset) {
  for (const DType weight : {DType::kI8, DType::kI4, DType::kF8E4M3})
    for (const DType dtype : {DType::kF16, DType::kBF16})
      for (const auto& [n, k, group] : {std::tuple{1, 16, 16},
                                        {3, 96, 48},
                                        {37, 4096, 128},
                                        {130, 14336, 32},
                                        {5, 512, 512},
                                        {64, 128, 16},
                                        {128, 1024, 32},
                                        {192, 512, 64},
                                        {64, 4096, 128},
                                        {256, 768, 384},
                                        {64, 512, 512},
                                        {70, 2080, 16}})
        for (const bool has_offsets : {false, true}) {
          if (has_offsets && weight == DType::kF8E4M3) continue;
          const IntegerOperand w(device(), weight, n, k, group, has_offsets, 1);
          const DeviceTensor out = Output(dtype, {n, k});
          ASSERT_EQ(cuda::Dequantize(w.weight(), dtype, out.view().data, stream()), Status::Ok());
          Tensor want(dtype, {n, k});
          for (int64_t i = 0; i < int64_t{n} * k; ++i) {
            const int64_t at = i / k * (k / group) + i % k / group;
            const float offset = has_offsets ? w.offsets.Get(at) : 0.0F;
            want.Set(i, std::fma(w.CodeAt(i), w.scales.Get(at), offset));
          }
          EXPECT_TRUE(SameBits(out.ToHost().ToFloats(), want.ToFloats()))
              << DTypeName(weight) << " to " << DTypeName(dtype) << " [" << n << ", " << k
              << "] in groups of " << group;
          EXPECT_TRUE(Intact(out));
        }
}

// Whose rows begin at any address, of codes as of results.
TEST_F(CudaDequantizeTest, UnalignedWeightsGiveTheSameElements) {
  for (const DType weight : {DType::kI8, DType::kI4}) {
    constexpr int64_t kN = 9, kK = 64;
    const IntegerOperand w(device(), weight, kN, kK, 16, true, 1);
    const DeviceTensor aligned = Output(DType::kBF16, {kN, kK});
    const DeviceTensor odd = Output(DType::kBF16, {kN, kK}, /*offset_elements=*/1);
    ASSERT_EQ(cuda::Dequantize(w.weight(), DType::kBF16, aligned.view().data, stream()),
              Status::Ok());
    ASSERT_EQ(cuda::Dequantize(w.weight(), DType::kBF16, odd.view().data, stream()), Status::Ok());
    EXPECT_TRUE(SameBits(odd.ToHost().ToFloats(), aligned.ToHost().ToFloats()));
    EXPECT_TRUE(Intact(odd));
  }
}

TEST_F(CudaDequantizeTest, OtherWeightsAreRefused) {
  const char* const needed =
      ", needed int8, FP8 in groups or int4 of even rows, row_major or tensor_core, with scales";
  EXPECT_EQ(cuda::Dequantize({.dtype = DType::kBF16}, DType::kBF16, nullptr, stream()),
            InvalidArgument(std::string("weight: got bfloat16 row_major") + needed));
  const float scale = 1;
  EXPECT_EQ(
      cuda::Dequantize({.dtype = DType::kI4, .out_features = 1, .in_features = 3, .scales = &scale},
                       DType::kBF16, nullptr, stream()),
      InvalidArgument(std::string("weight: got int4 row_major") + needed));
}

using CudaRandomTest = CudaTest;

// As the host makes them (builder/random.cc).
TEST_F(CudaRandomTest, Float4HasAllCodes) {
  constexpr int64_t kNum = 1000;
  const DeviceTensor out = Output(DType::kU8, {kNum / 2});
  Must(FillUniformOnGpu(
      {.data = out.view().data, .dtype = DType::kF4E2M1, .n = kNum, .bound = 6, .stream = 7},
      device()));
  Synchronize();
  const Tensor got = out.ToHost();
  for (int64_t i = 0; i < kNum; ++i)
    ASSERT_EQ(LoadInt4(got.view().data, i),
              std::floor(UniformAt(7, static_cast<uint64_t>(i), 8.0F)))
        << i;
  EXPECT_TRUE(Intact(out));
}

}  // namespace
}  // namespace inflight::ops
