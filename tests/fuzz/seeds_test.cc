// SPDX-License-Identifier: Apache-2.0
// The committed seeds of one fuzzer, each once through its target: what a fuzzer found stays found,
// also where none is built.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::filesystem::path> Seeds() {
  std::vector<std::filesystem::path> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(INFLIGHT_SEEDS)) {
    seeds.push_back(entry.path());
  }
  std::ranges::sort(seeds);
  return seeds;
}

class SeedsTest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(SeedsTest, RunsThroughTheTarget) {
  std::ifstream file(GetParam(), std::ios::binary);
  ASSERT_TRUE(file.is_open());
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(bytes.empty());
  EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
            0);
}

INSTANTIATE_TEST_SUITE_P(Committed, SeedsTest, testing::ValuesIn(Seeds()));

}  // namespace
