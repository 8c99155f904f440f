// SPDX-License-Identifier: Apache-2.0
// Engines of random weights: in memory for benchmarks, on disk from sizes alone.
#include "ops/random.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "artifact/checkpoint.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/engine_config.h"
#include "builder/engine_memory.h"
#include "builder/engine_writer.h"
#include "builder/model_files.h"
#include "builder/pack.h"
#include "builder/tune.h"
#include "model/limits.h"
#include "model/supported.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

using model::WeightSlot;

void Store(float value, float* to) { *to = value; }
void Store(float value, Float16* to) { *to = Float16::FromFloat(value); }
void Store(float value, BFloat16* to) { *to = BFloat16::FromFloat(value); }
void Store(float value, Float8E4M3* to) { *to = Float8E4M3::FromFloat(value); }
void Store(float value, int8_t* to) { *to = static_cast<int8_t>(std::floor(value)); }

template <typename T>
void FillUniform(uint64_t stream, uint64_t first, int64_t n, float bound, T* out) {
  for (int64_t i = 0; i < n; ++i)
    Store(ops::UniformAt(stream, first + static_cast<uint64_t>(i), bound), out + i);
}

// Two to a byte.
void FillUniformInt4(uint64_t stream, uint64_t first, int64_t n, float bound, uint8_t* out) {
  const auto code = [&](int64_t i) {
    const float value = ops::UniformAt(stream, first + static_cast<uint64_t>(i), bound);
    return static_cast<int>(std::floor(value));
  };
  for (int64_t i = 0; i < n; i += 2) out[i / 2] = PackInt4(code(i), code(i + 1));
}

// Numbers [first, first + n) of a stream.
void FillUniform(uint64_t stream, uint64_t first, int64_t n, float bound, DType dtype, void* out) {
  switch (dtype) {
    case DType::kI8:
      return FillUniform(stream, first, n, bound, static_cast<int8_t*>(out));
    case DType::kI4:
      return FillUniformInt4(stream, first, n, bound, static_cast<uint8_t*>(out));
    case DType::kF4E2M1:  // of all codes
      return FillUniformInt4(stream, first, n, 8.0F, static_cast<uint8_t*>(out));
    case DType::kF8E4M3:
      return FillUniform(stream, first, n, bound, static_cast<Float8E4M3*>(out));
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

// The largest code of a quantised weight; 0 for others.
float CodeBound(DType dtype) {
  if (dtype == DType::kI8) return 128.0F;
  if (dtype == DType::kI4) return 8.0F;
  if (dtype == DType::kF4E2M1) return 6.0F;
  return dtype == DType::kF8E4M3 ? Float8E4M3::kMax : 0.0F;
}

// Makes one slot after another; the numbers are the same on every device.
class RandomWeights {
 public:
  // In the layouts of `target`; of the device itself where that is a GPU.
  RandomWeights(const model::ModelConfig& config, uint64_t seed, Device& device, DeviceKind target)
      : config_(config), device_(device), target_(target), stream_(ops::MixBits(seed)) {}

  Status Fill(const PlacedSlot& placed) {
    const WeightSlot& slot = placed.slot;
    stream_ = ops::MixBits(stream_);
    switch (slot.kind) {
      case WeightSlot::Kind::kVector: {
        // An untrained network whose activations keep their size.
        const bool is_norm_weight =
            slot.name.ends_with("norm.weight") || slot.name.ends_with("ln_f.weight");
        return FillVector(placed, is_norm_weight ? 1.0F : 0.0F);
      }
      case WeightSlot::Kind::kScales:
        CHECK(!HasBlocks(slot));  // which files alone have
        if (HasExponents(slot)) return FillExponents(placed);
        return FillVector(placed, bound_ / CodeBound(slot.form.dtype));
      case WeightSlot::Kind::kOffsets:  // codes have a mean of -1 / 2
        return FillVector(placed, bound_ / CodeBound(slot.form.dtype) / 2);
      case WeightSlot::Kind::kOrder:
        return FillOrder(placed);
      case WeightSlot::Kind::kMatrix:
      case WeightSlot::Kind::kTable:
        return FillRows(placed);
    }
    return Status::Ok();
  }

 private:
  Status FillOrder(const PlacedSlot& placed) {
    std::vector<int32_t> columns(placed.num_bytes / sizeof(int32_t), ops::kNoColumn);
    const int64_t num_inputs = placed.slot.num_inputs;
    std::iota(columns.begin(), num_inputs == 0 ? columns.end() : columns.begin() + num_inputs, 0);
    return device_.Copy(placed.target, columns.data(), placed.num_bytes);
  }

  Status FillExponents(const PlacedSlot& placed) {
    const float exponent = std::round(std::log2(bound_ / CodeBound(placed.slot.form.dtype)));
    const std::vector<uint8_t> values(placed.num_bytes, static_cast<uint8_t>(127 + exponent));
    return device_.Copy(placed.target, values.data(), placed.num_bytes);
  }

  Status FillVector(const PlacedSlot& placed, float value) {
    const std::vector<float> values(placed.num_bytes / sizeof(float), value);
    return device_.Copy(placed.target, values.data(), placed.num_bytes);
  }

  Status FillRows(const PlacedSlot& placed) {
    const WeightSlot& slot = placed.slot;
    const int64_t width = slot.shape[1];
    const DType dtype = StoredDType(config_, slot);
    bound_ = std::numbers::sqrt3_v<float> / std::sqrt(static_cast<float>(width));
    const float bound = slot.is_quantized ? CodeBound(dtype) : bound_;
    if (device_.kind() == DeviceKind::kCuda)
      return ops::FillUniformOnGpu({.data = placed.target,
                                    .dtype = dtype,
                                    .n = slot.shape.num_elements(),
                                    .bound = bound,
                                    .stream = stream_},
                                   device_);
    const auto rows = [&](int64_t row, int64_t num_rows, void* out) {
      FillUniform(stream_, static_cast<uint64_t>(row * width), num_rows * width, bound, dtype, out);
    };
    if (slot.kind == WeightSlot::Kind::kTable)
      rows(0, slot.shape[0], placed.target);
    else
      PackMatrix(config_, slot, target_, rows, device_.cpu_pool(), placed.target);
    return Status::Ok();
  }

  const model::ModelConfig& config_;
  Device& device_;
  const DeviceKind target_;
  uint64_t stream_;
  float bound_ = 0;  // of the last matrix, for its scales
};

}  // namespace

Result<std::shared_ptr<const model::Engine>> Random(const model::ModelConfig& config,
                                                    const model::EngineLimits& limits,
                                                    uint64_t seed, Device& device, bool tune,
                                                    std::vector<int> streamed_layers,
                                                    bool can_release) {
  RETURN_IF_ERROR(model::Validate(config));
  RETURN_IF_ERROR(model::CheckRuns(config, device));
  ASSIGN_OR_RETURN(const model::EngineLimits resolved, model::ResolveLimits(config, limits));
  const auto fill = [&](std::span<const PlacedSlot> slots) {
    RandomWeights weights(config, seed, device, device.kind());
    for (const PlacedSlot& placed : slots) RETURN_IF_ERROR(weights.Fill(placed));
    return device.Wait();
  };
  EngineHead head = {.config = config,
                     .limits = resolved,
                     .tokenizer_dir = {},
                     .streamed_layers = std::move(streamed_layers),
                     .place = {.can_release = can_release}};
  if (tune && device.kind() == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(head.kernel_tuning, TuneProducts(config, resolved, device));
  }
  return MakeEngine(std::move(head), device, fill, {});
}

Status BuildRandom(const model::ModelConfig& config, const BuildOptions& options, uint64_t seed) {
  RETURN_IF_ERROR(model::Validate(config));
  RETURN_IF_ERROR(model::CheckSupported(config, model::FactsOf(options.target)));
  ASSIGN_OR_RETURN(const model::EngineLimits limits, model::ResolveLimits(config, options.limits));
  if (!options.tokenizer_dir.empty() && TokenizerDir(options.tokenizer_dir).empty())
    return NotFound("tokenizer_dir: got " + options.tokenizer_dir.string() +
                    ", no tokenizer's files are in it");
  if (options.dry_run) return Status::Ok();
  const std::unique_ptr<Device> host = Device::Cpu();
  RETURN_IF_ERROR(artifact::CreateDirectory(options.output_dir));
  RandomWeights weights(config, seed, *host, options.target);
  RETURN_IF_ERROR(WriteEngineFile(config, options.output_dir / artifact::EngineFileName(0),
                                  options.target, *host,
                                  [&](const PlacedSlot& placed) { return weights.Fill(placed); }));
  if (!options.tokenizer_dir.empty())
    RETURN_IF_ERROR(CopyModelFiles(options.tokenizer_dir, options.output_dir));
  RETURN_IF_ERROR(artifact::RemoveFurtherEngineFiles(options.output_dir, 1));
  return WriteEngineConfig(
      options.output_dir, {.model = config, .sharding = {}, .rank_checksums = {}, .limits = limits},
      nullptr);
}

}  // namespace inflight::builder
