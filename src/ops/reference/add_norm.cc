// SPDX-License-Identifier: Apache-2.0
#include "ops/add_norm.h"

#include <cmath>

#include "base/status_macros.h"
#include "ops/reference/reference.h"
#include "ops/validate.h"
#include "tensor/element.h"

namespace inflight::ops::reference {
namespace {

// mean_i((x[i] - center)^2)
float MeanSquare(const float* x, int64_t n, float center) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (x[i] - center) * (x[i] - center);
  return sum / static_cast<float>(n);
}

float Mean(const float* x, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum / static_cast<float>(n);
}

}  // namespace

Status AddNorm(const AddNormParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t hidden_size = p.residual.shape[1];
  const auto* weight = p.norm.weight.as<const float>();
  const auto* bias = p.norm.bias.as<const float>();
  stream.cpu_pool().ParallelFor(p.residual.shape[0], [&](int64_t t) {
    float* x = p.residual.as<float>() + t * hidden_size;
    if (!p.delta.empty()) {
      const float* delta = p.delta.as<const float>() + t * hidden_size;
      for (int64_t i = 0; i < hidden_size; ++i) x[i] += p.delta_factor * delta[i];
    }
    if (p.norm.kind == NormKind::kNone) {
      for (int64_t i = 0; i < hidden_size; ++i)
        StoreFloat(p.y.data, p.y.dtype, t * hidden_size + i, x[i]);
      return;
    }
    const float center = p.norm.kind == NormKind::kLayerNorm ? Mean(x, hidden_size) : 0.0F;
    const float scale = 1.0F / std::sqrt(MeanSquare(x, hidden_size, center) + p.norm.eps);
    for (int64_t i = 0; i < hidden_size; ++i) {
      const float y = (x[i] - center) * scale * weight[i] + (bias != nullptr ? bias[i] : 0.0F);
      StoreFloat(p.y.data, p.y.dtype, t * hidden_size + i, y);
    }
  });
  return Status::Ok();
}

}  // namespace inflight::ops::reference
