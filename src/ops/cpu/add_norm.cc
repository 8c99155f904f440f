// SPDX-License-Identifier: Apache-2.0
#include "ops/add_norm.h"

#include "base/status_macros.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/launch.h"
#include "ops/validate.h"

namespace inflight::ops::cpu {

Status AddNorm(const KernelSet& kernels, const AddNormParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t hidden_size = p.residual.shape[1];
  const int64_t num_tokens = p.residual.shape[0];
  const auto run = [&](int64_t t) {
    kernels.norm({.residual = p.residual.as<float>() + t * hidden_size,
                  .delta = p.delta.empty() ? nullptr : p.delta.as<const float>() + t * hidden_size,
                  .delta_factor = p.delta_factor,
                  .weight = p.norm.weight.as<const float>(),
                  .bias = p.norm.bias.as<const float>(),
                  .center = p.norm.kind == NormKind::kLayerNorm,
                  .eps = p.norm.eps,
                  .size = hidden_size,
                  .y_element = ElementOf(p.y.dtype),
                  .y = RowOf(p.y, t)});
  };
  stream.cpu_pool().ParallelFor(num_tokens, run, ThreadsFor(num_tokens * hidden_size));
  return Status::Ok();
}

}  // namespace inflight::ops::cpu
