// SPDX-License-Identifier: Apache-2.0
#include "builder/engine_memory.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "artifact/engine_file.h"
#include "base/status_macros.h"

namespace inflight::builder {
uint64_t EngineBytes(const model::ModelConfig& config, DeviceKind device) {
  model::DecoderWeights unused;
  uint64_t total = 0;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused))
    total += artifact::EngineAlignUp(model::StoredBytes(config, slot, device));
  return total;
}

Result<Buffer> AllocateWeights(Device& device, uint64_t num_bytes) {
  Result<Buffer> buffer = Buffer::Allocate(device, "weights", num_bytes);
  if (buffer.ok() || buffer.status().reason() != Reason::kOutOfMemory) return buffer;
  const bool is_cuda = device.kind() == DeviceKind::kCuda;
  return OutOfMemory(
      fmt::format("{}{}: the weights take {:.2f} GiB, {:.2f} GiB are free; free memory{}, or store "
                  "the model in "
                  "fewer bits (--use-weight-only{})",
                  device.name(), is_cuda ? fmt::format(" ({})", device.cuda().name) : "",
                  static_cast<double>(num_bytes) / (1 << 30),
                  static_cast<double>(device.FreeBytes()) / (1 << 30),
                  is_cuda ? ", choose another GPU (--device cuda:N)" : "",
                  is_cuda ? ", --use-fp8-rowwise" : ""));
}

Result<std::shared_ptr<const model::Engine>> MakeEngine(EngineHead head, Device& device,
                                                        const FillSlots& fill,
                                                        const Progress& progress) {
  auto engine = std::make_shared<model::Engine>();
  engine->config = std::move(head.config);
  engine->limits = head.limits;
  engine->tokenizer_dir = std::move(head.tokenizer_dir);
  engine->kernel_tuning = std::move(head.kernel_tuning);
  const model::ModelConfig& config = engine->config;
  engine->weight_bytes = EngineBytes(config, device.kind());
  ASSIGN_OR_RETURN(Buffer buffer, AllocateWeights(device, engine->weight_bytes));
  std::vector<PlacedSlot> slots;
  std::byte* target = buffer.data();
  for (model::WeightSlot& slot : model::WeightSlots(config, engine->weights)) {
    const uint64_t num_bytes = model::StoredBytes(config, slot, device.kind());
    model::Bind(config, slot, device.kind(), target);
    slots.push_back({std::move(slot), target, num_bytes});
    target += artifact::EngineAlignUp(num_bytes);
  }
  RETURN_IF_ERROR(fill(slots));
  if (config.tied_embeddings) engine->weights.lm_head = engine->weights.vocab_embedding;
  engine->buffers.push_back(std::move(buffer));
  if (progress) progress(1.0, "ready");
  return std::shared_ptr<const model::Engine>(std::move(engine));
}

}  // namespace inflight::builder
