// SPDX-License-Identifier: Apache-2.0
// The committed seeds of one fuzzer, each once through its target: what a fuzzer found stays found,
// also where there are no fuzzers.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// Of the fuzzer whose target is linked in: this binary is its `fuzz_NAME_test`.
std::filesystem::path Folder() {
  std::string name = std::filesystem::read_symlink("/proc/self/exe").filename().string();
  name.erase(name.rfind("_test"));
  name.erase(0, std::string("fuzz_").size());
  return std::filesystem::path(INFLIGHT_SEEDS) / name;
}

std::vector<std::filesystem::path> Seeds() {
  std::vector<std::filesystem::path> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
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
