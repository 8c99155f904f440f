// SPDX-License-Identifier: Apache-2.0
#include "builder/engine_memory.h"

#include <utility>

#include "artifact/engine_file.h"

namespace inflight::builder {
namespace {

uint64_t AlignUp(uint64_t value) {
  return (value + artifact::kEngineAlignment - 1) / artifact::kEngineAlignment *
         artifact::kEngineAlignment;
}

}  // namespace

uint64_t EngineBytes(const model::ModelConfig& config) {
  model::DecoderWeights unused;
  uint64_t total = 0;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused))
    total += AlignUp(model::StoredBytes(config, slot));
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
  engine->weight_bytes = EngineBytes(config);
  ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(device, "weights", engine->weight_bytes));
  std::byte* target = buffer.data();
  for (const model::WeightSlot& slot : model::WeightSlots(config, engine->weights)) {
    if (progress)
      progress(
          static_cast<double>(target - buffer.data()) / static_cast<double>(engine->weight_bytes),
          slot.name);
    fill(slot, target);
    model::Bind(config, slot, target);
    target += AlignUp(model::StoredBytes(config, slot));
  }
  if (config.tied_embeddings) engine->weights.lm_head = engine->weights.vocab_embedding;
  engine->buffers.push_back(std::move(buffer));
  if (progress) progress(1.0, "ready");
  return std::shared_ptr<const model::Engine>(std::move(engine));
}

}  // namespace inflight::builder
