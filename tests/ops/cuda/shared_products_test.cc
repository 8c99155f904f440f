// SPDX-License-Identifier: Apache-2.0
// Linears against ops/reference, over the shared list of cases, for every kind of weight.
#include <algorithm>
#include <cmath>

#include "product_reference.h"

namespace inflight::ops {
namespace {

// A bound on the derivative of every activation, and on the error of computing it fast.
constexpr double kSlope = 1.2;
constexpr double kFunctionError = 1e-4;
constexpr double kFloat32FunctionError = 2e-6;

double Activated(double bound, ActivationKind activation, double y, const LinearDTypes& dtypes) {
  if (activation == ActivationKind::kNone) return bound;
  const double error = IsFloat32(dtypes) ? kFloat32FunctionError : kFunctionError;
  return kSlope * bound + error * (std::abs(y) + 1e-3);
}

// Results beyond float16 may be infinite; what is not near its largest number counts as the others.
void LeaveOutOverflow(DType dtype, Tensor* got, std::vector<double>* want,
                      std::vector<double>* bound) {
  constexpr double kLargest = 65504;
  if (dtype != DType::kF16) return;
  for (size_t i = 0; i < want->size(); ++i) {
    if (std::abs((*want)[i]) + (*bound)[i] < kLargest) continue;
    const auto at = static_cast<int64_t>(i);
    EXPECT_GE(std::copysign(1.0, (*want)[i]) * got->Get(at), kLargest - 2 * (*bound)[i]) << at;
    got->Set(at, 0);
    (*want)[i] = 0;
  }
}

TEST_F(CudaSharedProductsTest, Linear) {
  for (const LinearCase& c : LinearCases())
    for (const LinearDTypes& dtypes : kModelDTypes) {
      if (!IsRun(c.gpu_only, dtypes) || !HasColumns(c.out_features, dtypes)) continue;
      SCOPED_TRACE(std::string(c.name) + " " + Name(dtypes, c.num_tokens));
      const bool is_whole = IsWhole(c.in_features, dtypes);
      if (!is_whole && (IsInteger(dtypes.w) || c.num_tokens == 0)) continue;
      const Operand x(device(), dtypes.x, c.num_tokens, c.in_features, 7);
      const Operand w(device(), dtypes.w, c.out_features, c.in_features, 8);
      const Tensor bias = Tensor::Random(DType::kF32, {c.out_features}, 9);
      const DeviceTensor device_bias = ToDevice(bias, c.offset_elements);
      const DType y_dtype = c.y_dtype == DType::kF32 ? DType::kF32 : dtypes.model;
      const Shape shape = {c.num_tokens, c.out_features};
      const DeviceTensor y = Output(y_dtype, shape, c.offset_elements);
      LinearParams params = {.x = x.activation(),
                             .weight = w.weight(),
                             .bias = c.bias ? device_bias.view() : TensorView{},
                             .activation = c.activation,
                             .y = y.view()};
      const Status status = Ops(dtypes).linear(params, StreamOf(dtypes));
      if (!is_whole) {
        EXPECT_EQ(status, InvalidArgument("k: got " + std::to_string(c.in_features) +
                                          ", needed a multiple of " +
                                          std::to_string(16 / SizeOf(dtypes.x))));
        continue;
      }
      ASSERT_EQ(status, Status::Ok());
      const Reference reference(pool(), x, w, dtypes);
      const Tensor want(DType::kF32, shape);
      ASSERT_EQ(ReferenceTable().linear({.x = {.values = reference.x.view()},
                                         .weight = Float32Weight(reference.w),
                                         .bias = c.bias ? bias.view() : TensorView{},
                                         .activation = c.activation,
                                         .y = want.view()},
                                        host()),
                Status::Ok());
      std::vector<double> bound = reference.Bounds(dtypes, x, w, y_dtype);
      for (size_t i = 0; i < bound.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const double b = c.bias ? bias.Get(at % c.out_features) : 0;
        bound[i] = Activated(AfterBias(bound[i], reference.sums.exact[i], b), c.activation,
                             want.Get(at), dtypes);
      }
      Tensor got = y.ToHost();
      std::vector<double> wanted = InFloat64(want);
      LeaveOutOverflow(y_dtype, &got, &wanted, &bound);
      EXPECT_TRUE(Near(got, wanted, bound));
      EXPECT_TRUE(Intact(y));
      if (c.offset_elements == 0 || c.num_tokens == 0 || IsFloat32(dtypes)) continue;
      const DeviceTensor odd_x = ToDevice(x.values, c.offset_elements);
      params.x.values = odd_x.view();
      EXPECT_EQ(Ops(dtypes).linear(params, StreamOf(dtypes)).code(), StatusCode::kInvalidArgument)
          << "rows of x begin at multiples of 16 bytes";
    }
}

TEST_F(CudaSharedProductsTest, GatedLinear) {
  for (const LinearCase& c : LinearCases())
    for (const LinearDTypes& dtypes : kModelDTypes) {
      if (!IsRun(c.gpu_only, dtypes) || !HasColumns(c.out_features, dtypes)) continue;
      if (!IsWhole(c.in_features, dtypes)) continue;
      SCOPED_TRACE(std::string(c.name) + " " + Name(dtypes, c.num_tokens));
      const int64_t n = c.out_features;
      const Operand x(device(), dtypes.x, c.num_tokens, c.in_features, 11);
      const Operand gate(device(), dtypes.w, n, c.in_features, 12);
      const Operand up(device(), dtypes.w, n, c.in_features, 13);
      const Tensor bias = Tensor::Random(DType::kF32, {n}, 14);
      const DeviceTensor device_bias = ToDevice(bias, c.offset_elements);
      const TensorView gpu_bias = c.bias ? device_bias.view() : TensorView{};
      const TensorView host_bias = c.bias ? bias.view() : TensorView{};
      const Shape shape = {c.num_tokens, n};
      const DeviceTensor workspace = Output(dtypes.model, {c.num_tokens, 2 * n});
      const DeviceTensor y = Output(dtypes.model, shape, c.offset_elements);
      ASSERT_EQ(Ops(dtypes).gated_linear({.x = x.activation(),
                                          .gate = gate.weight(),
                                          .up = up.weight(),
                                          .gate_bias = gpu_bias,
                                          .up_bias = gpu_bias,
                                          .activation = c.activation,
                                          .y = y.view(),
                                          .workspace = workspace.view()},
                                         StreamOf(dtypes)),
                Status::Ok());
      const Reference gates(pool(), x, gate, dtypes);
      const Reference ups(pool(), x, up, dtypes);
      const Tensor want(DType::kF32, shape);
      const Tensor g(DType::kF32, shape);
      const Tensor u(DType::kF32, shape);
      ASSERT_EQ(ReferenceTable().gated_linear({.x = {.values = gates.x.view()},
                                               .gate = Float32Weight(gates.w),
                                               .up = Float32Weight(ups.w),
                                               .gate_bias = host_bias,
                                               .up_bias = host_bias,
                                               .activation = c.activation,
                                               .y = want.view()},
                                              host()),
                Status::Ok());
      for (const auto& [reference, activation, branch] :
           {std::tuple{&gates, c.activation, &g}, std::tuple{&ups, ActivationKind::kNone, &u}})
        ASSERT_EQ(ReferenceTable().linear({.x = {.values = reference->x.view()},
                                           .weight = Float32Weight(reference->w),
                                           .bias = host_bias,
                                           .activation = activation,
                                           .y = branch->view()},
                                          host()),
                  Status::Ok());
      std::vector<double> bound = gates.Bounds(dtypes, x, gate, dtypes.model);
      const std::vector<double> up_bounds = ups.Bounds(dtypes, x, up, dtypes.model);
      for (size_t i = 0; i < bound.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const double b = c.bias ? bias.Get(at % n) : 0;
        const double g_bound =
            Activated(AfterBias(bound[i], gates.sums.exact[i], b), c.activation, g.Get(at), dtypes);
        const double u_bound = AfterBias(up_bounds[i], ups.sums.exact[i], b);
        bound[i] = g_bound * (std::abs(u.Get(at)) + u_bound) + std::abs(g.Get(at)) * u_bound +
                   4 * kUnit * std::abs(want.Get(at));
      }
      Tensor got = y.ToHost();
      std::vector<double> wanted = InFloat64(want);
      LeaveOutOverflow(dtypes.model, &got, &wanted, &bound);
      EXPECT_TRUE(Near(got, wanted, bound));
      EXPECT_TRUE(Intact(y));
    }
}

// FP8 heads round the rows that they read, as quantize does: the reference reads the same codes.
TEST_F(CudaSharedProductsTest, LmHead) {
  for (const LmHeadCase& c : LmHeadCases())
    for (const LinearDTypes& dtypes : kModelDTypes) {
      if (!IsRun(c.gpu_only, dtypes) || !HasColumns(c.vocab_size, dtypes)) continue;
      SCOPED_TRACE(std::string(c.name) + " " + Name(dtypes, c.num_tokens));
      const Operand model_x(device(), dtypes.model, c.num_tokens, c.hidden_size, 3);
      const Operand w(device(), dtypes.w, c.vocab_size, c.hidden_size, 4);
      Operand x(device(), dtypes.x, c.num_tokens, c.hidden_size, 3);
      if (IsFp8(dtypes)) {
        ASSERT_EQ(Ops(dtypes).quantize({.x = model_x.activation().values,
                                        .y = x.device_values.view(),
                                        .scales = x.device_scales.view()},
                                       StreamOf(dtypes)),
                  Status::Ok());
        x.values = x.device_values.ToHost();
        x.scales = x.device_scales.ToHost();
      }
      const Tensor bias = Tensor::Random(DType::kF32, {c.vocab_size}, 5);
      const DeviceTensor device_bias = ToDevice(bias);
      const Tensor rows = Tensor::Int32(c.rows);
      const DeviceTensor device_rows = ToDevice(rows);
      const Shape shape = {static_cast<int64_t>(c.rows.size()), c.vocab_size};
      const DeviceTensor logits = Output(DType::kF32, shape, c.offset_elements);
      ASSERT_EQ(Ops(dtypes).lm_head({.x = {.values = model_x.activation().values},
                                     .rows = device_rows.view(),
                                     .weight = w.weight(),
                                     .bias = c.bias ? device_bias.view() : TensorView{},
                                     .logits = logits.view()},
                                    StreamOf(dtypes)),
                Status::Ok());
      const Reference reference(pool(), x, w, dtypes);
      const Tensor want(DType::kF32, shape);
      ASSERT_EQ(ReferenceTable().lm_head({.x = {.values = reference.x.view()},
                                          .rows = rows.view(),
                                          .weight = Float32Weight(reference.w),
                                          .bias = c.bias ? bias.view() : TensorView{},
                                          .logits = want.view()},
                                         host()),
                Status::Ok());
      const std::vector<double> bounds = reference.Bounds(dtypes, x, w, DType::kF32);
      std::vector<double> bound;
      for (const int row : c.rows)
        for (int64_t j = 0; j < c.vocab_size; ++j) {
          const auto at = static_cast<size_t>(row * int64_t{c.vocab_size} + j);
          bound.push_back(
              AfterBias(bounds[at], reference.sums.exact[at], c.bias ? bias.Get(j) : 0));
        }
      EXPECT_TRUE(Near(logits.ToHost(), InFloat64(want), bound));
      EXPECT_TRUE(Intact(logits));
    }
}

}  // namespace
}  // namespace inflight::ops
