// SPDX-License-Identifier: Apache-2.0
// The linears of Llama-3-8B for few tokens: the streaming kernels beside the library.
#include <fmt/format.h>

#include "cases.h"
#include "llama_3_8b.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/streamed.h"

namespace inflight::bench {
namespace {

using ops::cuda::GemmParams;

void LayerCases(CudaBench& bench, const LinearLayer& layer, DType dtype) {
  const bool wants_mma = bench.Wants("skinny_mma");
  const bool wants_streamed = bench.Wants("streamed");
  const bool wants_library = bench.Wants("cublaslt");
  if (!wants_mma && !wants_streamed && !wants_library) return;
  const Rotation w(bench.device(), dtype, {layer.n, layer.k});
  for (const int64_t m : {1, 2, 4, 8, 16, 32, 64}) {
    const Rotation x(bench.device(), dtype, {m, layer.k});
    const Rotation y(bench.device(), DType::kBF16, {m, layer.n});
    const auto params = [&](int call) {
      return GemmParams{.x = x.At(call).data,
                        .w = w.At(call).data,
                        .y = y.At(call).data,
                        .dtype = dtype,
                        .m = m,
                        .n = layer.n,
                        .k = layer.k};
    };
    TimedCase timed = {.shape = fmt::format("{} {}x{}x{}", layer.name, m, layer.n, layer.k),
                       .dtype = dtype,
                       .bytes = static_cast<double>(layer.n * layer.k + m * layer.k) *
                                    static_cast<double>(SizeOf(dtype)) +
                                static_cast<double>(m * layer.n) * 2,
                       .flop = 2.0 * static_cast<double>(m * layer.n * layer.k)};
    if (wants_mma && SkinnyMmaCanRun(params(0))) {
      timed.kernel = "skinny_mma";
      timed.launch = [&](int call) { return SkinnyMma(params(call), bench.stream()); };
      bench.Time(timed);
    }
    if (wants_streamed && StreamedCanRun(params(0))) {
      timed.kernel = "streamed";
      timed.launch = [&](int call) { return Streamed(params(call), bench.stream()); };
      bench.Time(timed);
    }
    if (wants_library) {
      timed.kernel = "cublaslt";
      timed.launch = [&](int call) { return GemmCublasLt(params(call), bench.stream()); };
      bench.Time(timed);
    }
  }
}

}  // namespace

void LinearCases(CudaBench& bench) {
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3})
    for (const LinearLayer& layer : kLinearLayers) LayerCases(bench, layer, dtype);
}

}  // namespace inflight::bench
