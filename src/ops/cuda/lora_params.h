// SPDX-License-Identifier: Apache-2.0
// What kernels of adapters are told of a linear (LoraAddParams), whatever its dtype.
#pragma once

#include "ops/cuda/kernels.h"
#include "ops/lora.h"
#include "tensor/tensor_view.h"

namespace inflight::ops::cuda {

// Of a linear of x [num_tokens, in_features], or of `num_sites` side by side, whose product is put
// into y [num_tokens, num_sites * out_features]: adapters add to it there. `lora` has a batch.
inline LoraAddParams LoraParamsOf(const LoraTerm& lora, LoraSite first_site, int num_sites,
                                  const TensorView& x, const TensorView& y) {
  return {.lora = lora.batch->device,
          .layer = lora.layer,
          .first_site = first_site,
          .num_sites = num_sites,
          .dtype = x.dtype,
          .x = x.data,
          .in_features = x.shape[1],
          .z = y.data,
          .y = y.data,
          .y_stride = y.shape[1],
          .out_features = y.shape[1] / num_sites,
          .num_tokens = static_cast<int>(x.shape[0])};
}

}  // namespace inflight::ops::cuda
