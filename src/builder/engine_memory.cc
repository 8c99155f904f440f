// SPDX-License-Identifier: Apache-2.0
#include "builder/engine_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "artifact/engine_file.h"
#include "base/status_macros.h"
#include "builder/weight_memory.h"
#include "ops/tensor_core_order.h"
#include "tensor/releasable_memory.h"

namespace inflight::builder {
namespace {

std::vector<uint64_t> BytesOfLayers(const model::ModelConfig& config, DeviceKind device) {
  model::DecoderWeights unused;
  std::vector<uint64_t> bytes(static_cast<size_t>(config.num_layers));
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused))
    if (slot.layer >= 0)
      bytes[static_cast<size_t>(slot.layer)] +=
          artifact::EngineAlignUp(model::StoredBytes(config, slot, device));
  return bytes;
}

// Of layers whose slots follow each other: those of the list `layers`.
std::vector<LayerRange> RangesOf(std::span<const PlacedSlot> slots, std::span<const uint64_t> at,
                                 std::span<const int> layers) {
  std::vector<LayerRange> ranges;
  for (size_t i = 0; i < slots.size(); ++i) {
    const int layer = slots[i].slot.layer;
    if (layer < 0 || !std::ranges::binary_search(layers, layer)) continue;
    if (ranges.empty() || ranges.back().layer != layer)
      ranges.push_back({.layer = layer, .offset_bytes = at[i]});
    ranges.back().num_bytes =
        at[i] + artifact::EngineAlignUp(slots[i].num_bytes) - ranges.back().offset_bytes;
  }
  return ranges;
}

}  // namespace

uint64_t EngineBytes(const model::ModelConfig& config, DeviceKind device) {
  model::DecoderWeights unused;
  uint64_t total = 0;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused))
    total += artifact::EngineAlignUp(model::StoredBytes(config, slot, device));
  return total;
}

uint64_t LayerBytes(const model::ModelConfig& config, DeviceKind device) {
  uint64_t most = 0;
  for (const uint64_t bytes : BytesOfLayers(config, device)) most = std::max(most, bytes);
  return most;
}

ParameterCounts CountParameters(const model::ModelConfig& config) {
  model::DecoderWeights unused;
  ParameterCounts counts;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused)) {
    if (IsOfMatrix(slot)) continue;
    const int64_t elements = slot.shape.num_elements();
    counts.total += elements;
    counts.active +=
        slot.num_experts > 0 ? elements / slot.num_experts * ExpertsOfToken(config) : elements;
  }
  return counts;
}

namespace {

// `taken` with what helps, where there is not so much memory.
Status WithRemedy(const Status& taken, Device& device, uint64_t num_bytes) {
  if (taken.reason() != Reason::kOutOfMemory) return taken;
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

}  // namespace

Result<Buffer> AllocateWeights(Device& device, uint64_t num_bytes) {
  Result<Buffer> buffer = Buffer::Allocate(device, "weights", num_bytes);
  if (!buffer.ok()) return WithRemedy(buffer.status(), device, num_bytes);
  return buffer;
}

Result<std::shared_ptr<ReleasableMemory>> AllocateReleasableWeights(Device& device,
                                                                    uint64_t num_bytes) {
  auto memory = ReleasableMemory::Allocate(device, "weights", num_bytes);
  if (!memory.ok()) return WithRemedy(memory.status(), device, num_bytes);
  return memory;
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
  std::vector<PlacedSlot> slots;
  std::vector<uint64_t> offsets;  // of each slot
  for (model::WeightSlot& slot : model::WeightSlots(config, engine->weights)) {
    const uint64_t num_bytes = model::StoredBytes(config, slot, device.kind());
    offsets.push_back(engine->weight_bytes);
    engine->weight_bytes += artifact::EngineAlignUp(num_bytes);
    slots.push_back({.slot = std::move(slot), .num_bytes = num_bytes});
  }
  ASSIGN_OR_RETURN(
      WeightMemory memory,
      WeightMemory::Allocate(device, engine->weight_bytes,
                             RangesOf(slots, offsets, head.streamed_layers), head.place));
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i].target = memory.At(offsets[i]);
    slots[i].is_on_host = memory.PartOf(offsets[i]).is_on_host;
    model::Bind(config, slots[i].slot, device.kind(), slots[i].target);
  }
  RETURN_IF_ERROR(fill(slots));
  if (device.kind() == DeviceKind::kCpu) {
    std::vector<model::WeightSlot> bound;
    for (const PlacedSlot& placed : slots) bound.push_back(placed.slot);
    RETURN_IF_ERROR(model::CheckOrders(bound));
  }
  if (config.tied_embeddings) engine->weights.lm_head = engine->weights.vocab_embedding;
  memory.GiveTo(engine.get());
  RETURN_IF_ERROR(OrderForTensorCores(device, engine.get()));
  if (progress) progress(1.0, "ready");
  return std::shared_ptr<const model::Engine>(std::move(engine));
}

Status OrderForTensorCores(Device& device, model::Engine* engine) {
  if (device.kind() != DeviceKind::kCuda) return Status::Ok();
  for (const model::WeightSlot& slot : model::WeightSlots(engine->config, engine->weights)) {
    if (slot.kind != model::WeightSlot::Kind::kMatrix || slot.weight == nullptr ||
        !ops::CanOrderForTensorCores(*slot.weight))
      continue;
    RETURN_IF_ERROR(ops::OrderForTensorCores(device, slot.weight));
  }
  return Status::Ok();
}

}  // namespace inflight::builder
