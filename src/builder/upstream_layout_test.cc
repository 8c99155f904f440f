// SPDX-License-Identifier: Apache-2.0
// tests/tools/test_convert_upstream.py has whole files beside numpy's.
#include "builder/upstream_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "builder/builder.h"
#include "builder/test_models.h"

namespace inflight::builder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(UpstreamLayoutTest, BytesOfRowPairsHaveTwoRowsOfAColumn) {
  // Rows 1 -1 2 -8, 7 0 3 1, 5 5 5 5 and -2 -2 -2 -2, the first column in the low bits.
  const uint8_t rows[] = {0xF1, 0x82, 0x07, 0x13, 0x55, 0x55, 0xEE, 0xEE};
  CpuPool pool(2);
  const std::vector<std::byte> pairs = RowPairsOf(std::as_bytes(std::span(rows)), 4, pool);
  std::vector<int> bytes;
  for (const std::byte pair : pairs) bytes.push_back(std::to_integer<int>(pair));
  EXPECT_THAT(bytes, ElementsAre(0x71, 0x0F, 0x32, 0x18, 0xE5, 0xE5, 0xE5, 0xE5));
}

class UpstreamConvertTest : public testing::Test {
 protected:
  UpstreamConvertTest()
      : dir_(std::filesystem::path(testing::TempDir()) /
             ("upstream_layout_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(dir_);
  }
  ~UpstreamConvertTest() override { std::filesystem::remove_all(dir_); }

  const std::filesystem::path dir_;
};

// Rounding them anew gives what the checkpoint of this project holds.
TEST_F(UpstreamConvertTest, FloatsOfWeightOnlyOpenAsTheCodesDo) {
  TestModel model = TinyLlama(32);
  model.is_wavy = true;
  ASSERT_NO_FATAL_FAILURE(model.Write(dir_ / "hf"));
  ConvertOptions options = {.model_dir = dir_ / "hf",
                            .output_dir = dir_ / "codes",
                            .dtype = "bfloat16",
                            .quant_algo = model::QuantAlgo::kW8A16};
  ASSERT_EQ(Convert(options), Status::Ok());
  options.output_dir = dir_ / "floats";
  options.upstream_layout = true;
  ASSERT_EQ(Convert(options), Status::Ok());
  const auto codes = OpenWeightSource(dir_ / "codes", {});
  const auto floats = OpenWeightSource(dir_ / "floats", {});
  ASSERT_TRUE(codes.ok() && floats.ok()) << codes.status().ToString() << floats.status().ToString();
  EXPECT_EQ((*floats)->config.quant_algo, model::QuantAlgo::kW8A16);
  const std::string name = "transformer.layers.0.mlp.proj.weight";
  EXPECT_TRUE(IsQuantized((*codes)->recipes.at(name)));
  EXPECT_FALSE(IsQuantized((*floats)->recipes.at(name)));
}

TEST_F(UpstreamConvertTest, GroupsOfInt8AreRefusedByName) {
  ASSERT_NO_FATAL_FAILURE(TinyLlama(32).Write(dir_ / "hf"));
  const Status refused = Convert({.model_dir = dir_ / "hf",
                                  .output_dir = dir_ / "no",
                                  .quant_algo = model::QuantAlgo::kW8A16Gptq,
                                  .group_size = 16,
                                  .upstream_layout = true});
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(refused.message(), HasSubstr("upstream_layout: got true, int8 weights in groups"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "no"));
}

}  // namespace
}  // namespace inflight::builder
