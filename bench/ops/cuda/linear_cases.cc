// SPDX-License-Identifier: Apache-2.0
// The linears of Llama-3-8B for few tokens: the streaming kernels beside the library, and those
// that read int8 and int4 beside bfloat16, by the cut that operators take and by each of the
// others.
#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "cases.h"
#include "llama_3_8b.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/skinny_integers.h"
#include "ops/cuda/streamed.h"
#include "ops/cuda/streamed_integers.h"

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

struct Form {
  const char* name;
  DType dtype;
  int64_t group_size;
  bool has_offsets = false;
};

// How a product of integer weights is computed.
struct Way {
  std::string kernel;
  int64_t min_tokens, max_tokens;
  std::function<Status(const GemmParams&, const ops::Weight&, ops::cuda::CudaStream&)> run;
};

std::vector<Way> WaysOf(const Form& form, void* widened) {
  if (!ops::IsInteger(form.dtype))
    return {{"skinny_integers", 1, 1024,
             [](const GemmParams& params, const ops::Weight&, ops::cuda::CudaStream& stream) {
               return Gemm(params, stream);
             }}};
  std::vector<Way> ways = {
      {"skinny_integers", 1, 16,
       [](const GemmParams& params, const ops::Weight& weight, ops::cuda::CudaStream& stream) {
         return SkinnyIntegers(params, weight, stream);
       }},
      {"streamed_integers", 1, 1024,
       [](const GemmParams& params, const ops::Weight& weight, ops::cuda::CudaStream& stream) {
         return StreamedIntegers(params, weight, stream);
       }},
      {"widened_integers", 32, 1024,
       [widened](const GemmParams& params, const ops::Weight& weight,
                 ops::cuda::CudaStream& stream) {
         RETURN_IF_ERROR(Dequantize(weight, params.dtype, widened, stream));
         GemmParams product = params;
         product.w = widened;
         return Gemm(product, stream);
       }}};
  for (const int row_tiles : {1, 2, 3})
    for (const int split : {1, 2, 4, 8})
      ways.push_back({fmt::format("skinny_integers_{}_{}", row_tiles, split), 1, 16,
                      [row_tiles, split](const GemmParams& params, const ops::Weight& weight,
                                         ops::cuda::CudaStream& stream) {
                        return SkinnyIntegers(params, weight,
                                              {.row_tiles = row_tiles, .split = split, .stages = 8},
                                              stream);
                      }});
  for (const int splits : {1, 2, 4, 8})
    ways.push_back({fmt::format("streamed_integers_{}", splits), 1, 64,
                    [splits](const GemmParams& params, const ops::Weight& weight,
                             ops::cuda::CudaStream& stream) {
                      return StreamedIntegers(params, weight, splits, stream);
                    }});
  return ways;
}

void IntegerCases(CudaBench& bench, int64_t n, int64_t k, const Form& form) {
  const int64_t num_groups = form.group_size == 0 ? 1 : k / form.group_size;
  const int64_t scale_bytes =
      ops::IsInteger(form.dtype) ? n * num_groups * (form.has_offsets ? 8 : 4) : 0;
  const Rotation w(bench.device(), form.dtype, {n, k});
  const Rotation scales(bench.device(), DType::kF32, {n, num_groups});
  const ops::DeviceTensor widened(bench.device(), DType::kBF16, {n, k});
  for (const Way& way : WaysOf(form, widened.view().data)) {
    if (!bench.Wants(way.kernel)) continue;
    for (const int64_t m : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}) {
      if (m < way.min_tokens || m > way.max_tokens) continue;
      const Rotation x(bench.device(), DType::kBF16, {m, k});
      const Rotation y(bench.device(), DType::kBF16, {m, n});
      const auto launch = [&](int call) {
        const GemmParams params = {.x = x.At(call).data,
                                   .w = w.At(call).data,
                                   .y = y.At(call).data,
                                   .dtype = DType::kBF16,
                                   .m = m,
                                   .n = n,
                                   .k = k};
        // Random bits are random codes in any order.
        const ops::Weight weight = {
            .data = params.w,
            .dtype = form.dtype,
            .layout = ops::WeightLayout::kTensorCore,
            .out_features = n,
            .in_features = k,
            .scales = scales.At(call).as<const float>(),
            .offsets = form.has_offsets ? scales.At(call).as<const float>() : nullptr,
            .group_size = form.group_size};
        return way.run(params, weight, bench.stream());
      };
      bench.Time({.kernel = way.kernel,
                  .shape = fmt::format("{} {}x{}x{}", form.name, m, n, k),
                  .dtype = DType::kBF16,
                  .bytes = static_cast<double>(BytesOf(form.dtype, n * k)) +
                           static_cast<double>(scale_bytes) + static_cast<double>((k + n) * m * 2),
                  .flop = 2.0 * static_cast<double>(m * n * k),
                  .launch = launch});
    }
  }
}

}  // namespace

void LinearCases(CudaBench& bench) {
  constexpr Form kForms[] = {
      {"bfloat16", DType::kBF16, 0},  {"int8", DType::kI8, 0},
      {"int8_g32", DType::kI8, 32},   {"int4", DType::kI4, 0},
      {"int4_g128", DType::kI4, 128}, {"int4_g128_offsets", DType::kI4, 128, true},
      {"int4_g32", DType::kI4, 32}};
  for (const Form& form : kForms)
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{4096, 4096}, {6144, 4096}, {28672, 4096}, {4096, 14336}})
      if (bench.Wants("skinny_integers") || bench.Wants("streamed_integers") ||
          bench.Wants("widened_integers"))
        IntegerCases(bench, n, k, form);
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3})
    for (const LinearLayer& layer : kLinearLayers) LayerCases(bench, layer, dtype);
}

}  // namespace inflight::bench
