// SPDX-License-Identifier: Apache-2.0
#include "artifact/engine_file.h"

#include <gmock/gmock.h>
#include <xxhash.h>

#include <numeric>

#include "artifact/engine_load.h"
#include "artifact/test_files.h"
#include "base/file.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/test_gpu.h"

namespace inflight::artifact {
namespace {

using testing::HasSubstr;
using testing::Not;

// Offsets of header fields, as docs/reference/artifacts.md gives them.
constexpr size_t kVersionAt = 16;
constexpr size_t kFileBytesAt = 56;
constexpr size_t kTableBytesAt = 64;
constexpr size_t kNumTensorsAt = 72;
constexpr size_t kDataOffsetAt = 80;
constexpr size_t kTableChecksumAt = 88;
constexpr size_t kHeaderChecksumAt = 120;
constexpr size_t kHeaderBytes = 128;

class EngineFileTest : public FileTest {
 protected:
  void SetUp() override {
    large_.resize(kChecksumChunkBytes * 2 + 100);
    std::iota(large_.begin(), large_.end(), char{0});
    auto writer = EngineFileWriter::Create(path_, "cpu",
                                           {{.name = "w",
                                             .dtype = DType::kBF16,
                                             .shape = {3, 2},
                                             .layout = "panel64",
                                             .num_bytes = 20},
                                            {.name = "b",
                                             .dtype = DType::kU8,
                                             .shape = {5},
                                             .layout = "row_major",
                                             .num_bytes = large_.size()}});
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    ASSERT_TRUE(writer->Write(1, BytesOf(large_)).ok());
    ASSERT_TRUE(writer->Write(0, BytesOf("0123456789abcdefghij")).ok());
    EXPECT_FALSE(FileExists(path_)) << "visible before it is complete";
    ASSERT_TRUE(writer->Finish().ok());
    file_ = *ReadFile(path_);
  }

  Result<EngineTable> Parse() const {
    return ParseEngineTable(BytesOf(file_), file_.size(), "rank0.engine");
  }
  // Makes the checksums right again after a change.
  void Seal() {
    const auto table_bytes = GetAt<uint64_t>(file_, kTableBytesAt);
    if (table_bytes <= file_.size() - kHeaderBytes)
      PutAt(file_, kTableChecksumAt, XXH3_64bits(file_.data() + kHeaderBytes, table_bytes));
    PutAt(file_, kHeaderChecksumAt, XXH3_64bits(file_.data(), kHeaderChecksumAt));
  }
  std::string ErrorAfterSealing() {
    Seal();
    const auto table = Parse();
    EXPECT_FALSE(table.ok());
    return table.status().message();
  }
  // Position of the u64 that follows name, dtype, layout, rank and shape of tensor "w": its offset.
  size_t OffsetFieldOfW() const {
    return kHeaderBytes + 2 + 1 + 2 + std::strlen("bfloat16") + 2 + std::strlen("panel64") + 2 + 16;
  }

  std::filesystem::path path_ = dir() / "rank0.engine";
  std::string large_;
  std::string file_;
  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

TEST_F(EngineFileTest, WhatIsWrittenIsRead) {
  const auto table = Parse();
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  EXPECT_EQ(table->target, "cpu");
  ASSERT_EQ(table->tensors.size(), 2U);
  const EngineTensor& w = table->tensors[0];
  EXPECT_EQ(w.name, "w");
  EXPECT_EQ(w.dtype, DType::kBF16);
  EXPECT_EQ(w.shape, (Shape{3, 2}));
  EXPECT_EQ(w.layout, "panel64");
  EXPECT_EQ(w.offset_bytes % kEngineAlignment, 0U);
  EXPECT_EQ(file_.substr(w.offset_bytes, w.num_bytes), "0123456789abcdefghij");
  EXPECT_EQ(file_.substr(table->tensors[1].offset_bytes, large_.size()), large_);
}

TEST_F(EngineFileTest, DataIsVerifiedInPlaceAndWhileReading) {
  const auto table = Parse();
  ASSERT_TRUE(table.ok());
  EXPECT_TRUE(VerifyEngineData(BytesOf(file_), *table, "f", device_->cpu_pool()).ok());
  std::string loaded(table->file_bytes - table->data_offset, '\0');
  auto* const target = reinterpret_cast<std::byte*>(loaded.data());
  double done = -1;
  ASSERT_TRUE(LoadEngineData(path_, *table, target, *device_, [&](double fraction) {
                done = fraction;
              }).ok());
  EXPECT_GE(done, 0);
  EXPECT_EQ(loaded, file_.substr(table->data_offset));

  file_[table->tensors[1].offset_bytes + large_.size() - 1] ^= 1;
  ASSERT_TRUE(WriteFile(path_, file_).ok());
  for (const Status& status : {VerifyEngineData(BytesOf(file_), *table, "f", device_->cpu_pool()),
                               LoadEngineData(path_, *table, target, *device_)}) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("b: checksum"));
  }
}

TEST_F(EngineFileTest, DataIsVerifiedOnItsWayToAGpu) {
  NEED_TEST_GPU();
  Device& gpu = *TestGpu().value();
  const auto table = Parse();
  ASSERT_TRUE(table.ok());
  const auto buffer = Buffer::Allocate(gpu, "weights", table->file_bytes - table->data_offset);
  ASSERT_TRUE(buffer.ok());
  ASSERT_TRUE(LoadEngineData(path_, *table, buffer->data(), gpu).ok());
  std::string loaded(buffer->size(), '\0');
  ASSERT_TRUE(gpu.Copy(loaded.data(), buffer->data(), loaded.size()).ok());
  EXPECT_EQ(loaded, file_.substr(table->data_offset));

  // The second tensor in host memory.
  const uint64_t second = table->tensors[1].offset_bytes - table->data_offset;
  const uint64_t num_bytes = table->file_bytes - table->data_offset - second;
  const auto pinned = PinnedBuffer::AllocateLarge(gpu, num_bytes);
  const auto alone = Buffer::Allocate(gpu, "weights", second);
  ASSERT_TRUE(pinned.ok() && alone.ok());
  const LoadTarget targets[] = {
      {.num_bytes = second, .data = alone->data()},
      {.offset_bytes = second, .num_bytes = num_bytes, .data = pinned->data(), .is_on_host = true}};
  ASSERT_TRUE(LoadEngineData(path_, *table, targets, gpu).ok());
  loaded.assign(second, '\0');
  ASSERT_TRUE(gpu.Copy(loaded.data(), alone->data(), second).ok());
  loaded.append(reinterpret_cast<const char*>(pinned->data()), num_bytes);
  EXPECT_EQ(loaded, file_.substr(table->data_offset));

  file_[table->tensors[1].offset_bytes + large_.size() - 1] ^= 1;
  ASSERT_TRUE(WriteFile(path_, file_).ok());
  for (const Status& status : {LoadEngineData(path_, *table, buffer->data(), gpu),
                               LoadEngineData(path_, *table, targets, gpu)}) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("b: checksum"));
  }
}

TEST_F(EngineFileTest, EveryTruncationIsAnError) {
  const auto table = Parse();
  ASSERT_TRUE(table.ok());
  for (size_t n = 0; n < table->data_offset + 100; ++n)
    ASSERT_EQ(ParseEngineTable(BytesOf(file_).first(n), n, "f").status().code(),
              StatusCode::kDataLoss)
        << n;
  EXPECT_THAT(ParseEngineTable(BytesOf(file_), file_.size() - 1, "f").status().message(),
              HasSubstr("truncated: the header says"));
}

TEST_F(EngineFileTest, EveryChangedByteOfHeaderAndTableIsNoticed) {
  const auto table_bytes = GetAt<uint64_t>(file_, kTableBytesAt);
  for (size_t i = 0; i < kHeaderBytes + table_bytes; ++i) {
    file_[i] = static_cast<char>(file_[i] ^ 0x10);
    EXPECT_FALSE(Parse().ok()) << "byte " << i;
    file_[i] = static_cast<char>(file_[i] ^ 0x10);
  }
  EXPECT_TRUE(Parse().ok());
}

TEST_F(EngineFileTest, AnotherVersionSaysHowToRebuild) {
  const auto refused = [&](uint32_t version) {
    PutAt(file_, kVersionAt, version);
    const auto table = Parse();
    EXPECT_EQ(table.status().code(), StatusCode::kFailedPrecondition);
    return table.status().message();
  };
  EXPECT_THAT(refused(2),
              HasSubstr("engine format version 2, this program reads 1; rebuild it with `inflight "
                        "build --checkpoint-dir"));
  EXPECT_THAT(refused(2), HasSubstr("or run the later release that built it"));
  EXPECT_THAT(refused(0), Not(HasSubstr("later release")));
}

TEST_F(EngineFileTest, OtherFilesAreNotEngines) {
  file_.replace(0, 8, "ftrt\x01\x02\x03\x04");
  EXPECT_THAT(Parse().status().message(), HasSubstr("not an engine file of Inflight"));
}

TEST_F(EngineFileTest, SizesThatDoNotFitAreRefused) {
  const std::string good = file_;
  for (const size_t field : {kTableBytesAt, kDataOffsetAt, kFileBytesAt}) {
    file_ = good;
    PutAt(file_, field, UINT64_MAX);
    EXPECT_FALSE(ErrorAfterSealing().empty());
  }
  file_ = good;
  PutAt(file_, kNumTensorsAt, uint64_t{3});
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("the tensor table ends too early"));
  PutAt(file_, kNumTensorsAt, uint64_t{1});
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("holds more than its tensors"));
}

TEST_F(EngineFileTest, OffsetsMustBeAlignedInOrderAndInside) {
  const auto offset = GetAt<uint64_t>(file_, OffsetFieldOfW());
  PutAt(file_, OffsetFieldOfW(), offset + 1);
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("w: offset"));
  PutAt(file_, OffsetFieldOfW(), uint64_t{64});
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("w: offset 64 overlaps"));
  PutAt(file_, OffsetFieldOfW(), offset + 64);
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("b: offset"));
  PutAt(file_, OffsetFieldOfW(), uint64_t{1} << 63);
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("reach beyond the file"));
  PutAt(file_, OffsetFieldOfW(), offset);
  PutAt(file_, OffsetFieldOfW() + 8, UINT64_MAX);  // its size
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("reach beyond the file"));
  PutAt(file_, OffsetFieldOfW() + 8, uint64_t{11});
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("w: 11 bytes, bfloat16 [3, 2] needs at least 12"));
}

TEST_F(EngineFileTest, BytesThatOverflowNameTheirTensor) {
  auto writer = EngineFileWriter::Create(
      path_, "cpu", {{.name = "w", .dtype = DType::kF64, .shape = {1}, .num_bytes = 8}});
  ASSERT_TRUE(writer.ok() && writer->Write(0, BytesOf("01234567")).ok() && writer->Finish().ok());
  file_ = *ReadFile(path_);
  PutAt(file_, kHeaderBytes + 2 + 1 + 2 + std::strlen("float64") + 2 + 2, int64_t{1} << 62);
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("w: shape: got [4611686018427387904], too large"));
}

TEST_F(EngineFileTest, ShapesThatOverflowAreRefused) {
  const size_t shape_at = OffsetFieldOfW() - 16;
  PutAt(file_, shape_at, int64_t{1} << 62);
  PutAt(file_, shape_at + 8, int64_t{4});
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("w: shape"));
  PutAt(file_, shape_at, int64_t{-3});
  EXPECT_THAT(ErrorAfterSealing(), HasSubstr("negative"));
}

TEST(EngineChecksum, IsOverChunkChecksums) {
  const std::string data(kChecksumChunkBytes + 3, 'q');
  const uint64_t chunks[] = {XXH3_64bits(data.data(), kChecksumChunkBytes),
                             XXH3_64bits(data.data() + kChecksumChunkBytes, 3)};
  EXPECT_EQ(TensorChecksum(BytesOf(data)), XXH3_64bits(chunks, sizeof(chunks)));
}

// Two elements a byte: 3 x 6 take 9.
TEST_F(EngineFileTest, Int4TensorsTakeHalfAByteAnElement) {
  const auto write = [&](uint64_t num_bytes) {
    auto writer = EngineFileWriter::Create(path_, "cuda",
                                           {{.name = "w",
                                             .dtype = DType::kI4,
                                             .shape = {3, 6},
                                             .layout = "row_major",
                                             .num_bytes = num_bytes}});
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    ASSERT_TRUE(writer->Write(0, BytesOf("0123456789").first(num_bytes)).ok());
    ASSERT_TRUE(writer->Finish().ok());
    file_ = *ReadFile(path_);
  };
  write(9);
  const auto table = Parse();
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  EXPECT_EQ(table->tensors[0].dtype, DType::kI4);
  EXPECT_EQ(table->tensors[0].shape, (Shape{3, 6}));
  EXPECT_EQ(table->tensors[0].num_bytes, 9U);
  write(8);
  EXPECT_THAT(Parse().status().message(), HasSubstr("8 bytes, int4 [3, 6] needs at least 9"));
}

}  // namespace
}  // namespace inflight::artifact
