// SPDX-License-Identifier: Apache-2.0
#include "builder/engine_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "artifact/engine_file.h"

namespace inflight::builder {
namespace {

uint64_t AlignUp(uint64_t value) {
  return (value + artifact::kEngineAlignment - 1) / artifact::kEngineAlignment *
         artifact::kEngineAlignment;
}

}  // namespace

uint64_t EngineBytes(const model::ModelConfig& config, DeviceKind device) {
  model::DecoderWeights unused;
  uint64_t total = 0;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused))
    total += AlignUp(model::StoredBytes(config, slot, device));
  return total;
}

Result<std::shared_ptr<const model::Engine>> MakeEngine(EngineHead head, Device& device,
                                                        const FillSlot& fill,
                                                        const Progress& progress) {
  auto engine = std::make_shared<model::Engine>();
  engine->config = std::move(head.config);
  engine->limits = head.limits;
  engine->tokenizer_dir = std::move(head.tokenizer_dir);
  const model::ModelConfig& config = engine->config;
  engine->weight_bytes = EngineBytes(config, device.kind());
  ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(device, "weights", engine->weight_bytes));
  std::byte* target = buffer.data();
  const bool on_host = device.kind() == DeviceKind::kCpu;
  std::vector<std::byte> staging;  // one slot at a time on its way to the GPU
  for (const model::WeightSlot& slot : model::WeightSlots(config, engine->weights)) {
    if (progress)
      progress(
          static_cast<double>(target - buffer.data()) / static_cast<double>(engine->weight_bytes),
          slot.name);
    const uint64_t num_bytes = model::StoredBytes(config, slot, device.kind());
    if (on_host) {
      fill(slot, target);
    } else {
      staging.resize(std::max(staging.size(), static_cast<size_t>(num_bytes)));
      fill(slot, staging.data());
      RETURN_IF_ERROR(device.Copy(target, staging.data(), num_bytes));
    }
    model::Bind(config, slot, device.kind(), target);
    target += AlignUp(num_bytes);
  }
  if (config.tied_embeddings) engine->weights.lm_head = engine->weights.vocab_embedding;
  engine->buffers.push_back(std::move(buffer));
  if (progress) progress(1.0, "ready");
  return std::shared_ptr<const model::Engine>(std::move(engine));
}

}  // namespace inflight::builder
