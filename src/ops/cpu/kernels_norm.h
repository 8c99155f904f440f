// SPDX-License-Identifier: Apache-2.0
// Residual addition and norm of one token. Included once by each instruction set's translation
// unit; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

INFLIGHT_INLINE int LanesAt(int64_t i, int64_t size) {
  return size - i < 16 ? static_cast<int>(size - i) : 16;
}

// sum_i of each(i, number of lanes), sixteen i at a time.
template <typename Each>
INFLIGHT_INLINE float SumOver(int64_t size, const Each& each) {
  Vec sum = Zero();
  for (int64_t i = 0; i < size; i += 16) sum = Add(sum, each(i, LanesAt(i, size)));
  return Sum(sum);
}

void NormToken(const NormArgs& a) {
  float* x = a.residual;
  if (a.delta != nullptr) {
    const Vec factor = Set1(a.delta_factor);
    for (int64_t i = 0; i < a.size; i += 16) {
      const int n = LanesAt(i, a.size);
      StoreFirst(x + i, MulAdd(LoadFirst(a.delta + i, n), factor, LoadFirst(x + i, n)), n);
    }
  }
  if (a.weight == nullptr) {
    for (int64_t i = 0; i < a.size; i += 16) {
      const int n = LanesAt(i, a.size);
      StoreAs(a.y_element, a.y, i, LoadFirst(x + i, n), n);
    }
    return;
  }
  const auto count = static_cast<float>(a.size);
  float mean = 0;
  if (a.center)
    mean = SumOver(a.size, [&](int64_t i, int n) { return LoadFirst(x + i, n); }) / count;
  const Vec center = Set1(mean);
  const float mean_square = SumOver(a.size,
                                    [&](int64_t i, int n) {
                                      const Vec d =
                                          KeepFirst(Sub(LoadFirst(x + i, n), center), n, Zero());
                                      return Mul(d, d);
                                    }) /
                            count;
  const Vec scale = Set1(1.0F / __builtin_sqrtf(mean_square + a.eps));
  for (int64_t i = 0; i < a.size; i += 16) {
    const int n = LanesAt(i, a.size);
    Vec y = Mul(Mul(Sub(LoadFirst(x + i, n), center), scale), LoadFirst(a.weight + i, n));
    if (a.bias != nullptr) y = Add(y, LoadFirst(a.bias + i, n));
    StoreAs(a.y_element, a.y, i, y, n);
  }
}

}  // namespace
}  // namespace inflight::ops::cpu
