// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "base/status_macros.h"
#include "ops/reference/lora.h"
#include "ops/reference/reference.h"
#include "ops/reference/weight_element.h"
#include "ops/validate.h"
#include "tensor/element.h"

namespace inflight::ops::reference {
namespace {

// sum_k x[row, k] * w[k]
float Dot(const TensorView& x, int64_t row, const std::vector<float>& w) {
  const auto n = static_cast<int64_t>(w.size());
  float sum = 0;
  for (int64_t k = 0; k < n; ++k)
    sum += LoadFloat(x.data, x.dtype, row * n + k) * w[static_cast<size_t>(k)];
  return sum;
}

// One token's activations as int8, with a scale for each group (formula: ops/linear.h).
struct RoundedRow {
  std::vector<int8_t> q;
  std::vector<float> scales;
};

// Elements [first, first + q.size()) of a row of x in the weight's order; returns their scale.
float Round(const TensorView& x, int64_t row, const int32_t* order, int64_t first,
            std::span<int8_t> q) {
  const auto at = [&](size_t k) {
    const int64_t place = first + static_cast<int64_t>(k);
    const int64_t column = order == nullptr ? place : order[place];
    return column == kNoColumn ? 0.0F : LoadFloat(x.data, x.dtype, row * x.shape[1] + column);
  };
  float largest = 0;
  for (size_t k = 0; k < q.size(); ++k) {
    const float magnitude = std::abs(at(k));
    if (!std::isfinite(magnitude)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, magnitude);
  }
  const float inverse = 127.0F / largest;
  if (!std::isfinite(inverse)) return 0;
  for (size_t k = 0; k < q.size(); ++k) q[k] = static_cast<int8_t>(std::nearbyint(at(k) * inverse));
  return largest / 127.0F;
}

RoundedRow Round(const TensorView& x, int64_t row, const Weight& weight) {
  const int64_t num_groups = weight.num_groups();
  RoundedRow out = {.q = std::vector<int8_t>(static_cast<size_t>(weight.in_features))};
  const int64_t size = weight.in_features / num_groups;
  for (int64_t g = 0; g < num_groups; ++g)
    out.scales.push_back(
        Round(x, row, weight.order, g * size,
              std::span(out.q).subspan(static_cast<size_t>(g * size), static_cast<size_t>(size))));
  return out;
}

// x W^T for one weight: sum(token, feature), from which the linears make their results. Rows of x
// are rounded once, where the weight is of integers; rows of the weight are unpacked once a
// feature.
class Sums {
 public:
  Sums(const TensorView& x, const Weight& weight) : x_(x), weight_(weight) {
    if (!IsInteger(weight.dtype)) return;
    for (int64_t t = 0; t < x.shape[0]; ++t) rounded_.push_back(Round(x, t, weight));
  }

  // Calls use(sum) with sum(t) = x[t] . weight[n].
  template <typename Use>
  void WithFeature(int64_t n, const Use& use) const {
    const auto size = static_cast<size_t>(weight_.in_features);
    if (IsInteger(weight_.dtype)) {
      std::vector<int8_t> w(size);
      for (size_t k = 0; k < size; ++k) w[k] = IntegerAt(weight_, n, static_cast<int64_t>(k));
      use([&](int64_t t) {
        const RoundedRow& row = rounded_[static_cast<size_t>(t)];
        return weight_.group_size > 0 ? GroupedDot(row, w, n) : IntDot(row, w, weight_.scales[n]);
      });
      return;
    }
    std::vector<float> w(size);
    for (size_t k = 0; k < size; ++k) w[k] = ElementAt(weight_, n, static_cast<int64_t>(k));
    use([&](int64_t t) { return Dot(x_, t, w); });
  }

 private:
  static float IntDot(const RoundedRow& x, const std::vector<int8_t>& w, float w_scale) {
    int32_t sum = 0;
    for (size_t k = 0; k < w.size(); ++k) sum += int32_t{x.q[k]} * w[k];
    return static_cast<float>(sum) * w_scale * x.scales[0];
  }

  float GroupedDot(const RoundedRow& x, const std::vector<int8_t>& w, int64_t n) const {
    const auto size = static_cast<size_t>(weight_.group_size);
    float result = 0;
    for (size_t g = 0; g < x.scales.size(); ++g) {
      int32_t sum = 0;
      int32_t x_sum = 0;
      for (size_t k = g * size; k < (g + 1) * size; ++k) {
        sum += int32_t{x.q[k]} * w[k];
        x_sum += x.q[k];
      }
      const int64_t at = ScaleIndex(weight_, n, static_cast<int64_t>(g * size));
      result = std::fma(static_cast<float>(sum), x.scales[g] * ScaleAt(weight_, at), result);
      if (weight_.has_offsets())
        result = std::fma(static_cast<float>(x_sum) * x.scales[g], OffsetAt(weight_, at), result);
    }
    return result;
  }

  const TensorView& x_;
  const Weight& weight_;
  std::vector<RoundedRow> rounded_;
};

float Cap(float x, float softcap) { return softcap == 0 ? x : softcap * std::tanh(x / softcap); }

float BiasAt(const TensorView& bias, int64_t n) {
  return bias.empty() ? 0.0F : bias.as<const float>()[n];
}

}  // namespace

float Activate(ActivationKind kind, float x) {
  constexpr float kSqrt2OverPi = 0.7978845608F;
  switch (kind) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return x > 0 ? x : 0.0F;
    case ActivationKind::kGelu:
      return static_cast<float>(0.5 * x * std::erfc(-x / std::numbers::sqrt2));
    case ActivationKind::kGeluTanh:
      return 0.5F * x * (1.0F + std::tanh(kSqrt2OverPi * (x + 0.044715F * x * x * x)));
    case ActivationKind::kSilu:
      return x / (1.0F + std::exp(-x));
  }
  return x;
}

Status Linear(const LinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t num_tokens = p.x.values.shape[0];
  const Sums sums(p.x.values, p.weight);
  const LoraSums lora(p.x.values, p.lora, p.site);
  stream.cpu_pool().ParallelFor(p.weight.out_features, [&](int64_t n) {
    sums.WithFeature(n, [&](const auto& sum) {
      for (int64_t t = 0; t < num_tokens; ++t)
        StoreFloat(p.y.data, p.y.dtype, t * p.weight.out_features + n,
                   Activate(p.activation, lora.Add(sum(t), t, n) + BiasAt(p.bias, n)));
    });
  });
  return Status::Ok();
}

Status GatedLinear(const GatedLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t num_tokens = p.x.values.shape[0];
  const Sums gates(p.x.values, p.gate);
  const Sums ups(p.x.values, p.up);
  const LoraSums gate_lora(p.x.values, p.lora, LoraSite::kFc);
  const LoraSums up_lora(p.x.values, p.lora, LoraSite::kGate);
  stream.cpu_pool().ParallelFor(p.gate.out_features, [&](int64_t n) {
    gates.WithFeature(n, [&](const auto& gate_sum) {
      ups.WithFeature(n, [&](const auto& up_sum) {
        for (int64_t t = 0; t < num_tokens; ++t) {
          const float gate = gate_lora.Add(gate_sum(t), t, n) + BiasAt(p.gate_bias, n);
          const float up = up_lora.Add(up_sum(t), t, n) + BiasAt(p.up_bias, n);
          StoreFloat(p.y.data, p.y.dtype, t * p.gate.out_features + n,
                     Activate(p.activation, gate) * up);
        }
      });
    });
  });
  return Status::Ok();
}

Status LmHead(const LmHeadParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t num_rows = p.rows.num_elements();
  const Sums sums(p.x.values, p.weight);
  stream.cpu_pool().ParallelFor(p.weight.out_features, [&](int64_t n) {
    sums.WithFeature(n, [&](const auto& sum) {
      for (int64_t r = 0; r < num_rows; ++r)
        p.logits.as<float>()[r * p.weight.out_features + n] =
            Cap(p.scale * (sum(p.rows.as<const int32_t>()[r]) + BiasAt(p.bias, n)), p.softcap);
    });
  });
  return Status::Ok();
}

}  // namespace inflight::ops::reference
