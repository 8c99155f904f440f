// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <span>
#include <vector>

#include "base/status_macros.h"
#include "ops/attention.h"
#include "ops/reference/reference.h"
#include "ops/validate.h"
#include "tensor/element.h"

namespace inflight::ops::reference {
namespace {

using Head = std::vector<double>;

double MeanSquare(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  return sum / static_cast<double>(n);
}

// arXiv:2104.09864 eq. 34, of the pairs that Rope names.
Head Rotated(const Head& x, const Rope& rope, int64_t position) {
  Head y = x;
  const auto half = static_cast<size_t>(rope.rotary_dim / 2);
  const float* const cos = rope.cos_sin.as<const float>() + position * rope.rotary_dim;
  const float* const sin = cos + half;
  for (size_t j = 0; j < half; ++j) {
    const bool is_neox = rope.style == RopeStyle::kNeox;
    const size_t first = is_neox ? j : 2 * j;
    const size_t second = is_neox ? j + half : 2 * j + 1;
    y[first] = x[first] * cos[j] - x[second] * sin[j];
    y[second] = x[first] * sin[j] + x[second] * cos[j];
  }
  return y;
}

// One token: a row of the projection to q and to the cache.
class Token {
 public:
  Token(const QkvRopeKvParams& params, int64_t t)
      : p_(params), t_(t), slot_(p_.batch.slot_mapping.as<const int64_t>()[t]) {}

  void WriteQuery(int h) const {
    const Head q = NormedAndRotated(h, h, p_.num_heads, p_.q_norm);
    for (size_t d = 0; d < q.size(); ++d)
      p_.q.as<float>()[(t_ * p_.num_heads + h) * p_.kv.head_dim + static_cast<int64_t>(d)] =
          static_cast<float>(q[d]);
  }

  void WriteKeyAndValue(int h) const {
    const KvCacheView& kv = p_.kv;
    const int64_t block = slot_ / kv.block_size;
    const auto offset = static_cast<int>(slot_ % kv.block_size);
    const Head key = NormedAndRotated(p_.num_heads + h, h, kv.num_kv_heads, p_.k_norm);
    const Head value = Projected(p_.num_heads + kv.num_kv_heads + h);
    for (int d = 0; d < kv.head_dim; ++d) {
      const auto at = static_cast<size_t>(d);
      StoreFloat(kv.Keys(p_.layer, block, h), kv.dtype, kv.KeyIndex(offset, d),
                 static_cast<float>(key[at]));
      StoreFloat(kv.Values(p_.layer, block, h), kv.dtype, kv.ValueIndex(offset, d),
                 static_cast<float>(value[at]));
    }
  }

 private:
  // Head `h` of the row, counted over q, k and v.
  const float* At(int h) const {
    const float* const row = p_.workspace.as<const float>() + t_ * p_.workspace.shape[1];
    return row + int64_t{h} * p_.kv.head_dim;
  }
  Head Projected(int h) const { return {At(h), At(h) + p_.kv.head_dim}; }

  // Head `h` of the row, which is the `of_kind`th of the `num_of_kind` of q or of k.
  Head NormedAndRotated(int h, int of_kind, int num_of_kind, const TensorView& norm) const {
    Head x = Projected(h);
    if (!norm.empty()) {
      const bool is_wide = norm.num_elements() > p_.kv.head_dim;
      const int64_t width = p_.kv.head_dim;
      const double mean_square =
          is_wide ? MeanSquare(At(h - of_kind), num_of_kind * width) : MeanSquare(At(h), width);
      const float* const weight = norm.as<const float>() + (is_wide ? of_kind * width : 0);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] *= weight[i] / std::sqrt(mean_square + double{p_.norm_eps});
    }
    if (p_.rope.style == RopeStyle::kNone) return x;
    return Rotated(x, p_.rope, p_.batch.positions.as<const int32_t>()[t_]);
  }

  const QkvRopeKvParams& p_;
  int64_t t_;
  int64_t slot_;
};

}  // namespace

Status QkvRopeKv(const QkvRopeKvParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  RETURN_IF_ERROR(Linear({.x = p.x,
                          .weight = p.weight,
                          .bias = p.bias,
                          .y = p.workspace,
                          .scratch = p.scratch,
                          .lora = p.lora,
                          .site = LoraSite::kQkv},
                         stream));
  stream.cpu_pool().ParallelFor(p.batch.num_tokens, [&](int64_t t) {
    const Token token(p, t);
    for (int h = 0; h < p.num_heads; ++h) token.WriteQuery(h);
    for (int h = 0; h < p.kv.num_kv_heads; ++h) token.WriteKeyAndValue(h);
  });
  return Status::Ok();
}

}  // namespace inflight::ops::reference
