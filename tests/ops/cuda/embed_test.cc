// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "cuda_test.h"
#include "ops/cuda/float32/kernels.h"
#include "tensor/buffer.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

class CudaEmbedTest : public CudaTest {
 protected:
  // Of the table of a model's dtype.
  static Kernel<EmbedParams> EmbedOf(DType dtype) {
    return dtype == DType::kF32 ? cuda::float32::Embed : cuda::Embed;
  }
  // Reference rows, rounded once to the dtype, against the kernel's: equal bits.
  void Check(DType dtype, int hidden_size, int num_tokens, bool has_positions, int offset,
             float scale = 1);
};

void CudaEmbedTest::Check(DType dtype, int hidden_size, int num_tokens, bool has_positions,
                          int offset, float scale) {
  constexpr int kVocabSize = 131;
  constexpr int kMaxPositions = 40;
  const Tensor table = Tensor::Random(dtype, {kVocabSize, hidden_size}, 1);
  const Tensor position_table = Tensor::Random(dtype, {kMaxPositions, hidden_size}, 2);
  std::vector<int> id_values;
  std::vector<int> position_values;
  for (int t = 0; t < num_tokens; ++t) {
    id_values.push_back((t * 37 + kVocabSize - 1) % kVocabSize);  // the last one first
    position_values.push_back((t * 11 + kMaxPositions - 1) % kMaxPositions);
  }
  const Tensor ids = Tensor::Int32(id_values);
  const Tensor positions = Tensor::Int32(position_values);
  const Tensor want(DType::kF32, {num_tokens, hidden_size});
  const Weight host_table = {.data = table.view().data,
                             .dtype = dtype,
                             .out_features = kVocabSize,
                             .in_features = hidden_size};
  const std::unique_ptr<Device> cpu = Device::Cpu(1);
  Stream cpu_stream(*cpu);
  ASSERT_EQ(ReferenceTable().embed(
                {.ids = ids.view(),
                 .positions = positions.view(),
                 .table = host_table,
                 .position_table = has_positions ? position_table.view() : TensorView{},
                 .scale = scale,
                 .y = want.view()},
                cpu_stream),
            Status::Ok());

  const DeviceTensor device_table = ToDevice(table, offset);
  const DeviceTensor device_positions = ToDevice(position_table, offset);
  const DeviceTensor device_ids = ToDevice(ids);
  const DeviceTensor device_at = ToDevice(positions);
  const DeviceTensor y = Output(dtype, {num_tokens, hidden_size}, offset);
  Weight weight = host_table;
  weight.data = device_table.view().data;
  ASSERT_EQ(
      EmbedOf(dtype)({.ids = device_ids.view(),
                      .positions = device_at.view(),
                      .table = weight,
                      .position_table = has_positions ? device_positions.view() : TensorView{},
                      .scale = scale,
                      .y = y.view()},
                     stream()),
      Status::Ok());
  Tensor rounded(dtype, {num_tokens, hidden_size});
  for (int64_t i = 0; i < rounded.view().num_elements(); ++i) rounded.Set(i, want.Get(i));
  EXPECT_TRUE(SameBits(y.ToHost().ToFloats(), rounded.ToFloats()))
      << DTypeName(dtype) << " hidden_size " << hidden_size << " tokens " << num_tokens
      << " positions " << has_positions << " offset " << offset << " scale " << scale;
  EXPECT_TRUE(Intact(y));
}

TEST_F(CudaEmbedTest, RowsAreExactAndPositionsAreRoundedOnce) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
    for (const int hidden_size : {1, 8, 37, 768, 4096, 4104, 9000})
      for (const int num_tokens : {1, 3, 70})
        for (const bool has_positions : {false, true})
          Check(dtype, hidden_size, num_tokens, has_positions, /*offset=*/0);
}

TEST_F(CudaEmbedTest, RowsAreScaledAndRoundedOnce) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
    for (const int hidden_size : {37, 2304, 4104})
      for (const bool has_positions : {false, true})
        for (const float scale : {48.0F, 0.37F})
          Check(dtype, hidden_size, /*num_tokens=*/5, has_positions, /*offset=*/0, scale);
  Check(DType::kBF16, 64, 5, /*has_positions=*/false, /*offset=*/1, /*scale=*/11.3125F);
}

TEST_F(CudaEmbedTest, TensorsMayLieAtAnyAddress) {
  Check(DType::kBF16, 64, 5, /*has_positions=*/false, /*offset=*/1);
  Check(DType::kF16, 64, 5, /*has_positions=*/true, /*offset=*/3);
}

// Rows on the device and in pinned host memory, whole vectors and not.
TEST_F(CudaEmbedTest, TokensWithARowOfTheirOwnHaveThatRow) {
  constexpr int kVocabSize = 16;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
    for (const int hidden_size : {8, 37, 4096}) {
      const Tensor table = Tensor::Random(dtype, {kVocabSize, hidden_size}, 1);
      const Tensor own = Tensor::Random(dtype, {2, hidden_size}, 2);
      const size_t row_bytes = static_cast<size_t>(hidden_size) * SizeOf(dtype);
      const DeviceTensor device_table = ToDevice(table);
      const DeviceTensor device_own = ToDevice(own);
      auto pinned = PinnedBuffer::Allocate(device(), 2 * row_bytes);
      ASSERT_TRUE(pinned.ok());
      std::memcpy(pinned->data(), own.view().data, 2 * row_bytes);
      const DeviceTensor ids = ToDevice(Tensor::Int32({3, kVocabSize + 1, kVocabSize, 15}));
      const std::vector<const void*> addresses = {nullptr, pinned->data() + row_bytes,
                                                  device_own.view().data, nullptr};
      auto on_device = PinnedBuffer::Allocate(device(), sizeof(void*) * addresses.size());
      ASSERT_TRUE(on_device.ok());
      std::memcpy(on_device->data(), addresses.data(), sizeof(void*) * addresses.size());
      const DeviceTensor y = Output(dtype, {4, hidden_size});
      EmbedParams params = {.ids = ids.view(),
                            .table = {.data = device_table.view().data,
                                      .dtype = dtype,
                                      .out_features = kVocabSize,
                                      .in_features = hidden_size},
                            .prompt_rows = reinterpret_cast<const void* const*>(on_device->data()),
                            .prompt_dtype = dtype,
                            .scale = 2,  // of the table's rows alone
                            .y = y.view()};
      ASSERT_EQ(EmbedOf(dtype)(params, stream()), Status::Ok());
      const std::vector<float> got = y.ToHost().ToFloats();
      for (int i = 0; i < hidden_size; ++i) {
        ASSERT_EQ(got[static_cast<size_t>(i)], 2 * table.Get(3 * hidden_size + i));
        ASSERT_EQ(got[static_cast<size_t>(hidden_size + i)], own.Get(hidden_size + i));
        ASSERT_EQ(got[static_cast<size_t>(2 * hidden_size + i)], own.Get(i));
        ASSERT_EQ(got[static_cast<size_t>(3 * hidden_size + i)],
                  2 * table.Get(15 * hidden_size + i));
      }
      EXPECT_TRUE(Intact(y));
      params.prompt_dtype = dtype == DType::kF32 ? DType::kF16 : DType::kF32;
      EXPECT_FALSE(EmbedOf(dtype)(params, stream()).ok());
    }
}

TEST_F(CudaEmbedTest, NoTokensAreNoWork) {
  const DeviceTensor table = Output(DType::kBF16, {4, 8});
  EXPECT_EQ(cuda::Embed({.ids = {.dtype = DType::kI32, .shape = {0}},
                         .table = {.data = table.view().data,
                                   .dtype = DType::kBF16,
                                   .out_features = 4,
                                   .in_features = 8},
                         .y = {.dtype = DType::kBF16, .shape = {0, 8}}},
                        stream()),
            Status::Ok());
}

TEST_F(CudaEmbedTest, AResidualOfAnotherDTypeIsRefused) {
  const DeviceTensor table = Output(DType::kBF16, {4, 8});
  const DeviceTensor ids = ToDevice(Tensor::Int32({1, 2}));
  const DeviceTensor y = Output(DType::kF32, {2, 8});
  EXPECT_EQ(cuda::Embed({.ids = ids.view(),
                         .table = {.data = table.view().data,
                                   .dtype = DType::kBF16,
                                   .out_features = 4,
                                   .in_features = 8},
                         .y = y.view()},
                        stream()),
            InvalidArgument("y: got float32 [2, 8], needed bfloat16 [2, 8]"));
}

}  // namespace
}  // namespace inflight::ops
