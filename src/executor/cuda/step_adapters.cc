// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/step_adapters.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace inflight::executor::cuda {
uint64_t StepAdapters::LayOut(const MemoryPlan& plan, std::byte* base, Arrays* arrays) {
  constexpr uint64_t kAlignment = 256;
  uint64_t size = 0;
  const auto place = [&]<typename T>(T*& array, int count) {
    array = base == nullptr ? nullptr : reinterpret_cast<T*>(base + size);
    size += (static_cast<uint64_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  };
  place(arrays->slots, plan.max_slots + 1);
  place(arrays->order, plan.max_num_tokens);
  // Of a token each at the least; kernels look behind the last one.
  place(arrays->tiles, plan.max_num_tokens + scheduler::StepPlan::kMaxRows);
  place(arrays->num_tiles, 1);
  return size;
}

uint64_t StepAdapters::Bytes(const MemoryPlan& plan) {
  Arrays arrays;
  return LayOut(plan, nullptr, &arrays);
}

Result<std::unique_ptr<StepAdapters>> StepAdapters::Create(
    std::shared_ptr<const model::Engine> engine, Device& device, const MemoryPlan& plan) {
  std::unique_ptr<StepAdapters> adapters(new StepAdapters());
  ASSIGN_OR_RETURN(adapters->buffer_, Buffer::Allocate(device, "step adapters", Bytes(plan)));
  LayOut(plan, adapters->buffer_.data(), &adapters->arrays_);
  adapters->slots_.resize(static_cast<size_t>(plan.max_slots) + 1);  // and the scratch slot
  ASSIGN_OR_RETURN(adapters->cache_, AdapterCache::Create(std::move(engine), device,
                                                          {.num_bytes = plan.adapter_bytes,
                                                           .is_booked = plan.books_adapters,
                                                           .max_num_tokens = plan.max_num_tokens,
                                                           .host_bytes = plan.adapter_host_bytes}));
  return adapters;
}

Status StepAdapters::SetUp(const SlotSetup& setup, cudaStream_t stream) {
  const int adapter = setup.adapter == nullptr ? 0 : setup.adapter->index + 1;
  const auto set = [&](scheduler::SlotId slot) {
    int& known = slots_[static_cast<size_t>(slot)];
    if (known == adapter) return Status::Ok();
    known = adapter;
    return SetAdapter(arrays_.slots, slot, adapter, stream);
  };
  RETURN_IF_ERROR(set(setup.slot));
  for (const scheduler::SlotId beam : setup.beam_slots) RETURN_IF_ERROR(set(beam));
  return Status::Ok();
}

bool StepAdapters::AreIn(const scheduler::StepPlan& plan) const {
  return std::any_of(
      plan.rows.begin(), plan.rows.begin() + plan.num_rows,
      [this](const scheduler::PlanRow& row) { return slots_[static_cast<size_t>(row.slot)] != 0; });
}

Result<ops::LoraBatch*> StepAdapters::Find(const StepShape& shape, const StepState& state,
                                           cudaStream_t stream) {
  if (!shape.has_adapters) return static_cast<ops::LoraBatch*>(nullptr);
  const int tile_tokens = shape.has_prefill() ? ops::kLargeLoraTile : ops::kSmallLoraTile;
  RETURN_IF_ERROR(FindTiles({.slot_adapters = arrays_.slots,
                             .row_slots = state.tensors().table_rows,
                             .row_ends = state.tensors().cu_seqlens_q,
                             .num_rows = shape.num_rows,
                             .tile_tokens = tile_tokens,
                             .order = arrays_.order,
                             .tiles = arrays_.tiles,
                             .num_tiles = arrays_.num_tiles},
                            stream));
  batch_.device = cache_->tables();
  batch_.device.order = arrays_.order;
  batch_.device.tiles = arrays_.tiles;
  batch_.device.num_tiles = arrays_.num_tiles;
  batch_.device.tile_tokens = tile_tokens;
  return &batch_;
}

}  // namespace inflight::executor::cuda
