// SPDX-License-Identifier: Apache-2.0
#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace inflight::model {
namespace {

// Llama 3.1's rule: long wavelengths are stretched by `factor`, short ones kept, those between
// blended.
double ScaleLlama3(double theta, const RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / theta;
  const double original_length = scaling.original_max_position_embeddings;
  if (wavelength < original_length / scaling.high_freq_factor) return theta;
  if (wavelength > original_length / scaling.low_freq_factor) return theta / scaling.factor;
  const double smooth = (original_length / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * theta / scaling.factor + smooth * theta;
}

}  // namespace

ModelConfig OfSlidingRope(const ModelConfig& config) {
  ModelConfig sliding = config;
  if (config.sliding_rope_theta) {
    sliding.rope_theta = *config.sliding_rope_theta;
    sliding.rope_scaling = {};
  }
  return sliding;
}

std::vector<float> InverseFrequencies(const ModelConfig& config) {
  const int rotary_dim = RotaryDim(config);
  std::vector<float> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(rotary_dim);
    const auto power =
        static_cast<float>(std::pow(config.rope_theta, static_cast<double>(exponent)));
    double theta = 1.0F / power;
    if (config.rope_scaling.kind == RopeScaling::Kind::kLinear) theta /= config.rope_scaling.factor;
    if (config.rope_scaling.kind == RopeScaling::Kind::kLlama3)
      theta = ScaleLlama3(theta, config.rope_scaling);
    frequencies[j] = static_cast<float>(theta);
  }
  return frequencies;
}

Status FillRopeTable(const ModelConfig& config, const TensorView& table, Device& device) {
  const std::vector<float> frequencies = InverseFrequencies(config);
  const size_t width = frequencies.size();
  const bool on_host = device.kind() == DeviceKind::kCpu;
  std::vector<float> staging(on_host ? 0 : static_cast<size_t>(table.num_elements()));
  float* const cos_sin = on_host ? table.as<float>() : staging.data();
  constexpr int64_t kPositionsPerItem = 256;
  const int64_t num_positions = table.shape[0];
  const int64_t num_items = (num_positions + kPositionsPerItem - 1) / kPositionsPerItem;
  device.cpu_pool().ParallelFor(num_items, [&](int64_t item) {
    const int64_t end = std::min(num_positions, (item + 1) * kPositionsPerItem);
    for (int64_t p = item * kPositionsPerItem; p < end; ++p) {
      float* const row = cos_sin + static_cast<size_t>(p) * 2 * width;
      for (size_t j = 0; j < width; ++j) {
        const float angle = static_cast<float>(p) * frequencies[j];
        row[j] = static_cast<float>(std::cos(static_cast<double>(angle)));
        row[width + j] = static_cast<float>(std::sin(static_cast<double>(angle)));
      }
    }
  });
  return on_host ? Status::Ok() : device.Copy(table.data, cos_sin, table.num_bytes());
}

}  // namespace inflight::model
