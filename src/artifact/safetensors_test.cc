// SPDX-License-Identifier: Apache-2.0
#include "artifact/safetensors.h"

#include <gmock/gmock.h>

#include "artifact/tensor_set.h"
#include "artifact/test_files.h"

namespace inflight::artifact {
namespace {

using testing::HasSubstr;

// A file with this header text and `data_bytes` of data 0, 1, 2, ...
std::string MakeFile(std::string_view header, size_t data_bytes) {
  std::string file(8, '\0');
  PutAt(file, 0, static_cast<uint64_t>(header.size()));
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

Result<std::vector<StoredTensor>> Parse(const std::string& file) {
  return ParseSafetensors(BytesOf(file), "m.safetensors");
}

std::string ErrorOf(std::string_view header, size_t data_bytes) {
  const auto parsed = Parse(MakeFile(header, data_bytes));
  EXPECT_FALSE(parsed.ok()) << header;
  return parsed.status().message();
}

TEST(Safetensors, ReadsNamesTypesShapesAndData) {
  const std::string file = MakeFile(
      R"({"__metadata__": {"format": "pt"},
          "b": {"dtype": "F32", "shape": [2, 1], "data_offsets": [2, 10]},
          "a": {"dtype": "BF16", "shape": [], "data_offsets": [0, 2]},
          "empty": {"dtype": "I64", "shape": [0, 3], "data_offsets": [10, 10]}}  )",
      10);
  const auto tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  ASSERT_EQ(tensors->size(), 3U);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].dtype, DType::kBF16);
  EXPECT_EQ((*tensors)[0].shape, Shape{});
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ((*tensors)[1].shape, (Shape{2, 1}));
  EXPECT_EQ((*tensors)[1].data.size(), 8U);
  EXPECT_EQ((*tensors)[1].data[0], std::byte{2});
  EXPECT_EQ((*tensors)[2].data.size(), 0U);
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string file =
      MakeFile(R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}})", 12);
  ASSERT_TRUE(Parse(file).ok());
  for (size_t n = 0; n < file.size(); ++n) {
    const auto parsed = Parse(file.substr(0, n));
    ASSERT_FALSE(parsed.ok()) << n;
    EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss) << parsed.status().ToString();
    EXPECT_THAT(parsed.status().message(), HasSubstr("m.safetensors"));
  }
}

TEST(Safetensors, NamesTheTensorWhoseOffsetsAreWrong) {
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})", 8),
              HasSubstr("w: data_offsets: got [0, 8], F32 [3] takes 12 bytes"));
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
                          "v": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}})",
                      6),
              HasSubstr("v: begins at byte 2 of the data, 4 was expected (tensors overlap)"));
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                          "v": {"dtype": "U8", "shape": [2], "data_offsets": [4, 6]}})",
                      6),
              HasSubstr("leave a gap"));
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})", 3),
              HasSubstr("holds 3 bytes of data, its header describes 2"));
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": "U8", "shape": [2], "data_offsets": [9, 7]}})", 9),
              HasSubstr("data_offsets"));
}

TEST(Safetensors, ArithmeticOfShapesCannotOverflow) {
  const char* shapes[] = {"[4294967296, 4294967296]",
                          "[9223372036854775807, 2]",
                          "[4611686018427387904, 4611686018427387904, 0]",
                          "[9223372036854775807]",
                          "[18446744073709551615]",
                          "[-1]",
                          "[1.5]",
                          "[1, 1, 1, 1, 1, 1]"};
  for (const char* shape : shapes)
    EXPECT_THAT(ErrorOf(std::string(R"({"w": {"dtype": "F32", "shape": )") + shape +
                            R"(, "data_offsets": [0, 0]}})",
                        0),
                HasSubstr("shape"));
}

TEST(Safetensors, RefusesWhatTheFormatDoesNotAllow) {
  EXPECT_THAT(ErrorOf("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf("{", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf(R"({"w": 3})", 0), HasSubstr("w: an object is needed"));
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": "F8_E5M2", "shape": [], "data_offsets": [0, 1]}})", 1),
              HasSubstr("w: dtype: got \"F8_E5M2\", one of F32, F16, BF16, F64, I8"));
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": 5, "shape": [], "data_offsets": [0, 1]}})", 1),
              HasSubstr("w: dtype: got 5, one of F32"));
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": "U8", "shape": 1, "data_offsets": [0, 1]}})", 1),
              HasSubstr("w: shape: got 1, a list of whole numbers"));
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, -1]}})", 1),
              HasSubstr("w: data_offsets: got [0,-1], two whole numbers"));
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": "U8", "shape": [1]}})", 1),
              HasSubstr("w: data_offsets: is missing"));
  EXPECT_THAT(ErrorOf(R"({"w": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]},
                          "w": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})",
                      0),
              HasSubstr("'w' comes twice"));
  EXPECT_THAT(ErrorOf("{\"w\": " + std::string(100000, '[') + std::string(100000, ']') + "}", 0),
              HasSubstr("nested deeper"));
  std::string huge(8, '\0');
  PutAt(huge, 0, uint64_t{1} << 62);
  EXPECT_THAT(Parse(huge).status().message(), HasSubstr("at most 100000000 are allowed"));
}

using SafetensorsFileTest = FileTest;

TEST_F(SafetensorsFileTest, WhatIsWrittenIsRead) {
  auto writer = SafetensorsWriter::Create(dir() / "w.safetensors",
                                          {{"z", DType::kF16, {2, 2}}, {"a\"\n", DType::kI8, {3}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append(BytesOf("12345")).ok());
  EXPECT_FALSE(FileExists(dir() / "w.safetensors")) << "visible before it is complete";
  ASSERT_TRUE(writer->Append(BytesOf("678abc")).ok());
  ASSERT_TRUE(writer->Finish().ok());

  const auto set = TensorSet::OpenFile(dir() / "w.safetensors");
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  const StoredTensor* z = set->Find("z");
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->shape, (Shape{2, 2}));
  EXPECT_EQ(std::memcmp(z->data.data(), "12345678", 8), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(z->data.data()) % 64, 0U);
  ASSERT_NE(set->Find("a\"\n"), nullptr);
  EXPECT_EQ(std::memcmp(set->Find("a\"\n")->data.data(), "abc", 3), 0);
  EXPECT_EQ(set->Find("b"), nullptr);
}

TEST_F(SafetensorsFileTest, UnfinishedFilesLeaveNothing) {
  {
    auto writer = SafetensorsWriter::Create(dir() / "w.safetensors", {{"a", DType::kF16, {2}}});
    ASSERT_TRUE(writer.ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir()));
}

}  // namespace
}  // namespace inflight::artifact
