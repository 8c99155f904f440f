// SPDX-License-Identifier: Apache-2.0
#include "ops/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/status_macros.h"
#include "ops/reference/reference.h"
#include "ops/validate.h"
#include "tensor/element.h"

namespace inflight::ops::reference {
namespace {

struct Choice {
  int expert = 0;
  float weight = 0;
};

// Of one token's logits: the chosen experts, ascending.
std::vector<Choice> Choose(const float* logits, int num_experts, int num_chosen,
                           bool renormalizes) {
  std::vector<int> order(static_cast<size_t>(num_experts));
  std::iota(order.begin(), order.end(), 0);
  for (int i = 0; i < num_chosen; ++i)
    for (int j = i + 1; j < num_experts; ++j)
      if (logits[order[static_cast<size_t>(j)]] > logits[order[static_cast<size_t>(i)]] ||
          (logits[order[static_cast<size_t>(j)]] == logits[order[static_cast<size_t>(i)]] &&
           order[static_cast<size_t>(j)] < order[static_cast<size_t>(i)]))
        std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  const float max = logits[order.front()];
  std::vector<int> chosen(order.begin(), order.begin() + num_chosen);
  std::sort(chosen.begin(), chosen.end());
  float sum = 0;
  if (renormalizes)
    for (const int e : chosen) sum += std::exp(logits[e] - max);
  else
    for (int e = 0; e < num_experts; ++e) sum += std::exp(logits[e] - max);
  std::vector<Choice> choices;
  for (const int e : chosen) choices.push_back({e, std::exp(logits[e] - max) / sum});
  return choices;
}

// One linear of an expert's rows of x, by the reference's own.
Status LinearOf(const TensorView& x, const Weight& weight, const TensorView& bias,
                const TensorView& scratch, TensorView y, Stream& stream) {
  return Linear({.x = {.values = x}, .weight = weight, .bias = bias, .y = y, .scratch = scratch},
                stream);
}

// A tensor of float32 that a function keeps for itself.
struct Values {
  explicit Values(int64_t rows, int64_t width)
      : values(static_cast<size_t>(std::max<int64_t>(rows * width, 1))),
        view{values.data(), DType::kF32, {rows, width}} {}
  std::vector<float> values;
  TensorView view;
};

TensorView BiasOf(const TensorView& bias, int64_t first, int64_t n) {
  if (bias.empty()) return {};
  return {bias.as<float>() + first, DType::kF32, {n}};
}

TensorView RowsFrom(const TensorView& x, int64_t first, int64_t num_rows) {
  return {
      x.as<std::byte>() + BytesOf(x.dtype, first * x.shape[1]), x.dtype, {num_rows, x.shape[1]}};
}

float Gated(const ExpertGatedLinearParams& p, float gate, float up) {
  if (p.limit == 0) return Activate(p.activation, gate) * up;
  const float g = std::min(gate, p.limit);
  const float u = std::clamp(up, -p.limit, p.limit);
  return g / (1 + std::exp(-1.702F * g)) * (u + 1);
}

}  // namespace

Status Route(const RouteParams& p, Stream&) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t num_tokens = p.logits.shape[0];
  const auto num_logits = static_cast<int>(p.logits.shape[1]);
  const int num_routed = NumRouted(p);
  const HeldExperts held = HeldOf(p);
  std::vector<std::vector<Choice>> of_tokens;
  for (int64_t t = 0; t < num_tokens; ++t) {
    const float* const logits = p.logits.as<const float>() + t * num_logits;
    std::vector<Choice> chosen;  // of those that are held
    for (const Choice& choice : Choose(logits, num_routed, p.experts_per_token, p.renormalizes))
      if (choice.expert >= held.first && choice.expert < held.first + held.num_routed)
        chosen.push_back({choice.expert - held.first, choice.weight});
    for (int e = held.num_routed; e < held.size(); ++e)
      chosen.push_back({e, 1 / (1 + std::exp(-logits[num_routed]))});
    of_tokens.push_back(std::move(chosen));
  }
  int place = 0;
  for (int e = 0; e < held.size(); ++e) {
    p.routes.begins.as<int32_t>()[e] = place;
    for (int64_t t = 0; t < num_tokens; ++t)
      for (const Choice& choice : of_tokens[static_cast<size_t>(t)]) {
        if (choice.expert != e) continue;
        p.routes.tokens.as<int32_t>()[place] = static_cast<int32_t>(t);
        p.routes.weights.as<float>()[place] = choice.weight;
        ++place;
      }
  }
  p.routes.begins.as<int32_t>()[held.size()] = place;
  return Status::Ok();
}

Status ExpertGatedLinear(const ExpertGatedLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t num_experts = p.routes.begins.num_elements() - 1;
  const int64_t width = p.y.shape[1];
  const int64_t in = p.weight.in_features;
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t first = p.routes.begins.as<const int32_t>()[e];
    const int64_t num_rows = p.routes.begins.as<const int32_t>()[e + 1] - first;
    if (num_rows == 0) continue;  // of its weights nothing is read
    std::vector<std::byte> rows(BytesOf(p.x.values.dtype, std::max<int64_t>(num_rows * in, 1)));
    const TensorView x = {rows.data(), p.x.values.dtype, {num_rows, in}};
    for (int64_t r = 0; r < num_rows; ++r) {
      const TensorView row =
          RowsFrom(p.x.values, p.routes.tokens.as<const int32_t>()[first + r], 1);
      std::copy_n(row.as<const std::byte>(), row.num_bytes(),
                  rows.data() + static_cast<size_t>(r) * row.num_bytes());
    }
    const Values up(num_rows, width);
    const Values gate(num_rows, width);
    const int64_t of_up = e * 2 * width;
    RETURN_IF_ERROR(LinearOf(x, RowsOf(p.weight, of_up, width), BiasOf(p.bias, of_up, width),
                             p.scratch, up.view, stream));
    RETURN_IF_ERROR(LinearOf(x, RowsOf(p.weight, of_up + width, width),
                             BiasOf(p.bias, of_up + width, width), p.scratch, gate.view, stream));
    for (int64_t i = 0; i < num_rows * width; ++i)
      StoreFloat(p.y.data, p.y.dtype, first * width + i,
                 Gated(p, gate.values[static_cast<size_t>(i)], up.values[static_cast<size_t>(i)]));
  }
  return Status::Ok();
}

Status ExpertLinear(const ExpertLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t num_experts = p.routes.begins.num_elements() - 1;
  const int64_t width = p.y.shape[1];
  std::fill_n(p.y.as<float>(), p.y.num_elements(), 0.0F);
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t first = p.routes.begins.as<const int32_t>()[e];
    const int64_t num_rows = p.routes.begins.as<const int32_t>()[e + 1] - first;
    if (num_rows == 0) continue;  // of its weights nothing is read
    const Values out(num_rows, width);
    RETURN_IF_ERROR(LinearOf(RowsFrom(p.x.values, first, num_rows),
                             RowsOf(p.weight, e * width, width), BiasOf(p.bias, e * width, width),
                             p.scratch, out.view, stream));
    for (int64_t r = 0; r < num_rows; ++r) {
      const float weight = p.routes.weights.as<const float>()[first + r];
      float* const y = p.y.as<float>() + p.routes.tokens.as<const int32_t>()[first + r] * width;
      for (int64_t n = 0; n < width; ++n)
        y[n] += weight * out.values[static_cast<size_t>(r * width + n)];
    }
  }
  return Status::Ok();
}

}  // namespace inflight::ops::reference
