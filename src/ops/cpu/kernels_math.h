// SPDX-License-Identifier: Apache-2.0
// Exponential and the activation functions on Vec. Included once by each instruction set's
// translation unit; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

// e^x = 2^n (1 + p): n ln 2 is next to x, and p is e^r - 1 of the rest r, |r| <= ln 2 / 2, by the
// Taylor series to r^7, remainder 5e-9. x in [-87.3, 88].
struct ExpParts {
  Vec power;  // 2^n
  Vec p;
};
INFLIGHT_INLINE ExpParts SplitExp(Vec x) {
  const Vec n = Round(Mul(x, Set1(1.44269504F)));
  Vec r = MulAdd(n, Set1(-0.693359375F), x);  // ln 2 in two parts, the first exact in 10 bits
  r = MulAdd(n, Set1(2.12194440e-4F), r);
  Vec p = Set1(1.0F / 5040);
  p = MulAdd(p, r, Set1(1.0F / 720));
  p = MulAdd(p, r, Set1(1.0F / 120));
  p = MulAdd(p, r, Set1(1.0F / 24));
  p = MulAdd(p, r, Set1(1.0F / 6));
  p = MulAdd(p, r, Set1(0.5F));
  return {PowerOf2(n), MulAdd(p, Mul(r, r), r)};
}

// e^x to about 1 ulp; 2^-126 below -87.3, 2^127 above 88; NaN stays NaN.
INFLIGHT_INLINE Vec Exp(Vec x) {
  const ExpParts e = SplitExp(Max(Set1(-87.3F), Min(Set1(88.0F), x)));
  return Mul(Add(e.p, Set1(1.0F)), e.power);
}

// tanh x = m / (m + 2), m = e^2x - 1 without cancellation: to a few ulp, also near 0. NaN stays
// NaN.
INFLIGHT_INLINE Vec Tanh(Vec x) {
  const ExpParts e = SplitExp(Max(Set1(-40.0F), Min(Set1(40.0F), Add(x, x))));
  const Vec m = MulAdd(e.power, e.p, Sub(e.power, Set1(1.0F)));
  return Div(m, Add(m, Set1(2.0F)));
}

// 1 / (1 + e^-x)
INFLIGHT_INLINE Vec Sigmoid(Vec x) { return Div(Set1(1.0F), Add(Set1(1.0F), Exp(Sub(Zero(), x)))); }

// P(Z > x) of a standard normal Z for x >= 0, to 1e-7: half of erfc(x / sqrt(2)) by Abramowitz and
// Stegun, Handbook of Mathematical Functions, 7.1.26.
INFLIGHT_INLINE Vec NormalTail(Vec x) {
  const Vec z = Mul(x, Set1(0.70710678F));
  const Vec t = Div(Set1(1.0F), MulAdd(z, Set1(0.3275911F), Set1(1.0F)));
  Vec p = Set1(1.061405429F);
  p = MulAdd(p, t, Set1(-1.453152027F));
  p = MulAdd(p, t, Set1(1.421413741F));
  p = MulAdd(p, t, Set1(-0.284496736F));
  p = MulAdd(p, t, Set1(0.254829592F));
  return Mul(Mul(Set1(0.5F), Mul(p, t)), Exp(Sub(Zero(), Mul(z, z))));
}

// The functions of linear.h. GELU of the tanh form by 0.5 (1 + tanh u) = sigmoid(2u), which loses
// no digits.
INFLIGHT_INLINE Vec Apply(Function function, Vec x) {
  switch (function) {
    case Function::kNone:
      return x;
    case Function::kRelu:
      return Max(Zero(), x);
    case Function::kGelu: {  // x P(Z <= x) = max(x, 0) - |x| P(Z > |x|)
      const Vec magnitude = Max(x, Sub(Zero(), x));
      return Sub(Max(Zero(), x), Mul(magnitude, NormalTail(magnitude)));
    }
    case Function::kGeluTanh: {
      const Vec cube = Mul(Mul(x, x), x);
      const Vec u = MulAdd(cube, Set1(0.044715F), x);
      return Mul(x, Sigmoid(Mul(u, Set1(2 * 0.7978845608F))));
    }
    case Function::kSilu:
      return Mul(x, Sigmoid(x));
  }
  return x;
}

void CapValues(const CapArgs& a) {
  const bool has_cap = a.softcap > 0;
  const Vec scale = Set1(has_cap ? a.scale / a.softcap : a.scale);
  const Vec cap = Set1(a.softcap);
  for (int64_t i = 0; i < a.size; i += 16) {
    const int n = a.size - i < 16 ? static_cast<int>(a.size - i) : 16;
    const Vec v = Mul(LoadFirst(a.values + i, n), scale);
    StoreFirst(a.values + i, has_cap ? Mul(cap, Tanh(v)) : v, n);
  }
}

// The first n of sixteen lanes to an array of `element`s, from index i on.
INFLIGHT_INLINE void StoreAs(Element element, void* y, int64_t i, Vec v, int n) {
  if (element == Element::kF32) {
    float* out = static_cast<float*>(y) + i;
    if (n == 16)
      Store(out, v);
    else
      StoreFirst(out, v, n);
    return;
  }
  uint16_t* out = static_cast<uint16_t*>(y) + i;
  uint16_t lanes[16];
  uint16_t* to = n == 16 ? out : lanes;
  if (element == Element::kBf16)
    StoreBf16(to, v);
  else
    StoreF16(to, v);
  if (n < 16)
    for (int lane = 0; lane < n; ++lane) out[lane] = lanes[lane];
}

}  // namespace
}  // namespace inflight::ops::cpu
