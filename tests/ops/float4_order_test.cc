// SPDX-License-Identifier: Apache-2.0
// Words of float4 in the order of tensor cores: every code in every place, as both dtypes have it.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/tensor_core_order.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

template <typename Half>
float Number(uint32_t halves, int which) {
  return LoadAs<Half>(&halves, which).ToFloat();
}

TEST(Float4Order, EveryCodeComesBackInItsPlace) {
  for (int at = 0; at < kFloat4Unit; ++at)
    for (uint32_t code = 0; code < 16; ++code)
      for (const uint32_t others : {0x00000000U, 0xffffffffU, 0x9a3c5be1U}) {
        uint32_t words[4] = {others, others, others, others};
        uint32_t& word = words[at / 8];
        word = (word & ~(0xfU << (at % 8 * 4))) | code << (at % 8 * 4);
        for (int q = 0; q < 4; ++q) {
          const uint32_t ordered = OrderedFloat4(words, q);
          for (int i = 0; i < 4; ++i)
            for (int half = 0; half < 2; ++half) {
              const int element = 8 * i + 2 * q + half;
              const uint32_t there = words[element / 8] >> (element % 8 * 4) & 0xfU;
              const float want = static_cast<float>(kTwiceE2M1[there]) / 2;
              const float bf16 = Number<BFloat16>(HalvesOfFloat4<false>(ordered, i), half);
              const float f16 = Number<Float16>(HalvesOfFloat4<true>(ordered, i), half);
              ASSERT_EQ(std::ldexp(bf16, 126), want) << at << " " << code << " " << element;
              ASSERT_EQ(std::ldexp(f16, 14), want) << at << " " << code << " " << element;
              ASSERT_EQ(std::signbit(bf16), there >= 8) << at << " " << code << " " << element;
              ASSERT_EQ(std::signbit(f16), there >= 8) << at << " " << code << " " << element;
            }
        }
      }
}

}  // namespace
}  // namespace inflight::ops
