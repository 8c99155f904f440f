// SPDX-License-Identifier: Apache-2.0
// The harness itself: what the tests of kernels rely on.
#include <cmath>

#include "cuda_test.h"

namespace inflight::ops {
namespace {

class DeviceSupportTest : public CudaTest {};

TEST_F(DeviceSupportTest, TensorsComeBackAsTheyWent) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    const Tensor host = Tensor::Random(dtype, {3, 7}, 1);
    const DeviceTensor tensor = ToDevice(host, 1);
    EXPECT_TRUE(SameBits(tensor.ToHost().ToFloats(), host.ToFloats()));
    EXPECT_TRUE(Intact(tensor));
  }
  EXPECT_TRUE(std::isnan(Output(DType::kF16, {5}).ToHost().Get(4)));
}

TEST_F(DeviceSupportTest, AWriteBesideATensorIsNoticed) {
  const DeviceTensor tensor = Output(DType::kBF16, {4, 4});
  const char zero = 0;
  Must(device().Copy(tensor.view().as<std::byte>() + 32, &zero, 1));
  EXPECT_EQ(tensor.Damage(), "bfloat16 [4, 4]: byte 0 behind it was written");
  Must(device().Copy(tensor.view().as<std::byte>() - 2, &zero, 1));
  EXPECT_EQ(tensor.Damage(), "bfloat16 [4, 4]: byte 2 before it was written");
}

TEST_F(DeviceSupportTest, CachesAndBatchesDescribeEachOther) {
  DeviceCache cache(device(), {DType::kF8E4M3, 2, 64, 16}, {20, 33}, 1, {1, 2, 3, 4});
  cache.Fill(1, 0, 20, 5);
  cache.Upload();
  EXPECT_EQ(cache.Download().size(), cache.num_bytes());
  EXPECT_FALSE(std::isnan(cache.Key(1, 0, 19, 1, 63)));
  EXPECT_TRUE(std::isnan(cache.Key(1, 0, 0, 0, 0) * cache.Value(1, 1, 32, 0, 0)));
  // The index agrees with the view's own addresses.
  const int64_t slot = cache.Slot(0, 17);
  EXPECT_EQ(cache.ElementIndex(1, slot, /*is_value=*/true, 1, 3),
            cache.host().Values(1, slot / 16, 1) - cache.host().data + slot % 16 * 64 + 3);

  const DeviceBatch batch(device(), cache, {{1, 20}, {1, 33}}, {0, 1},
                          {.num_padded_rows = 2, .use_table_rows = true});
  EXPECT_EQ(batch.view().num_rows, 4);
  EXPECT_EQ(batch.view().num_decode_rows, 4);
  const auto* lines = batch.host().table_rows.as<const int32_t>();
  const auto* tables = batch.host().block_tables.as<const int32_t>();
  EXPECT_EQ(batch.host().block_tables.shape, (Shape{8, 4}));
  EXPECT_EQ(tables[lines[1] * 4 + 2], cache.blocks(1)[2]);
  EXPECT_EQ(tables[lines[1] * 4 + 3], 0);
  EXPECT_EQ(batch.host().slot_mapping.as<const int64_t>()[0], cache.Slot(0, 19));
  EXPECT_EQ(batch.host().slot_mapping.as<const int64_t>()[2], 0);
}

TEST_F(DeviceSupportTest, CodesMayMissOnlyAtTies) {
  const Tensor codes = Tensor::Of(DType::kF8E4M3, {3}, {1.125F, -448, 0});
  EXPECT_TRUE(NearestCodes(codes, {1.0625, -1e9, 1e-4}, {1e-6, 1, 0}));  // 1 or 1.125: a tie
  EXPECT_TRUE(NearestCodes(codes, {1.0624, -448, 0}, {1e-4, 0, 0}));
  EXPECT_FALSE(NearestCodes(codes, {1.06, -448, 0}, {1e-4, 0, 0}));
  EXPECT_FALSE(NearestCodes(codes, {1.125, -400, 0}, {0, 0, 0}));
}

}  // namespace
}  // namespace inflight::ops
