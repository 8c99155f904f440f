// SPDX-License-Identifier: Apache-2.0
#include "gguf/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/test_file.h"

namespace inflight::gguf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ8 = 8;

Result<File> ParseText(const std::string& bytes) {
  return Parse(std::as_bytes(std::span(bytes)), "m.gguf");
}

void ExpectError(const std::string& bytes, StatusCode code, std::string_view words) {
  const auto file = ParseText(bytes);
  ASSERT_FALSE(file.ok()) << words;
  EXPECT_EQ(file.status().code(), code) << file.status().ToString();
  EXPECT_THAT(file.status().message(), HasSubstr(words));
  EXPECT_THAT(file.status().message(), HasSubstr("m.gguf"));
}

TestFile Small() {
  TestFile file;
  file.Text("general.architecture", "llama").U32("llama.block_count", 2);
  file.Tensor("a", kF32, {3, 2}, std::string(24, 'a')).Tensor("b", kQ8, {32}, std::string(34, 'b'));
  return file;
}

TEST(GgufFile, HasItsEntriesAndTensors) {
  for (const uint32_t version : {2U, 3U}) {
    TestFile test = Small();
    test.version = version;
    const std::string bytes = test.Bytes();
    const auto file = ParseText(bytes);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ(**file->metadata.Text("general.architecture"), "llama");
    EXPECT_EQ(**file->metadata.Int("llama.block_count", 0, 9), 2);
    EXPECT_FALSE((*file->metadata.Bool("absent")).has_value());
    ASSERT_EQ(file->tensors.size(), 2U);
    EXPECT_EQ(file->tensors[0].name, "a");
    EXPECT_THAT(file->tensors[0].shape, ElementsAre(2, 3));
    EXPECT_EQ(file->tensors[1].type->name, "Q8_0");
    EXPECT_EQ(file->tensors[1].data.size(), 34U);
    EXPECT_EQ(file->tensors[1].data.front(), std::byte{'b'});
    EXPECT_EQ(
        (file->tensors[1].data.data() - reinterpret_cast<const std::byte*>(bytes.data())) % 32, 0);
  }
}

TEST(GgufFile, ReadsEveryTypeOfValue) {
  TestFile test;
  test.Entry("u8", ValueType::kU8, Raw(uint8_t{200}));
  test.Entry("i8", ValueType::kI8, Raw(int8_t{-2}));
  test.Entry("u16", ValueType::kU16, Raw(uint16_t{60000}));
  test.Entry("i16", ValueType::kI16, Raw(int16_t{-300}));
  test.Entry("i32", ValueType::kI32, Raw(int32_t{-70000}));
  test.Entry("u64", ValueType::kU64, Raw(UINT64_MAX));
  test.Entry("i64", ValueType::kI64, Raw(INT64_MIN));
  test.Entry("f64", ValueType::kF64, Raw(0.1));
  test.F32("f32", 0.5F).Bool("yes", true).Texts("texts", {"a", "", "bc"});
  test.Numbers<float>("floats", ValueType::kF32, {1.5F, -2});
  test.Numbers<int8_t>("ints", ValueType::kI8, {-1, 7});
  test.Entry("nested", ValueType::kArray,
             Raw(static_cast<uint32_t>(ValueType::kArray)) + Raw(uint64_t{1}) +
                 Raw(static_cast<uint32_t>(ValueType::kBool)) + Raw(uint64_t{2}) + "\1\1");
  const std::string bytes = test.Bytes();
  const auto file = ParseText(bytes);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const Metadata& data = file->metadata;
  EXPECT_EQ(Describe(*data.Find("u8")), "200");
  EXPECT_EQ(Describe(*data.Find("i8")), "-2");
  EXPECT_EQ(Describe(*data.Find("u16")), "60000");
  EXPECT_EQ(Describe(*data.Find("i16")), "-300");
  EXPECT_EQ(Describe(*data.Find("i32")), "-70000");
  EXPECT_EQ(Describe(*data.Find("u64")), "18446744073709551615");
  EXPECT_EQ(Describe(*data.Find("i64")), "-9223372036854775808");
  EXPECT_EQ(Describe(*data.Find("f64")), "0.1");
  EXPECT_EQ(Describe(*data.Find("f32")), "0.5");
  EXPECT_EQ(**data.Bool("yes"), true);
  EXPECT_THAT(**data.Texts("texts"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(**data.Floats("floats"), ElementsAre(1.5F, -2));
  EXPECT_THAT(**data.Ints("ints"), ElementsAre(-1, 7));
}

TEST(GgufFile, SaysWhatAValueIsAndWhatIsNeeded) {
  const std::string bytes = Small().Bytes();
  const auto file = ParseText(bytes);
  ASSERT_TRUE(file.ok());
  const auto& data = file->metadata;
  EXPECT_EQ(data.Int("llama.block_count", 3, 9).status().message(),
            "m.gguf: llama.block_count: got 2, a whole number from 3 to 9 is needed");
  EXPECT_EQ(data.Text("llama.block_count").status().message(),
            "m.gguf: llama.block_count: got 2, a text is needed");
  EXPECT_EQ(data.Bool("general.architecture").status().message(),
            "m.gguf: general.architecture: got 'llama', true or false is needed");
  EXPECT_FALSE(data.Texts("general.architecture").ok());
  EXPECT_FALSE(data.Ints("general.architecture").ok());
  EXPECT_FALSE(data.Floats("general.architecture").ok());
}

TEST(GgufFile, EveryCutIsAnError) {
  const std::string bytes = Small().Bytes();
  ASSERT_TRUE(ParseText(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(ParseText(bytes.substr(0, size)).ok()) << size;
  ExpectError(bytes.substr(0, bytes.size() - 1), StatusCode::kDataLoss, "'b': truncated");
}

TEST(GgufFile, OtherFilesAndVersionsAreRefused) {
  ExpectError("PK\3\4 and so on", StatusCode::kInvalidArgument, "no GGUF file");
  TestFile test = Small();
  test.version = 1;
  ExpectError(test.Bytes(), StatusCode::kUnimplemented, "version: got 1, 2 and 3 are supported");
  test.version = 4;
  ExpectError(test.Bytes(), StatusCode::kUnimplemented, "version: got 4");
  test.version = 0x03000000;
  ExpectError(test.Bytes(), StatusCode::kUnimplemented, "big-endian");
}

TEST(GgufFile, CountsBeyondTheFileAreRefused) {
  const auto with_counts = [](uint64_t tensors, uint64_t entries) {
    return "GGUF" + Raw(3U) + Raw(tensors) + Raw(entries) + std::string(64, '\0');
  };
  ExpectError(with_counts(uint64_t{1} << 60, 0), StatusCode::kDataLoss, "tensor_count: got");
  ExpectError(with_counts(0, uint64_t{1} << 60), StatusCode::kDataLoss, "metadata_kv_count: got");
  for (const ValueType type : {ValueType::kString, ValueType::kU8, ValueType::kF64}) {
    TestFile test;
    test.Entry("list", ValueType::kArray,
               Raw(static_cast<uint32_t>(type)) + Raw(uint64_t{1} << 61));
    ExpectError(test.Bytes(), StatusCode::kDataLoss, "'list': got 2305843009213693952");
  }
  TestFile text;
  text.Entry("text", ValueType::kString, Raw(UINT64_MAX));
  ExpectError(text.Bytes(), StatusCode::kDataLoss, "truncated: 'text'");
}

TEST(GgufFile, DeepArraysAreRefused) {
  std::string raw;
  for (int depth = 0; depth < 100; ++depth)
    raw += Raw(static_cast<uint32_t>(ValueType::kArray)) + Raw(uint64_t{1});
  TestFile test;
  test.Entry("deep", ValueType::kArray, raw);
  ExpectError(test.Bytes(), StatusCode::kInvalidArgument, "nested deeper than 4 levels");
}

TEST(GgufFile, WrongValuesAreRefused) {
  ExpectError(TestFile().Entry("k", static_cast<ValueType>(13), "").Bytes(),
              StatusCode::kInvalidArgument, "'k': got value type 13, 0 to 12 are known");
  ExpectError(TestFile().Entry("k", ValueType::kBool, "\2").Bytes(), StatusCode::kInvalidArgument,
              "'k': got 2, 0 or 1 is needed");
  ExpectError(TestFile().U32("k", 1).U32("k", 2).Bytes(), StatusCode::kInvalidArgument,
              "'k': comes twice");
  ExpectError(TestFile().U32("", 1).Bytes(), StatusCode::kInvalidArgument, "a key of 0 bytes");
}

TEST(GgufFile, TensorsThatMakeNoSenseAreRefused) {
  const auto one = [](uint32_t type, const std::vector<uint64_t>& dims, uint64_t offset) {
    TestFile test;
    test.TensorAt("t", type, dims, offset);
    return test.Bytes() + std::string(256, 'x');
  };
  ASSERT_TRUE(ParseText(one(kF32, {8}, 32)).ok());
  ExpectError(one(99, {8}, 0), StatusCode::kInvalidArgument, "'t': unknown block type 99");
  ExpectError(one(kQ8, {33}, 0), StatusCode::kInvalidArgument,
              "'t': rows of 33 elements, blocks of Q8_0 have 32");
  ExpectError(one(kF32, {}, 0), StatusCode::kInvalidArgument, "'t': 0 dimensions");
  ExpectError(one(kF32, {1, 1, 1, 1, 1}, 0), StatusCode::kInvalidArgument, "'t': 5 dimensions");
  ExpectError(one(kF32, {8, 0}, 0), StatusCode::kInvalidArgument, "'t': dimension 1: got 0");
  ExpectError(one(kF32, {UINT64_MAX}, 0), StatusCode::kInvalidArgument, "'t': dimension 0: got");
  ExpectError(one(kF32, {uint64_t{1} << 40, uint64_t{1} << 40}, 0), StatusCode::kInvalidArgument,
              "is too large");
  ExpectError(one(kF32, {8}, 33), StatusCode::kInvalidArgument,
              "'t': offset: got 33, a multiple of 32 is needed");
  ExpectError(one(kF32, {64, 2}, 0), StatusCode::kDataLoss, "'t': truncated: 512 bytes");
  ExpectError(one(kF32, {8}, uint64_t{1} << 63), StatusCode::kDataLoss, "'t': truncated");
}

TEST(GgufFile, TensorsMayNotOverlapNorShareANameButMayLeaveGaps) {
  const std::string data(256, 'x');
  TestFile overlapping;
  overlapping.TensorAt("late", kF32, {8}, 64).TensorAt("early", kF32, {17}, 0);
  ExpectError(overlapping.Bytes() + data, StatusCode::kInvalidArgument,
              "'late': offset 64 lies in 'early', which ends at 68");
  TestFile twice;
  twice.TensorAt("t", kF32, {8}, 0).TensorAt("t", kF32, {8}, 32);
  ExpectError(twice.Bytes() + data, StatusCode::kInvalidArgument, "'t': comes twice");
  TestFile gap;
  gap.TensorAt("a", kF32, {8}, 0).TensorAt("b", kF32, {8}, 128);
  EXPECT_TRUE(ParseText(gap.Bytes() + data).ok());
}

TEST(GgufFile, AlignmentIsTheFilesOwn) {
  TestFile test;
  test.alignment = 64;
  test.U32("general.alignment", 64);
  test.Tensor("a", kF32, {1}, "aaaa").Tensor("b", kF32, {1}, "bbbb");
  const std::string bytes = test.Bytes();
  const auto file = ParseText(bytes);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->tensors[1].data.data() - file->tensors[0].data.data(), 64);
  EXPECT_EQ(file->tensors[1].data.front(), std::byte{'b'});
  for (const uint32_t wrong : {0U, 12U})
    ExpectError(TestFile().U32("general.alignment", wrong).Bytes(), StatusCode::kInvalidArgument,
                "general.alignment: got");
}

TEST(GgufFile, WithoutTensorsKeepsEveryEntry) {
  const std::string bytes = Small().Bytes();
  const auto file = ParseText(bytes);
  ASSERT_TRUE(file.ok());
  const std::string bare = WithoutTensors(*file);
  const auto read = ParseText(bare);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(read->tensors.empty());
  EXPECT_EQ(read->metadata.entries().size(), file->metadata.entries().size());
  EXPECT_EQ(**read->metadata.Text("general.architecture"), "llama");
}

}  // namespace
}  // namespace inflight::gguf
