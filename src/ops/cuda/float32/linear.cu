// SPDX-License-Identifier: Apache-2.0
// The linears. A warp has four columns of up to eight rows, which it reads from memory and from the
// caches as they are.
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/float32/activate.cuh"
#include "ops/cuda/float32/dots.cuh"
#include "ops/cuda/float32/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/linear.h"

namespace inflight::ops::cuda::float32 {
namespace {

constexpr int kWarps = 8;
constexpr int kColumns = 4;  // of a warp
constexpr int kManyRows = 8;
constexpr int kGateThreads = 256;

// CTA (c, r): columns from kWarps * kColumns * c on, rows from kRows * r on.
template <int kRows, bool kIsAligned>
__global__ void __launch_bounds__(kWarps* kWarp) ProductKernel(const Product p) {
  BeginOverlapped();
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int64_t first_column = warp * kColumns;
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  if (first_column >= p.n) return;
  const float* x[kRows];
  const float* w[kColumns];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = min(first_row + r, p.m - 1);
    x[r] = p.x + (p.rows == nullptr ? row : p.rows[row]) * p.k;
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) w[c] = p.w + min(first_column + c, p.n - 1) * p.k;
  float sums[kRows][kColumns];
  Dots<kRows, kColumns, kIsAligned>(x, w, p.k, sums);

  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const int64_t row = first_row + lane / kColumns;
  const int64_t column = first_column + lane % kColumns;
  if (lane >= kRows * kColumns || row >= p.m || column >= p.n) return;
  float y = Pick(sums, lane / kColumns, lane % kColumns);
  if (p.bias != nullptr) y = __fadd_rn(y, p.bias[column]);
  y = __fmul_rn(Activate(p.activation, y), p.factor);
  if (p.softcap != 0.0F) y = p.softcap * tanhf(y / p.softcap);
  const int64_t at = row * (p.y_stride == 0 ? p.n : p.y_stride) + column;
  p.y[at] = p.times == nullptr ? y : __fmul_rn(y, p.times[at]);
}

template <int kRows>
void LaunchRows(const Product& p, cudaStream_t stream) {
  const bool is_aligned = p.k % kLaneElements == 0 && IsAligned(p.x) && IsAligned(p.w);
  constexpr int64_t kCtaColumns = int64_t{kWarps} * kColumns;
  const dim3 grid(static_cast<unsigned>((p.n + kCtaColumns - 1) / kCtaColumns),
                  static_cast<unsigned>((p.m + kRows - 1) / kRows));
  LaunchOverlapped(is_aligned ? ProductKernel<kRows, true> : ProductKernel<kRows, false>, grid,
                   kWarps * kWarp, 0, stream, p);
}

// y[t, i] = act(gate_up[t, i]) * gate_up[t, n + i], a thread for each.
__global__ void __launch_bounds__(kGateThreads)
    GateKernel(const float* gate_up, ActivationKind activation, int64_t num, int64_t n, float* y) {
  BeginOverlapped();
  const int64_t i = int64_t{blockIdx.x} * kGateThreads + threadIdx.x;
  if (i >= num) return;
  const float* const row = gate_up + i / n * 2 * n + i % n;
  y[i] = __fmul_rn(Activate(activation, row[0]), row[n]);
}

// Of the workspace, which holds both branches side by side.
Status Gate(const GatedLinearParams& p, CudaStream& stream) {
  const int64_t num = p.y.num_elements();
  if (num == 0) return Status::Ok();
  LaunchOverlapped(GateKernel, static_cast<unsigned>((num + kGateThreads - 1) / kGateThreads),
                   kGateThreads, 0, stream.handle(), p.workspace.as<const float>(), p.activation,
                   num, p.gate.out_features, p.y.as<float>());
  return inflight::cuda::LaunchStatus("float32_gate");
}

// y [num_rows, out_features].
Status ExpectOutput(const char* field, const TensorView& y, int64_t num_rows,
                    const Weight& weight) {
  return Expect(field, y, {DType::kF32}, {num_rows, weight.out_features});
}

Product ProductOf(const TensorView& x, const Weight& weight, const TensorView& bias,
                  const TensorView& y) {
  return {.x = x.as<const float>(),
          .w = static_cast<const float*>(weight.data),
          .bias = bias.as<const float>(),
          .y = y.as<float>(),
          .m = y.shape[0],
          .n = weight.out_features,
          .k = weight.in_features};
}

}  // namespace

Status ExpectWeight(const char* field, const Weight& weight) {
  if (!weight.empty() && weight.dtype == DType::kF32 && weight.layout == WeightLayout::kRowMajor &&
      weight.out_features > 0 && weight.in_features > 0)
    return Status::Ok();
  return InvalidArgument(std::string(field) + ": got " + std::string(DTypeName(weight.dtype)) +
                         " " + std::string(WeightLayoutName(weight.layout)) + " " +
                         Shape{weight.out_features, weight.in_features}.ToString() +
                         ", needed float32 row_major as of a float32 model");
}

Status ExpectInput(const Activation& x, const Weight& weight) {
  if (x.pending_norm != nullptr)
    return Unimplemented("x: CUDA linears take normalized activations; apply add_norm before");
  RETURN_IF_ERROR(ExpectMatrix("x", x.values, {DType::kF32}));
  return Expect("x", x.values, {DType::kF32}, {x.values.shape[0], weight.in_features});
}

Status Project(const Product& product, CudaStream& stream) {
  if (product.m == 0 || product.n == 0) return Status::Ok();
  if (product.m == 1)
    LaunchRows<1>(product, stream.handle());
  else
    LaunchRows<kManyRows>(product, stream.handle());
  return inflight::cuda::LaunchStatus("float32_product");
}

Status Linear(const LinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(ExpectWeight("weight", p.weight));
  RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  RETURN_IF_ERROR(ExpectOutput("y", p.y, p.x.values.shape[0], p.weight));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, {DType::kF32}, {p.weight.out_features}));
  if (p.defer_scales) return InvalidArgument("defer_scales: float32 weights have no scales");
  const bool is_twice = p.lora.batch != nullptr && p.activation != ActivationKind::kNone;
  if (is_twice)
    RETURN_IF_ERROR(ExpectOutput("workspace", p.workspace, p.x.values.shape[0], p.weight));
  Product product = ProductOf(p.x.values, p.weight, p.bias, p.y);
  product.activation = p.activation;
  RETURN_IF_ERROR(Project(product, AsCuda(stream)));
  // What adapters add comes before an activation: their tokens need the product once more, without
  // it. The others keep the bits that they have in y.
  Adapters adapters(p.lora, p.site, 1, p.x.values, is_twice ? p.workspace : p.y);
  if (is_twice) {
    RETURN_IF_ERROR(Project(ProductOf(p.x.values, p.weight, {}, p.workspace), AsCuda(stream)));
    adapters.ActivateInto(p.y, p.bias.as<const float>(), p.activation);
  }
  return adapters.Add(AsCuda(stream));
}

// The linear branch into y, then the other one times it; beside adapters, which add to both before
// the one is activated, both into the workspace.
Status GatedLinear(const GatedLinearParams& p, Stream& stream) {
  for (const auto& [field, weight] : {std::pair{"gate", &p.gate}, std::pair{"up", &p.up}}) {
    RETURN_IF_ERROR(ExpectWeight(field, *weight));
    RETURN_IF_ERROR(ExpectInput(p.x, *weight));
    RETURN_IF_ERROR(ExpectOutput("y", p.y, p.x.values.shape[0], *weight));
  }
  RETURN_IF_ERROR(ExpectOrEmpty("gate_bias", p.gate_bias, {DType::kF32}, {p.gate.out_features}));
  RETURN_IF_ERROR(ExpectOrEmpty("up_bias", p.up_bias, {DType::kF32}, {p.up.out_features}));
  CudaStream& cuda_stream = AsCuda(stream);
  Product gate = ProductOf(p.x.values, p.gate, p.gate_bias, p.y);
  Product up = ProductOf(p.x.values, p.up, p.up_bias, p.y);
  if (p.lora.batch == nullptr) {
    gate.activation = p.activation;
    gate.times = gate.y;
    RETURN_IF_ERROR(Project(up, cuda_stream));
    return Project(gate, cuda_stream);
  }
  RETURN_IF_ERROR(Expect("workspace", p.workspace, {DType::kF32}, {gate.m, 2 * gate.n}));
  gate.y = p.workspace.as<float>();
  up.y = gate.y + gate.n;
  gate.y_stride = up.y_stride = 2 * gate.n;
  RETURN_IF_ERROR(Project(gate, cuda_stream));
  RETURN_IF_ERROR(Project(up, cuda_stream));
  const Adapters adapters(p.lora, LoraSite::kFc, 2, p.x.values, p.workspace);
  RETURN_IF_ERROR(adapters.Add(cuda_stream));
  return Gate(p, cuda_stream);
}

Status LmHead(const LmHeadParams& p, Stream& stream) {
  RETURN_IF_ERROR(ExpectWeight("weight", p.weight));
  RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  const int64_t num_rows = p.rows.num_elements();
  RETURN_IF_ERROR(Expect("rows", p.rows, {DType::kI32}, {num_rows}));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, {DType::kF32}, {p.weight.out_features}));
  RETURN_IF_ERROR(ExpectOutput("logits", p.logits, num_rows, p.weight));
  Product product = ProductOf(p.x.values, p.weight, p.bias, p.logits);
  product.rows = p.rows.as<const int32_t>();
  product.factor = p.scale;
  product.softcap = p.softcap;
  return Project(product, AsCuda(stream));
}

}  // namespace inflight::ops::cuda::float32
