// SPDX-License-Identifier: Apache-2.0
// What the cases of operators are filled with: one sequence of numbers, however many threads write
// it.
#include "support.h"

#include <gtest/gtest.h>

namespace inflight::ops {
namespace {

TEST(RandomTest, SkippedNumbersAreThoseThatWouldHaveBeenDrawn) {
  Random drawn(7);
  Random skipped(7);
  for (int i = 0; i < 1000; ++i) drawn.Next();
  skipped.Skip(1000);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(skipped.Next(), drawn.Next());
}

TEST(TensorTest, PartsOfALargeOneAreOneSequence) {
  constexpr int64_t kSize = (int64_t{3} << 20) + 5;
  const std::vector<float> got = Tensor::Random(DType::kF32, {kSize}, 9).ToFloats();
  ASSERT_EQ(got.size(), static_cast<size_t>(kSize));
  Random random(9);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], random.Uniform()) << i;
  EXPECT_EQ(Tensor::Of(DType::kF32, {kSize}, got).ToFloats(), got);
}

TEST(TensorTest, EveryPartIsRunOnce) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1} << 20, (int64_t{2} << 20) + 1}) {
    std::vector<unsigned char> runs(static_cast<size_t>(n), 0);
    ForParts(n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
    });
    EXPECT_EQ(runs, std::vector<unsigned char>(static_cast<size_t>(n), 1)) << n;
  }
}

}  // namespace
}  // namespace inflight::ops
