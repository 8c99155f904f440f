// SPDX-License-Identifier: Apache-2.0
#include "builder/weight_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "builder/engine_memory.h"
#include "tensor/releasable_memory.h"

namespace inflight::builder {
namespace {

double GiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// A process that takes more than there is would be killed, not told.
Status CheckHostMemory(uint64_t needed) {
  if (needed == 0) return Status::Ok();
  const uint64_t available = AvailableHostBytes();
  if (needed <= available) return Status::Ok();
  return OutOfMemory(fmt::format(
      "gpu_weights_percent: the weights of layers that do not stay on the GPU take {:.2f} GiB of "
      "pinned host memory, {:.2f} GiB are free; raise it, or store the model in fewer bits "
      "(--use-weight-only, --use-fp8-rowwise)",
      GiB(needed), GiB(available)));
}

}  // namespace

Result<std::byte*> WeightMemory::TakeDeviceMemory(Device& device, uint64_t num_bytes,
                                                  const WeightPlace& place) {
  if (place.into != nullptr) {
    const auto& memory = place.into->releasable;
    if (memory.size() != 1 || memory.front()->size() != num_bytes)
      return FailedPrecondition(fmt::format(
          "the model's directory has {} bytes of weights, {} were loaded from it; unload "
          "the model and load it again",
          num_bytes, memory.empty() ? 0 : memory.front()->size()));
    releasable_ = memory.front();
    return releasable_->data();
  }
  if (place.can_release) {
    ASSIGN_OR_RETURN(releasable_, AllocateReleasableWeights(device, num_bytes));
    return releasable_->data();
  }
  ASSIGN_OR_RETURN(device_, AllocateWeights(device, num_bytes));
  return device_.data();
}

Result<WeightMemory> WeightMemory::Allocate(Device& device, uint64_t num_bytes,
                                            std::span<const LayerRange> host,
                                            const WeightPlace& place) {
  WeightMemory memory;
  uint64_t host_bytes = 0;
  for (const LayerRange& range : host) host_bytes += range.num_bytes;
  RETURN_IF_ERROR(CheckHostMemory(host_bytes));
  ASSIGN_OR_RETURN(std::byte * next,
                   memory.TakeDeviceMemory(device, num_bytes - host_bytes, place));
  uint64_t end = 0;
  const auto stay_until = [&](uint64_t until) {
    if (until == end) return;
    memory.Place(until, next, /*is_on_host=*/false);
    next += until - end;
    end = until;
  };
  for (const LayerRange& range : host) {
    CHECK_LE(end, range.offset_bytes);
    stay_until(range.offset_bytes);
    Result<PinnedBuffer> pinned = PinnedBuffer::AllocateLarge(device, range.num_bytes);
    if (!pinned.ok()) return pinned.status().WithPrefix("gpu_weights_percent");
    memory.Place(range.offset_bytes + range.num_bytes, pinned->data(), /*is_on_host=*/true);
    end = range.offset_bytes + range.num_bytes;
    memory.host_layers_.push_back(
        {.layer = range.layer, .data = pinned->data(), .num_bytes = range.num_bytes});
    memory.host_.push_back(*std::move(pinned));
  }
  stay_until(num_bytes);
  return memory;
}

void WeightMemory::Place(uint64_t end, std::byte* data, bool is_on_host) {
  const uint64_t begin = parts_.empty() ? 0 : parts_.back().offset_bytes + parts_.back().num_bytes;
  parts_.push_back(
      {.offset_bytes = begin, .num_bytes = end - begin, .data = data, .is_on_host = is_on_host});
}

const artifact::LoadTarget& WeightMemory::PartOf(uint64_t offset_bytes) const {
  const auto behind =
      std::ranges::upper_bound(parts_, offset_bytes, {}, &artifact::LoadTarget::offset_bytes);
  CHECK(behind != parts_.begin());
  return *std::prev(behind);
}

std::byte* WeightMemory::At(uint64_t offset_bytes) const {
  const artifact::LoadTarget& part = PartOf(offset_bytes);
  return part.data + (offset_bytes - part.offset_bytes);
}

void WeightMemory::GiveTo(model::Engine* engine) {
  engine->host_layers = std::move(host_layers_);
  if (releasable_ != nullptr) {
    engine->releasable.push_back(std::move(releasable_));
  } else {
    engine->buffers.push_back(std::move(device_));
  }
  std::ranges::move(host_, std::back_inserter(engine->pinned));
}

}  // namespace inflight::builder
