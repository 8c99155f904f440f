// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/float32/kernels.h"

namespace inflight::ops::cuda::float32 {

OpTable Table() {
  return {.embed = Embed,
          .add_norm = AddNorm,
          .qkv_rope_kv = QkvRopeKv,
          .attention = Attention,
          .linear = Linear,
          .gated_linear = GatedLinear,
          .lm_head = LmHead,
          .route = Route,
          .expert_gated_linear = ExpertGatedLinear,
          .expert_linear = ExpertLinear,
          .name = "cuda"};
}

}  // namespace inflight::ops::cuda::float32
