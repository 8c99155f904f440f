// SPDX-License-Identifier: Apache-2.0
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

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

// Yarn's rule (arXiv:2309.00071): pairs that turn often over the original length are kept, those
// that turn less than once are stretched by `factor`, those between blended along a ramp.
class YarnRamp {
 public:
  explicit YarnRamp(const ModelConfig& config) {
    const RopeScaling& scaling = config.rope_scaling;
    const auto pair_of = [&](double num_rotations) {
      const double length = OriginalLength(config);
      return RotaryDim(config) * std::log(length / (num_rotations * 2 * std::numbers::pi)) /
             (2 * std::log(config.rope_theta));
    };
    double first = pair_of(scaling.beta_fast);
    double last = pair_of(scaling.beta_slow);
    if (scaling.truncate) {
      first = std::floor(first);
      last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, RotaryDim(config) - 1.0);
    if (first == last) last += 0.001;
    first_ = static_cast<float>(first);
    width_ = static_cast<float>(last - first);
    factor_ = static_cast<float>(scaling.factor);
  }

  float Scale(size_t pair, float power) const {
    const float ramp = std::clamp((static_cast<float>(pair) - first_) / width_, 0.0F, 1.0F);
    const float kept = 1 - ramp;
    return 1 / (factor_ * power) * (1 - kept) + 1 / power * kept;
  }

 private:
  float first_ = 0, width_ = 1, factor_ = 1;
};

}  // namespace

int OriginalLength(const ModelConfig& config) {
  const int length = config.rope_scaling.original_max_position_embeddings;
  return length == 0 ? config.max_position_embeddings : length;
}

bool HasLongFactors(const ModelConfig& config, int max_seq_len) {
  return config.rope_scaling.kind == RopeScaling::Kind::kLongRope &&
         max_seq_len > OriginalLength(config);
}

float RopeMagnitude(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.attention_factor) return static_cast<float>(*scaling.attention_factor);
  if (scaling.kind == RopeScaling::Kind::kYarn)
    return scaling.factor <= 1 ? 1 : static_cast<float>(0.1 * std::log(scaling.factor) + 1);
  if (scaling.kind != RopeScaling::Kind::kLongRope) return 1;
  const double length = OriginalLength(config);
  const double factor =
      scaling.factor == 0 ? config.max_position_embeddings / length : scaling.factor;
  return factor <= 1 ? 1 : static_cast<float>(std::sqrt(1 + std::log(factor) / std::log(length)));
}

ModelConfig OfSlidingRope(const ModelConfig& config) {
  ModelConfig sliding = config;
  if (config.sliding_rope_theta) {
    sliding.rope_theta = *config.sliding_rope_theta;
    sliding.rope_scaling = {};
  }
  return sliding;
}

std::vector<float> InverseFrequencies(const ModelConfig& config, int max_seq_len) {
  using Kind = RopeScaling::Kind;
  const RopeScaling& scaling = config.rope_scaling;
  const int rotary_dim = RotaryDim(config);
  const std::vector<double>& factors =
      HasLongFactors(config, max_seq_len) ? scaling.long_factors : scaling.short_factors;
  const std::optional<YarnRamp> ramp =
      scaling.kind == Kind::kYarn ? std::optional(YarnRamp(config)) : std::nullopt;
  std::vector<float> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(rotary_dim);
    const auto power =
        static_cast<float>(std::pow(config.rope_theta, static_cast<double>(exponent)));
    double theta = 1.0F / power;
    if (scaling.kind == Kind::kLinear) theta /= scaling.factor;
    if (scaling.kind == Kind::kLlama3) theta = ScaleLlama3(theta, scaling);
    if (scaling.kind == Kind::kLongRope) theta = 1 / (static_cast<float>(factors[j]) * power);
    if (ramp) theta = ramp->Scale(j, power);
    frequencies[j] = static_cast<float>(theta);
  }
  return frequencies;
}

ops::RopeStyle RopeStyleOf(PositionKind kind) {
  switch (kind) {
    case PositionKind::kRopeNeox:
      return ops::RopeStyle::kNeox;
    case PositionKind::kRopeGptj:
      return ops::RopeStyle::kGptj;
    case PositionKind::kLearnedAbsolute:
      break;
  }
  return ops::RopeStyle::kNone;
}

Status FillRopeTable(const ModelConfig& config, const TensorView& table, Device& device) {
  const std::vector<float> frequencies =
      InverseFrequencies(config, static_cast<int>(table.shape[0]));
  const float magnitude = RopeMagnitude(config);
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
        row[j] = magnitude * static_cast<float>(std::cos(static_cast<double>(angle)));
        row[width + j] = magnitude * static_cast<float>(std::sin(static_cast<double>(angle)));
      }
    }
  });
  return on_host ? Status::Ok() : device.Copy(table.data, cos_sin, table.num_bytes());
}

}  // namespace inflight::model
