// SPDX-License-Identifier: Apache-2.0
#include "executor/sleeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"

namespace inflight::executor {
namespace {

using MemoryList = std::vector<std::shared_ptr<ReleasableMemory>>;

bool IsOnGpu(const ReleasableMemory& memory) { return memory.device().kind() == DeviceKind::kCuda; }

// `work` on each, those of a device one after the other and devices side by side. The first error.
Status ForEachDevice(const MemoryList& memories,
                     const std::function<Status(ReleasableMemory&)>& work) {
  std::map<Device*, std::vector<ReleasableMemory*>> by_device;
  for (const auto& memory : memories) by_device[&memory->device()].push_back(memory.get());
  const auto run = [&work](const std::vector<ReleasableMemory*>& list) {
    for (ReleasableMemory* const memory : list) RETURN_IF_ERROR(work(*memory));
    return Status::Ok();
  };
  if (by_device.empty()) return Status::Ok();
  std::vector<Status> results(by_device.size());
  {
    std::vector<std::jthread> threads;
    size_t i = 0;
    for (const auto& [device, list] : by_device) {
      Status& result = results[i++];
      if (i == by_device.size()) {
        result = StatusOf([&] { return run(list); });
      } else {
        threads.emplace_back([&run, &result, &list] {
          NameThisThread("sleep");
          result = StatusOf([&] { return run(list); });
        });
      }
    }
  }
  for (const Status& result : results) RETURN_IF_ERROR(result);
  return Status::Ok();
}

uint64_t BytesGivenBack(const MemoryList& memories) {
  uint64_t sum = 0;
  for (const auto& memory : memories) sum += memory->is_there() ? 0 : memory->size();
  return sum;
}

double Milliseconds(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

}  // namespace

Status Sleeper::Check(int level) const {
  if (level != 1 && level != 2)
    return InvalidArgument(
        "level", fmt::format("got {}, must be 1 (weights are kept in host memory) or 2 (they are "
                             "read from the model's directory again)",
                             level));
  RETURN_IF_ERROR(options_.no_sleep);
  if (level == 2 && options_.reload == nullptr) return options_.no_reload;
  return Status::Ok();
}

Sleeper::Memories Sleeper::WeightsToRelease(int level) const {
  Memories given;
  for (const auto& memory : parts_.weights)
    if (level == 2 || IsOnGpu(*memory)) given.push_back(memory);
  for (const auto& memory : parts_.draft_weights)
    if (IsOnGpu(*memory)) given.push_back(memory);
  return given;
}

Status Sleeper::Sleep(int level) {
  const int64_t start_ns = Clock::System().NowNs();
  RETURN_IF_ERROR(Check(level));
  level = std::max(level, level_);
  Memories kept = level == 1 ? WeightsToRelease(1) : Memories();
  if (level == 2)
    std::ranges::copy_if(parts_.draft_weights, std::back_inserter(kept),
                         [](const auto& memory) { return IsOnGpu(*memory); });
  RETURN_IF_ERROR(CopyToHost(kept));
  Memories given = WeightsToRelease(level);
  given.insert(given.end(), parts_.kv_cache.begin(), parts_.kv_cache.end());
  if (const Status released = Release(given); !released.ok()) {
    (void)Wake({});
    return released;
  }
  std::erase_if(copies_, [&](const Copy& copy) { return !std::ranges::count(kept, copy.memory); });
  level_ = level;
  Note();
  const std::lock_guard lock(mutex_);
  state_.last_sleep_ns = Clock::System().NowNs() - start_ns;
  logging::Info("the model sleeps", {{"model", options_.owner},
                                     {"level", level},
                                     {"weight_bytes", state_.weight_bytes},
                                     {"kv_cache_bytes", state_.kv_cache_bytes},
                                     {"host_copy_bytes", state_.host_copy_bytes},
                                     {"ms", Milliseconds(state_.last_sleep_ns)}});
  return Status::Ok();
}

Status Sleeper::CopyToHost(const Memories& memories) {
  Memories missing;
  uint64_t num_bytes = 0;
  for (const auto& memory : memories) {
    const bool has_copy =
        std::ranges::any_of(copies_, [&](const Copy& copy) { return copy.memory == memory; });
    if (has_copy || !memory->is_there()) continue;
    missing.push_back(memory);
    num_bytes += memory->size();
  }
  if (const uint64_t available = AvailableHostBytes(); num_bytes > available)
    return OutOfMemory(
        fmt::format("level: at level 1 the weights take {} bytes of host memory, {} are free; free "
                    "memory, or sleep at level 2, from which they are read again",
                    num_bytes, available));
  std::mutex mutex;  // of copies_
  return ForEachDevice(missing, [&](ReleasableMemory& memory) -> Status {
    auto bytes = PinnedBuffer::AllocateLarge(memory.device(), memory.size());
    if (!bytes.ok()) return bytes.status().WithPrefix("level: host memory for the weights");
    RETURN_IF_ERROR(memory.device().Copy(bytes->data(), memory.data(), memory.size()));
    const auto owner = std::ranges::find(missing, &memory, [](const auto& m) { return m.get(); });
    const std::lock_guard lock(mutex);
    copies_.push_back({.memory = *owner, .bytes = *std::move(bytes)});
    return Status::Ok();
  });
}

Status Sleeper::Release(const Memories& memories) {
  return ForEachDevice(memories, [](ReleasableMemory& memory) { return memory.Release(); });
}

// All of them or none that was not there.
Status Sleeper::TakeBack(const Memories& memories) {
  Memories missing;
  std::ranges::copy_if(memories, std::back_inserter(missing),
                       [](const auto& memory) { return !memory->is_there(); });
  const Status taken = ForEachDevice(missing, [this](ReleasableMemory& memory) {
    MemoryLedger& ledger = memory.device().ledger();
    const auto sizing = ledger.LockSizing();
    const MemoryLedger::OwnerScope scope(ledger, options_.owner);
    return memory.TakeBack();
  });
  if (!taken.ok()) (void)Release(missing);
  return taken;
}

Status Sleeper::CopyBack() {
  Memories targets;
  for (const Copy& copy : copies_) targets.push_back(copy.memory);
  return ForEachDevice(targets, [this](ReleasableMemory& memory) {
    const auto copy =
        std::ranges::find(copies_, &memory, [](const Copy& c) { return c.memory.get(); });
    return memory.device().Copy(memory.data(), copy->bytes.data(), memory.size());
  });
}

Status Sleeper::WakeWeights() {
  const Memories given = WeightsToRelease(level_);
  if (std::ranges::all_of(given, [](const auto& memory) { return memory->is_there(); }))
    return Status::Ok();
  RETURN_IF_ERROR(TakeBack(given));
  Status filled = CopyBack();
  if (filled.ok() && level_ == 2) filled = options_.reload();
  if (!filled.ok()) (void)Release(given);
  return filled;
}

Status Sleeper::Wake(const WakeOptions& options) {
  const int64_t start_ns = Clock::System().NowNs();
  Status woken;
  if (options.weights) woken = WakeWeights();
  if (woken.ok() && options.kv_cache) woken = TakeBack(parts_.kv_cache);
  Note();
  if (!woken.ok()) return woken;
  const std::lock_guard lock(mutex_);
  if (state_.weight_bytes == 0 && state_.kv_cache_bytes == 0) level_ = state_.level = 0;
  state_.last_wake_ns = Clock::System().NowNs() - start_ns;
  logging::Info("memory of a model was taken again", {{"model", options_.owner},
                                                      {"weights", options.weights},
                                                      {"kv_cache", options.kv_cache},
                                                      {"is_awake", state_.level == 0},
                                                      {"ms", Milliseconds(state_.last_wake_ns)}});
  return Status::Ok();
}

void Sleeper::Note() {
  const std::lock_guard lock(mutex_);
  state_.level = level_;
  state_.weight_bytes = BytesGivenBack(parts_.weights) + BytesGivenBack(parts_.draft_weights);
  state_.kv_cache_bytes = BytesGivenBack(parts_.kv_cache);
  state_.host_copy_bytes = 0;
  for (const Copy& copy : copies_) state_.host_copy_bytes += copy.bytes.size();
}

SleepState Sleeper::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

}  // namespace inflight::executor
