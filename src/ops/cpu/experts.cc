// SPDX-License-Identifier: Apache-2.0
// Panels of the chosen experts outer, their tokens inner, as in linear.cc. The gated half has an
// item for each panel of an expert that has places; in the other half an item owns columns of y, to
// which it adds one expert after the other, so that no sum depends on what other tokens chose.
#include "ops/experts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/status_macros.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/panels.h"
#include "ops/validate.h"

namespace inflight::ops::cpu {
namespace {

// Rows of one item: a panel is read again, from the cache, for the next so many.
constexpr int64_t kPlacesPerItem = 4 * kMaxRows;

struct RouteLists {
  explicit RouteLists(const ExpertRoutes& routes)
      : num_experts(static_cast<int>(routes.begins.num_elements()) - 1),
        begins(routes.begins.as<const int32_t>()),
        tokens(routes.tokens.as<const int32_t>()),
        weights(routes.weights.as<const float>()) {}

  int64_t num_places() const { return begins[num_experts]; }

  int num_experts;
  const int32_t* begins;
  const int32_t* tokens;
  const float* weights;
};

// Products of rows of x with panels of the experts' weight.
class ExpertPanels {
 public:
  ExpertPanels(const KernelSet& kernels, const TensorView& x, const Weight& weight,
               const TensorView& scratch, CpuPool& pool)
      : x_(x),
        weight_(weight),
        panel_(PanelKernelOf(kernels, weight.dtype)),
        panel_bytes_(PanelBytes(weight)),
        is_integer_(IsInteger(weight.dtype)),
        rounded_(weight, x.shape[0], scratch) {
    if (is_integer_)
      rounded_.Fill(
          kernels, [&](int64_t row) { return RowOf(x_, row); }, ElementOf(x.dtype), x.shape[0],
          weight.in_features, pool);
  }

  // sums[r][n] of x's rows rows[r] with features [feature, feature + 64), the first of a panel.
  void Multiply(const int32_t* rows, int num_rows, int64_t feature, float* sums) const {
    const void* x[kMaxRows];
    PanelArgs args = {
        .x = x,
        .num_rows = num_rows,
        .panel = static_cast<const std::byte*>(weight_.data) +
                 static_cast<size_t>(feature / kPanelColumns) * panel_bytes_,
        .in_features = weight_.in_features,
        .sums = sums,
    };
    ScaledOperands operands(weight_, feature, args);
    for (int r = 0; r < num_rows; ++r) {
      x[r] = is_integer_ ? rounded_.values + rows[r] * rounded_.stride : RowOf(x_, rows[r]);
      if (is_integer_) operands.SetRow(r, rounded_, rows[r]);
    }
    panel_(args);
  }

 private:
  const TensorView& x_;
  const Weight& weight_;
  const PanelKernel panel_;
  const size_t panel_bytes_;
  const bool is_integer_;
  const RoundedRows rounded_;
};

// Numbers the items of all experts: of each its panels, of each its parts of rows.
class ExpertItems {
 public:
  ExpertItems(const RouteLists& lists, int64_t num_panels) : lists_(lists) {
    for (int e = 0; e < lists.num_experts; ++e) {
      const auto at = static_cast<size_t>(e);
      ends_[at] = (e == 0 ? 0 : ends_[at - 1]) + NumParts(e) * num_panels;
    }
  }

  struct Item {
    int expert;
    int64_t panel;
    int32_t first, last;  // places
  };

  int64_t size() const { return ends_[static_cast<size_t>(lists_.num_experts) - 1]; }

  Item operator[](int64_t i) const {
    const auto* const begin = ends_.data();
    const auto e = static_cast<int>(std::upper_bound(begin, begin + lists_.num_experts, i) - begin);
    const int64_t in_expert = i - (e == 0 ? 0 : ends_[static_cast<size_t>(e) - 1]);
    const int64_t num_parts = NumParts(e);
    const auto first =
        static_cast<int32_t>(lists_.begins[e] + in_expert % num_parts * kPlacesPerItem);
    return {.expert = e,
            .panel = in_expert / num_parts,
            .first = first,
            .last = std::min(lists_.begins[e + 1], static_cast<int32_t>(first + kPlacesPerItem))};
  }

 private:
  int64_t NumParts(int e) const {
    return (lists_.begins[e + 1] - lists_.begins[e] + kPlacesPerItem - 1) / kPlacesPerItem;
  }

  const RouteLists& lists_;
  std::array<int64_t, kMaxExperts> ends_;  // of the items of expert e
};

// y[p] of 64 features of one expert.
void RunGatedItem(const KernelSet& kernels, const ExpertGatedLinearParams& p,
                  const RouteLists& lists, const ExpertPanels& panels,
                  const ExpertItems::Item& item) {
  alignas(64) float up_sums[kMaxRows * kPanelColumns];
  alignas(64) float gate_sums[kMaxRows * kPanelColumns];
  void* y[kMaxRows];
  const int64_t width = p.y.shape[1];
  const int64_t column = item.panel * kPanelColumns;
  const int64_t up = item.expert * 2 * width + column;
  const auto* bias = p.bias.as<const float>();
  for (int32_t first = item.first; first < item.last; first += kMaxRows) {
    const int num_rows = std::min(kMaxRows, item.last - first);
    panels.Multiply(lists.tokens + first, num_rows, up, up_sums);
    panels.Multiply(lists.tokens + first, num_rows, up + width, gate_sums);
    for (int r = 0; r < num_rows; ++r)
      y[r] = static_cast<std::byte*>(RowOf(p.y, first + r)) +
             static_cast<size_t>(column) * SizeOf(p.y.dtype);
    kernels.finish({.sums = gate_sums,
                    .bias = bias == nullptr ? nullptr : bias + up + width,
                    .up_sums = up_sums,
                    .up_bias = bias == nullptr ? nullptr : bias + up,
                    .function = FunctionOf(p.activation),
                    .num_rows = num_rows,
                    .num_columns = kPanelColumns,
                    .y_element = ElementOf(p.y.dtype),
                    .y = y,
                    .limit = p.limit});
  }
}

// Adds places [first, last) of one expert to 64 columns of y.
void AddPlaces(const ExpertLinearParams& p, const RouteLists& lists, const ExpertPanels& panels,
               int expert, int64_t column, int32_t first, int32_t last) {
  alignas(64) float sums[kMaxRows * kPanelColumns];
  std::array<int32_t, kMaxRows> rows;
  const int64_t width = p.y.shape[1];
  const int64_t feature = expert * width + column;
  const float* const bias = p.bias.empty() ? nullptr : p.bias.as<const float>() + feature;
  for (; first < last; first += kMaxRows) {
    const int num_rows = std::min(kMaxRows, last - first);
    for (int r = 0; r < num_rows; ++r) rows[static_cast<size_t>(r)] = first + r;
    panels.Multiply(rows.data(), num_rows, feature, sums);
    for (int r = 0; r < num_rows; ++r) {
      float* const y = p.y.as<float>() + lists.tokens[first + r] * width + column;
      const float* const sum = sums + r * kPanelColumns;
      const float weight = lists.weights[first + r];
      for (int n = 0; n < kPanelColumns; ++n)
        y[n] += weight * (bias == nullptr ? sum[n] : sum[n] + bias[n]);
    }
  }
}

// The indices of the `num_chosen` largest logits, of equal ones the first, into `chosen` in
// ascending order.
void ChooseLargest(const float* logits, int num_experts, int num_chosen, int32_t* chosen) {
  std::array<bool, kMaxExperts> is_taken = {};
  for (int i = 0; i < num_chosen; ++i) {
    int best = -1;
    for (int e = 0; e < num_experts; ++e)
      if (!is_taken[static_cast<size_t>(e)] && (best < 0 || logits[e] > logits[best])) best = e;
    is_taken[static_cast<size_t>(best)] = true;
  }
  for (int e = 0; e < num_experts; ++e)
    if (is_taken[static_cast<size_t>(e)]) *chosen++ = e;
}

// The experts of one token, counted as those that are held, -1 of others; and their weights.
void RouteToken(const RouteParams& p, const HeldExperts& held, int64_t token) {
  const int num_experts = NumRouted(p);
  const auto num_chosen = static_cast<int64_t>(p.experts_per_token);
  const int64_t num_places = num_chosen + held.num_shared;
  const float* const logits = p.logits.as<const float>() + token * p.logits.shape[1];
  int32_t* const chosen = p.chosen.as<int32_t>() + token * num_places;
  float* const weights = p.chosen_weights.as<float>() + token * num_places;
  ChooseLargest(logits, num_experts, p.experts_per_token, chosen);
  float max = logits[chosen[0]];
  for (int64_t i = 1; i < num_chosen; ++i) max = std::max(max, logits[chosen[i]]);
  float sum = 0;
  for (int64_t i = 0; i < num_chosen; ++i) sum += weights[i] = std::exp(logits[chosen[i]] - max);
  if (!p.renormalizes) {
    sum = 0;
    for (int e = 0; e < num_experts; ++e) sum += std::exp(logits[e] - max);
  }
  for (int64_t i = 0; i < num_chosen; ++i) {
    weights[i] /= sum;
    const int place = chosen[i] - held.first;
    chosen[i] = place >= 0 && place < held.num_routed ? place : -1;
  }
  for (int i = 0; i < held.num_shared; ++i) {
    chosen[num_chosen + i] = held.num_routed + i;
    weights[num_chosen + i] = 1 / (1 + std::exp(-logits[num_experts]));
  }
}

}  // namespace

Status Route(const RouteParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t num_tokens = p.logits.shape[0];
  const HeldExperts held = HeldOf(p);
  const int64_t num_experts = held.size();
  const int64_t of_token = PlacesOfToken(p);
  const int64_t num_places = num_tokens * of_token;
  stream.cpu_pool().ParallelFor(
      num_tokens, [&](int64_t t) { RouteToken(p, held, t); },
      ThreadsFor(num_places * p.logits.shape[1]));
  // By expert, and of one expert by token: counted, then placed in the order of tokens.
  int32_t* const begins = p.routes.begins.as<int32_t>();
  const auto* const chosen = p.chosen.as<const int32_t>();
  std::fill_n(begins, num_experts + 1, 0);
  for (int64_t i = 0; i < num_places; ++i)
    if (chosen[i] >= 0) ++begins[chosen[i] + 1];
  std::array<int32_t, kMaxExperts> next;
  for (int64_t e = 0; e < num_experts; ++e) {
    begins[e + 1] += begins[e];
    next[static_cast<size_t>(e)] = begins[e];
  }
  for (int64_t i = 0; i < num_places; ++i) {
    if (chosen[i] < 0) continue;
    const int32_t place = next[static_cast<size_t>(chosen[i])]++;
    p.routes.tokens.as<int32_t>()[place] = static_cast<int32_t>(i / of_token);
    p.routes.weights.as<float>()[place] = p.chosen_weights.as<const float>()[i];
  }
  return Status::Ok();
}

Status ExpertGatedLinear(const KernelSet& kernels, const ExpertGatedLinearParams& p,
                         Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  RETURN_IF_ERROR(ExpectPacked("weight", p.weight));
  const RouteLists lists(p.routes);
  if (lists.num_places() == 0) return Status::Ok();
  CpuPool& pool = stream.cpu_pool();
  const ExpertPanels panels(kernels, p.x.values, p.weight, p.scratch, pool);
  const ExpertItems items(lists, p.y.shape[1] / kPanelColumns);
  pool.ParallelFor(
      items.size(), [&](int64_t i) { RunGatedItem(kernels, p, lists, panels, items[i]); },
      ThreadsFor(2 * lists.num_places() * p.y.shape[1] * p.weight.in_features));
  return Status::Ok();
}

Status ExpertLinear(const KernelSet& kernels, const ExpertLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  RETURN_IF_ERROR(ExpectPacked("weight", p.weight));
  const int64_t num_tokens = p.y.shape[0];
  if (num_tokens == 0) return Status::Ok();
  CpuPool& pool = stream.cpu_pool();
  const RouteLists lists(p.routes);
  TensorView x = p.x.values;  // of the places that there are
  x.shape = {lists.num_places(), p.weight.in_features};
  const ExpertPanels panels(kernels, x, p.weight, p.scratch, pool);
  const int64_t num_panels = p.y.shape[1] / kPanelColumns;
  // Few panels and many tokens: cut the tokens too, so that every thread has work.
  const int64_t num_parts =
      num_panels >= 4 * pool.num_threads() ? 1 : (num_tokens + kPlacesPerItem - 1) / kPlacesPerItem;
  pool.ParallelFor(
      num_panels * num_parts,
      [&](int64_t i) {
        const int64_t column = i / num_parts * kPanelColumns;
        const int64_t begin = num_tokens * (i % num_parts) / num_parts;
        const int64_t end = num_tokens * (i % num_parts + 1) / num_parts;
        for (int64_t t = begin; t < end; ++t)
          std::fill_n(p.y.as<float>() + t * p.y.shape[1] + column, kPanelColumns, 0.0F);
        for (int e = 0; e < lists.num_experts; ++e) {
          const int32_t* const first = lists.tokens + lists.begins[e];
          const int32_t* const last = lists.tokens + lists.begins[e + 1];
          const auto* const from = std::lower_bound(first, last, begin);
          const auto* const until = std::lower_bound(from, last, end);
          AddPlaces(p, lists, panels, e, column, static_cast<int32_t>(from - lists.tokens),
                    static_cast<int32_t>(until - lists.tokens));
        }
      },
      ThreadsFor(x.num_elements() * p.y.shape[1]));
  return Status::Ok();
}

}  // namespace inflight::ops::cpu
