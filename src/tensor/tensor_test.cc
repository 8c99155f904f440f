// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tensor/buffer.h"
#include "tensor/element.h"
#include "tensor/stream.h"

namespace inflight {
namespace {

TEST(DTypeTest, NamesAreReadBack) {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI8, DType::kU8, DType::kI16,
        DType::kI32, DType::kI64, DType::kBool, DType::kF8E4M3, DType::kI4})
    EXPECT_EQ(DTypeFromName(DTypeName(dtype)), dtype);
  EXPECT_EQ(DTypeFromName("float64x"), std::nullopt);
  EXPECT_EQ(SizeOf(DType::kBF16), 2U);
  EXPECT_EQ(BytesOf(DType::kBF16, 3), 6U);
  EXPECT_EQ(BytesOf(DType::kI4, 6), 3U);
  EXPECT_EQ(BytesOf(DType::kI4, 7), 4U);
}

TEST(DTypeTest, BFloat16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(BFloat16::FromFloat(1.0F).bits, 0x3f80);
  EXPECT_EQ(BFloat16::FromFloat(1.0F + 0x1p-8F).bits, 0x3f80);      // tie, to even: down
  EXPECT_EQ(BFloat16::FromFloat(1.0F + 3 * 0x1p-8F).bits, 0x3f82);  // tie, to even: up
  EXPECT_EQ(BFloat16::FromFloat(1.0F + 0x1.02p-8F).bits, 0x3f81);   // above the tie
  EXPECT_EQ(BFloat16::FromFloat(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(BFloat16::FromFloat(std::nanf("")).ToFloat()));
}

#if defined(__aarch64__)
using CompilersHalf = __fp16;  // g++ 12 has no _Float16 there
#else
using CompilersHalf = _Float16;
#endif

// The compiler's own conversions are the oracle.
TEST(DTypeTest, Float16AgreesWithTheCompilerForEveryHalfAndItsNeighbours) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const auto expected = static_cast<float>(std::bit_cast<CompilersHalf>(half.bits));
    const float value = half.ToFloat();
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    ASSERT_EQ(value, expected) << bits;
    for (const float direction :
         {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()}) {
      for (const float x : {value, std::nextafter(value, direction), value * 1.00049F}) {
        ASSERT_EQ(Float16::FromFloat(x).bits,
                  std::bit_cast<uint16_t>(static_cast<CompilersHalf>(x)))
            << x;
      }
    }
  }
}

TEST(ElementTest, IsReadBackAtAnyAddress) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::byte bytes[1 + 3 * sizeof(float)] = {};
    void* const data = bytes + 1;
    for (int i = 0; i < 3; ++i) StoreFloat(data, dtype, i, 0.5F + static_cast<float>(i));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(LoadFloat(data, dtype, i), 0.5F + static_cast<float>(i));
  }
  const double wide[] = {1.0, 0.1};
  EXPECT_EQ(LoadFloat(wide, DType::kF64, 1), 0.1F);
}

// The low nibble first (docs/reference/artifacts.md, "Quantised forms").
TEST(ElementTest, TwoInt4ShareAByte) {
  EXPECT_EQ(PackInt4(1, -1), 0xf1);
  EXPECT_EQ(PackInt4(-8, 7), 0x78);
  for (int first = -8; first < 8; ++first) {
    for (int second = -8; second < 8; ++second) {
      const uint8_t bytes[] = {0x5a, PackInt4(first, second)};
      EXPECT_EQ(LoadInt4(bytes, 0), -6);
      EXPECT_EQ(LoadInt4(bytes, 1), 5);
      EXPECT_EQ(LoadInt4(bytes, 2), first);
      EXPECT_EQ(LoadInt4(bytes, 3), second);
    }
  }
}

TEST(TensorViewTest, SizesFollowFromShapeAndDtype) {
  TensorView view{.dtype = DType::kBF16, .shape = {2, 3}};
  EXPECT_TRUE(view.empty());
  EXPECT_EQ(view.num_elements(), 6);
  EXPECT_EQ(view.num_bytes(), 12U);
  EXPECT_EQ(view.ToString(), "bfloat16 [2, 3]");
  view.dtype = DType::kI4;
  EXPECT_EQ(view.num_bytes(), 3U);
  EXPECT_EQ(Shape{}.num_elements(), 1);
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
}

TEST(MemoryLedgerTest, SharesAreBookedAndReturned) {
  const auto device = Device::CpuWithCapacity(1, 1000);
  MemoryLedger& ledger = device->ledger();
  {
    auto weights = ledger.Take("weights", 600);
    ASSERT_TRUE(weights.ok());
    EXPECT_EQ(ledger.free_bytes(), 400U);
    const auto refused = ledger.Take("kv", 401);
    EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(refused.status().message(), "kv: needs 401 bytes, 400 of 1000 are free");
    MemoryShare moved = *std::move(weights);
    EXPECT_EQ(moved.bytes(), 600U);
    EXPECT_EQ(ledger.entries().size(), 1U);
  }
  EXPECT_EQ(ledger.free_bytes(), 1000U);
  EXPECT_TRUE(ledger.entries().empty());
}

TEST(MemoryLedgerTest, SharesStandUnderTheNameOfTheirOwner) {
  const auto device = Device::CpuWithCapacity(1, 1000);
  MemoryLedger& ledger = device->ledger();
  auto nobodys = ledger.Take("a", 1);
  std::vector<Result<MemoryShare>> shares;
  {
    const MemoryLedger::OwnerScope outer(ledger, "outer");
    {
      const MemoryLedger::OwnerScope inner(ledger, "inner");
      shares.push_back(ledger.Take("b", 1));
      std::thread([&] { shares.push_back(ledger.Take("c", 1)); }).join();  // another's thread
    }
    shares.push_back(ledger.Take("d", 1));
  }
  shares.push_back(ledger.Take("e", 1));
  std::vector<std::string> names;
  for (const auto& entry : ledger.entries()) names.push_back(entry.name);
  EXPECT_EQ(names, std::vector<std::string>({"a", "inner: b", "c", "outer: d", "e"}));
}

TEST(MemoryLedgerTest, LoadsThatSizeThemselvesByFreeMemoryWaitForEachOther) {
  const auto device = Device::CpuWithCapacity(1, 1000);
  MemoryLedger& ledger = device->ledger();
  std::vector<MemoryShare> shares(8);
  std::vector<std::thread> loads;
  for (MemoryShare& share : shares) {
    loads.emplace_back([&ledger, &share] {
      const auto lock = ledger.LockSizing();
      const uint64_t half = ledger.free_bytes() / 2;
      std::this_thread::yield();
      auto taken = ledger.Take("kv", half);
      ASSERT_TRUE(taken.ok()) << taken.status().ToString();
      share = std::move(*taken);
    });
  }
  for (std::thread& load : loads) load.join();
  EXPECT_EQ(ledger.free_bytes(), 4U);  // 1000 halved eight times, each half rounded down
}

TEST(BufferTest, IsAlignedZeroedBookedAndReturned) {
  const auto device = Device::CpuWithCapacity(1, 1U << 20);
  {
    auto buffer = Buffer::Allocate(*device, "workspace", 1000);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0U);
    EXPECT_EQ(buffer->size(), 1000U);
    for (size_t i = 0; i < buffer->size(); ++i) ASSERT_EQ(buffer->data()[i], std::byte{0});
    EXPECT_EQ(device->ledger().entries().at(0).name, "workspace");
    const TensorView view = buffer->View(DType::kF32, {10, 20}, 64);
    EXPECT_EQ(view.as<std::byte>(), buffer->data() + 64);
    const Buffer moved = *std::move(buffer);
    EXPECT_EQ(moved.size(), 1000U);
  }
  EXPECT_EQ(device->ledger().free_bytes(), 1U << 20);
  EXPECT_EQ(Buffer::Allocate(*device, "big", 2U << 20).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(Buffer::Allocate(*device, "none", 0).ok());
}

TEST(BufferDeathTest, AViewBeyondTheBufferIsOurDefect) {
  const auto device = Device::CpuWithCapacity(1, 1U << 20);
  const auto buffer = Buffer::Allocate(*device, "workspace", 64);
  EXPECT_DEATH((void)buffer->View(DType::kF32, {17}), "");
}

}  // namespace
}  // namespace inflight
