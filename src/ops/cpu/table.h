// SPDX-License-Identifier: Apache-2.0
// The table of operators of one instruction set: the launchers of cpu.h with its kernels.
#pragma once

#include "ops/cpu/cpu.h"

namespace inflight::ops::cpu {

template <const KernelSet& kernels>
OpTable Table() {
  return {
      .embed = Embed,
      .add_norm = [](const AddNormParams& p, Stream& s) { return AddNorm(kernels, p, s); },
      .qkv_rope_kv = [](const QkvRopeKvParams& p, Stream& s) { return QkvRopeKv(kernels, p, s); },
      .attention = [](const AttentionParams& p, Stream& s) { return Attention(kernels, p, s); },
      .linear = [](const LinearParams& p, Stream& s) { return Linear(kernels, p, s); },
      .gated_linear = [](const GatedLinearParams& p,
                         Stream& s) { return GatedLinear(kernels, p, s); },
      .lm_head = [](const LmHeadParams& p, Stream& s) { return LmHead(kernels, p, s); },
      .route = Route,
      .expert_gated_linear = [](const ExpertGatedLinearParams& p,
                                Stream& s) { return ExpertGatedLinear(kernels, p, s); },
      .expert_linear = [](const ExpertLinearParams& p,
                          Stream& s) { return ExpertLinear(kernels, p, s); },
      .name = kernels.name};
}

}  // namespace inflight::ops::cpu
