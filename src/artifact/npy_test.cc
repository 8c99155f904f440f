// SPDX-License-Identifier: Apache-2.0
#include "artifact/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace inflight::artifact {
namespace {

using ::testing::HasSubstr;

// As numpy writes it: `header` filled up with blanks to a multiple of 64 bytes.
std::string NpyFile(std::string header, const std::string& data, char major = 1) {
  std::string file = "\x93NUMPY";
  file += major;
  file += '\0';
  const size_t length_bytes = major == 1 ? 2 : 4;
  while ((file.size() + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  for (size_t i = 0; i < length_bytes; ++i)
    file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + data;
}

Result<StoredTensor> ParseFile(const std::string& file) {
  return ParseNpy(std::as_bytes(std::span(file)), "m.npy");
}

constexpr char kNpyHeader[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

TEST(Npy, ReadsTypeShapeAndData) {
  for (const char major : {1, 2, 3}) {
    const std::string file = NpyFile(kNpyHeader, std::string(24, 'x'), major);
    const auto tensor = ParseFile(file);
    ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
    EXPECT_EQ(tensor->dtype, DType::kF32);
    EXPECT_EQ(tensor->shape, (Shape{2, 3}));
    EXPECT_EQ(tensor->data.size(), 24U);
    EXPECT_EQ(tensor->data.front(), std::byte{'x'});
  }
  const std::string vector =
      NpyFile("{'descr': '<f2', 'fortran_order': False, 'shape': (5,), }", std::string(10, '\0'));
  EXPECT_EQ(ParseFile(vector)->shape, Shape{5});
  EXPECT_EQ(ParseFile(vector)->dtype, DType::kF16);
}

TEST(Npy, EveryTruncationIsAnError) {
  const std::string file = NpyFile(kNpyHeader, std::string(24, 'x'));
  for (size_t n = 0; n < file.size(); ++n) {
    const Status status = ParseFile(file.substr(0, n)).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << n << ": " << status.ToString();
  }
}

TEST(Npy, NamesWhatItDoesNotRead) {
  const auto error = [](const std::string& header) {
    return ParseFile(NpyFile(header, std::string(24, 'x'))).status().message();
  };
  EXPECT_THAT(error("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }"),
              HasSubstr("m.npy: descr: got '>f4'"));
  EXPECT_THAT(error("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }"),
              HasSubstr("fortran_order"));
  EXPECT_THAT(error("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3), }"),
              HasSubstr("shape: got (2, -3)"));
  EXPECT_THAT(error("{'descr': '<f4', 'fortran_order': False, 'shape': (), }"),
              HasSubstr("shape: got ()"));
  EXPECT_THAT(error("{'descr': '<f4', 'shape': (2, 3), }"), HasSubstr("lacks"));
  EXPECT_THAT(error("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"),
              HasSubstr("more bytes"));
  EXPECT_THAT(ParseFile("PK\x03\x04 and so on").status().message(), HasSubstr("is no .npy file"));
}

}  // namespace
}  // namespace inflight::artifact
