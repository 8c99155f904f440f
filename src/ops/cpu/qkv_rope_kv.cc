// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/attention.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/launch.h"
#include "ops/validate.h"

namespace inflight::ops::cpu {
namespace {

// RMSNorm of one head, or of all of a kind, in place.
void Normalize(const float* weight, float eps, int64_t n, float* head) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += head[i] * head[i];
  const float scale = 1.0F / std::sqrt(sum / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) head[i] = head[i] * scale * weight[i];
}

// Rotates the pairs of one head by the angles of one position (arXiv:2104.09864 eq. 34).
void Rotate(RopeStyle style, int rotary_dim, const float* cos_sin, float* head) {
  const int half = rotary_dim / 2;
  const float* cos = cos_sin;
  const float* sin = cos_sin + half;
  for (int j = 0; j < half; ++j) {
    const int a = style == RopeStyle::kNeox ? j : 2 * j;
    const int b = style == RopeStyle::kNeox ? j + half : 2 * j + 1;
    const float x = head[a];
    const float y = head[b];
    head[a] = x * cos[j] - y * sin[j];
    head[b] = y * cos[j] + x * sin[j];
  }
}

// One head's key and value to its place in a block, by the permutations of kv_cache_view.h.
template <typename T, typename Convert>
void StoreHead(const KvCacheView& kv, int layer, int64_t slot, int kv_head, const float* k,
               const float* v, const Convert& convert) {
  const int64_t block = slot / kv.block_size;
  const auto offset = static_cast<int>(slot % kv.block_size);
  auto* keys = reinterpret_cast<T*>(kv.Keys(layer, block, kv_head)) + kv.KeyIndex(offset, 0);
  auto* values = reinterpret_cast<T*>(kv.Values(layer, block, kv_head)) + kv.ValueIndex(offset, 0);
  if constexpr (std::is_same_v<T, BFloat16>) {  // dimensions in pairs, tokens in pairs
    for (int d = 0; d < kv.head_dim; d += 2) {
      keys[d * 16] = convert(k[d]);
      keys[d * 16 + 1] = convert(k[d + 1]);
      values[d * 2] = convert(v[d]);
      values[d * 2 + 2] = convert(v[d + 1]);
    }
  } else {
    for (int d = 0; d < kv.head_dim; ++d) {
      keys[d * 16] = convert(k[d]);
      values[d] = convert(v[d]);
    }
  }
}

// What happens to one token's projected row (a row of `workspace`, in place).
void RotateAndStoreToken(const QkvRopeKvParams& p, int64_t t) {
  const KvCacheView& kv = p.kv;
  const int64_t head_dim = kv.head_dim;
  const int64_t q_width = p.num_heads * head_dim;
  const int64_t k_width = kv.num_kv_heads * head_dim;
  float* q = p.workspace.as<float>() + t * (q_width + 2 * k_width);
  float* k = q + q_width;
  const float* v = k + k_width;

  if (p.q_norm.num_elements() > head_dim) {
    Normalize(p.q_norm.as<const float>(), p.norm_eps, q_width, q);
    Normalize(p.k_norm.as<const float>(), p.norm_eps, k_width, k);
  } else if (!p.q_norm.empty()) {
    for (int h = 0; h < p.num_heads + kv.num_kv_heads; ++h)
      Normalize((h < p.num_heads ? p.q_norm : p.k_norm).as<const float>(), p.norm_eps, head_dim,
                q + h * head_dim);
  }

  if (p.rope.style != RopeStyle::kNone) {
    const int64_t position = p.batch.positions.as<const int32_t>()[t];
    const float* cos_sin = p.rope.cos_sin.as<const float>() + position * p.rope.rotary_dim;
    for (int h = 0; h < p.num_heads + kv.num_kv_heads; ++h)
      Rotate(p.rope.style, p.rope.rotary_dim, cos_sin, q + h * head_dim);
  }

  const int64_t slot = p.batch.slot_mapping.as<const int64_t>()[t];
  for (int h = 0; h < kv.num_kv_heads; ++h) {
    const float* key = k + h * head_dim;
    const float* value = v + h * head_dim;
    if (kv.dtype == DType::kBF16)
      StoreHead<BFloat16>(kv, p.layer, slot, h, key, value, BFloat16::FromFloat);
    else if (kv.dtype == DType::kF16)
      StoreHead<Float16>(kv, p.layer, slot, h, key, value, Float16::FromFloat);
    else
      StoreHead<float>(kv, p.layer, slot, h, key, value, [](float x) { return x; });
  }
  std::memcpy(p.q.as<float>() + t * q_width, q, static_cast<size_t>(q_width) * sizeof(float));
}

}  // namespace

Status QkvRopeKv(const KernelSet& kernels, const QkvRopeKvParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  RETURN_IF_ERROR(Linear(kernels,
                         {.x = p.x,
                          .weight = p.weight,
                          .bias = p.bias,
                          .y = p.workspace,
                          .scratch = p.scratch,
                          .lora = p.lora,
                          .site = LoraSite::kQkv},
                         stream));
  stream.cpu_pool().ParallelFor(
      p.batch.num_tokens, [&](int64_t t) { RotateAndStoreToken(p, t); },
      ThreadsFor(4 * p.workspace.num_elements()));
  return Status::Ok();
}

}  // namespace inflight::ops::cpu
