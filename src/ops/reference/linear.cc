// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <cmath>
#include <vector>

#include "ops/reference/element.h"
#include "ops/reference/reference.h"
#include "ops/validate.h"

namespace inflight::ops::reference {
namespace {

// sum_k x[row, k] * w[k]
float Dot(const TensorView& x, int64_t row, const std::vector<float>& w) {
  const auto n = static_cast<int64_t>(w.size());
  float sum = 0;
  for (int64_t k = 0; k < n; ++k)
    sum += Load(x.data, x.dtype, row * n + k) * w[static_cast<size_t>(k)];
  return sum;
}

// Calls use(feature, row of the weight as float32) for every output feature.
template <typename Use>
void ForEachFeature(const Weight& weight, Stream& stream, const Use& use) {
  stream.cpu_pool().ParallelFor(weight.out_features, [&](int64_t n) {
    std::vector<float> w(static_cast<size_t>(weight.in_features));
    UnpackWeightRow(weight, n, w.data());
    use(n, w);
  });
}

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
  ForEachFeature(p.weight, stream, [&](int64_t n, const std::vector<float>& w) {
    for (int64_t t = 0; t < num_tokens; ++t) {
      const float y = Activate(p.activation, Dot(p.x.values, t, w) + BiasAt(p.bias, n));
      Store(p.y.data, p.y.dtype, t * p.weight.out_features + n, y);
    }
  });
  return Status::Ok();
}

Status GatedLinear(const GatedLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t num_tokens = p.x.values.shape[0];
  ForEachFeature(p.gate, stream, [&](int64_t n, const std::vector<float>& gate_row) {
    std::vector<float> up_row(gate_row.size());
    UnpackWeightRow(p.up, n, up_row.data());
    for (int64_t t = 0; t < num_tokens; ++t) {
      const float gate = Dot(p.x.values, t, gate_row) + BiasAt(p.gate_bias, n);
      const float up = Dot(p.x.values, t, up_row) + BiasAt(p.up_bias, n);
      Store(p.y.data, p.y.dtype, t * p.gate.out_features + n, Activate(p.activation, gate) * up);
    }
  });
  return Status::Ok();
}

Status LmHead(const LmHeadParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t num_rows = p.rows.num_elements();
  ForEachFeature(p.weight, stream, [&](int64_t n, const std::vector<float>& w) {
    for (int64_t r = 0; r < num_rows; ++r)
      p.logits.as<float>()[r * p.weight.out_features + n] =
          Dot(p.x.values, p.rows.as<const int32_t>()[r], w) + BiasAt(p.bias, n);
  });
  return Status::Ok();
}

}  // namespace inflight::ops::reference
