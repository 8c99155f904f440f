// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cases.h"
#include "ops/cuda/kernels.h"

namespace inflight::bench {
namespace {

using ops::cuda::CudaStream;

constexpr int64_t kHidden = 4096;

void AddNormCases(CudaBench& bench) {
  if (!bench.Wants("add_norm")) return;
  for (const int64_t tokens : {1, 8, 64, 256, 2048, 8192}) {
    const Rotation residual(bench.device(), DType::kBF16, {tokens, kHidden});
    const Rotation delta(bench.device(), DType::kBF16, {tokens, kHidden});
    const Rotation y(bench.device(), DType::kBF16, {tokens, kHidden});
    const Rotation weight(bench.device(), DType::kF32, {kHidden});
    bench.Time({.kernel = "add_norm",
                .shape = fmt::format("{}x{}", tokens, kHidden),
                .dtype = DType::kBF16,
                .bytes = static_cast<double>(tokens) * kHidden * 4 * 2,
                .launch = [&](int call) {
                  return ops::cuda::AddNorm({.residual = residual.At(call),
                                             .delta = delta.At(call),
                                             .norm = {.weight = weight.At(call)},
                                             .y = y.At(call)},
                                            bench.stream());
                }});
  }
}

}  // namespace

void ElementwiseCases(CudaBench& bench) { AddNormCases(bench); }

}  // namespace inflight::bench
