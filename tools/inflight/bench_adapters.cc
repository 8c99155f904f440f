// SPDX-License-Identifier: Apache-2.0
#include "bench_adapters.h"

#include <algorithm>
#include <random>

#include "model/adapter.h"
#include "tensor/element.h"

namespace inflight::tool {

std::shared_ptr<const LoraTensors> RandomAdapter(const model::ModelConfig& config, int rank) {
  auto out = std::make_shared<LoraTensors>();
  for (int layer = 0; layer < config.num_layers; ++layer)
    for (int module = 1; module < model::kNumLoraModules; ++module) {
      if (module == 7 && !config.gated_mlp) continue;
      const model::LoraPlace place = model::PlaceOf(config, module);
      out->rows.push_back({.module = module, .layer = layer, .rank = rank});
      out->width = std::max(out->width, rank * (place.in_features + place.num_features));
    }
  switch (config.dtype) {
    case DType::kF16:
      out->dtype = LoraDType::kFloat16;
      break;
    case DType::kBF16:
      out->dtype = LoraDType::kBFloat16;
      break;
    default:
      out->dtype = LoraDType::kFloat32;
  }
  // A few thousand numbers, again and again: nobody looks at what comes out.
  constexpr size_t kNumbers = 4099;
  std::vector<std::byte> numbers(kNumbers * SizeOf(config.dtype));
  std::mt19937 random(1);
  for (size_t i = 0; i < kNumbers; ++i)
    StoreFloat(numbers.data(), config.dtype, static_cast<int64_t>(i),
               static_cast<float>(random() % 2001) * 1e-6F - 1e-3F);
  out->weights.resize(out->rows.size() * static_cast<size_t>(out->width) * SizeOf(config.dtype));
  for (size_t at = 0; at < out->weights.size(); at += numbers.size())
    std::copy_n(numbers.begin(), std::min(numbers.size(), out->weights.size() - at),
                out->weights.begin() + static_cast<std::ptrdiff_t>(at));
  return out;
}

}  // namespace inflight::tool
