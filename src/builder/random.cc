// SPDX-License-Identifier: Apache-2.0
// Engines of random weights, made in memory for benchmarks.
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/check.h"
#include "builder/builder.h"
#include "builder/engine_memory.h"
#include "builder/pack.h"
#include "model/limits.h"

namespace inflight::builder {
namespace {

using model::WeightSlot;

// SplitMix64: a bijective mixer, here of a counter, so that any row can be made on any thread.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

void Store(float value, float* to) { *to = value; }
void Store(float value, Float16* to) { *to = Float16::FromFloat(value); }
void Store(float value, BFloat16* to) { *to = BFloat16::FromFloat(value); }
void Store(float value, int8_t* to) { *to = static_cast<int8_t>(std::floor(value)); }

// `n` values uniform in (-bound, bound), four from each counter.
template <typename T>
void FillUniform(uint64_t stream, uint64_t first, int64_t n, float bound, T* out) {
  const float step = bound / 32768.0F;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t at = first + static_cast<uint64_t>(i);
    const uint64_t bits = Mix(stream ^ (at / 4)) >> (16 * (at % 4));
    Store((static_cast<float>(bits & 0xffffU) - 32767.5F) * step, out + i);
  }
}

void FillUniform(uint64_t stream, uint64_t first, int64_t n, float bound, DType dtype, void* out) {
  switch (dtype) {
    case DType::kI8:  // `bound` is that of the scaled values
      return FillUniform(stream, first, n, 128.0F, static_cast<int8_t*>(out));
    case DType::kF32:
      return FillUniform(stream, first, n, bound, static_cast<float*>(out));
    case DType::kF16:
      return FillUniform(stream, first, n, bound, static_cast<Float16*>(out));
    case DType::kBF16:
      return FillUniform(stream, first, n, bound, static_cast<BFloat16*>(out));
    default:
      CHECK(false);
  }
}

// Norm weights are 1 and biases 0: an untrained network whose activations keep their size.
void FillVector(const WeightSlot& slot, std::byte* target) {
  const bool is_norm_weight =
      slot.name.ends_with("norm.weight") || slot.name.ends_with("ln_f.weight");
  auto* const values = reinterpret_cast<float*>(target);
  std::fill_n(values, slot.shape[0], is_norm_weight ? 1.0F : 0.0F);
}

}  // namespace

Result<std::shared_ptr<const model::Engine>> Random(const model::ModelConfig& config,
                                                    const model::EngineLimits& limits,
                                                    uint64_t seed, Device& device) {
  RETURN_IF_ERROR(model::Validate(config));
  ASSIGN_OR_RETURN(const model::EngineLimits resolved, model::ResolveLimits(config, limits));
  uint64_t stream = Mix(seed);
  float bound = 0;  // of the last matrix, for its scales
  const auto fill = [&](const WeightSlot& slot, std::byte* target) {
    stream = Mix(stream);
    if (slot.kind == WeightSlot::Kind::kVector) return FillVector(slot, target);
    if (slot.kind == WeightSlot::Kind::kScales) {
      std::fill_n(reinterpret_cast<float*>(target), slot.shape[0], bound / 128);
      return;
    }
    const int64_t width = slot.shape[1];
    bound = std::numbers::sqrt3_v<float> / std::sqrt(static_cast<float>(width));
    const auto rows = [&](int64_t row, int64_t num_rows, void* out) {
      FillUniform(stream, static_cast<uint64_t>(row * width), num_rows * width, bound,
                  StoredDType(config, slot), out);
    };
    if (slot.kind == WeightSlot::Kind::kTable)
      rows(0, slot.shape[0], target);
    else
      PackMatrix(config, slot, device.kind(), rows, device.cpu_pool(), target);
  };
  return MakeEngine({.config = config, .limits = resolved, .tokenizer_dir = {}}, device, fill, {});
}

}  // namespace inflight::builder
