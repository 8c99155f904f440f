// SPDX-License-Identifier: Apache-2.0
#include "tensor/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/status_macros.h"
#include "tensor/cgroup.h"

namespace inflight {

uint64_t AvailableHostBytes() {
  uint64_t available = uint64_t{1} << 30;
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib >> unit)
    if (key == "MemAvailable:") available = kib * 1024;
  return LeftByCgroups("/", available);
}

MemoryShare::MemoryShare(MemoryShare&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      id_(other.id_),
      bytes_(std::exchange(other.bytes_, 0)) {}

MemoryShare& MemoryShare::operator=(MemoryShare&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(id_, other.id_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryShare::~MemoryShare() {
  if (ledger_ != nullptr) ledger_->Return(id_);
}

uint64_t MemoryLedger::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return capacity_bytes_ - taken_bytes_;
}

Result<MemoryShare> MemoryLedger::Take(std::string name, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  name = NameOf(name);
  const uint64_t free = capacity_bytes_ - taken_bytes_;
  if (bytes > free)
    return OutOfMemory(
        fmt::format("{}: needs {} bytes, {} of {} are free", name, bytes, free, capacity_bytes_));
  const uint64_t id = next_id_++;
  taken_.push_back({id, {std::move(name), bytes}});
  taken_bytes_ += bytes;
  return MemoryShare(this, id, bytes);
}

MemoryLedger::OwnerScope::OwnerScope(MemoryLedger& ledger, std::string owner)
    : ledger_(ledger), outer_(ledger.SetOwner(std::move(owner))) {}

MemoryLedger::OwnerScope::~OwnerScope() { ledger_.SetOwner(std::move(outer_)); }

std::string MemoryLedger::SetOwner(std::string owner) {
  const std::lock_guard lock(mutex_);
  const auto id = std::this_thread::get_id();
  std::string before = std::exchange(owners_[id], std::move(owner));
  if (owners_[id].empty()) owners_.erase(id);
  return before;
}

std::string MemoryLedger::NameOf(const std::string& name) const {
  const auto owner = owners_.find(std::this_thread::get_id());
  return owner == owners_.end() ? name : owner->second + ": " + name;
}

std::vector<MemoryLedger::Entry> MemoryLedger::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> result;
  for (const Taken& taken : taken_) result.push_back(taken.entry);
  return result;
}

void MemoryLedger::Return(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(taken_.begin(), taken_.end(), [id](const Taken& t) { return t.id == id; });
  taken_bytes_ -= found->entry.bytes;
  taken_.erase(found);
}

Device::Device(DeviceKind kind, std::string name, uint64_t capacity_bytes,
               std::unique_ptr<CpuPool> pool)
    : kind_(kind), name_(std::move(name)), ledger_(capacity_bytes), pool_(std::move(pool)) {}

std::unique_ptr<Device> Device::Cpu(int num_threads) {
  return CpuWithCapacity(num_threads, AvailableHostBytes());
}

std::unique_ptr<Device> Device::CpuWithCapacity(int num_threads, uint64_t capacity_bytes) {
  return std::unique_ptr<Device>(
      new Device(DeviceKind::kCpu, "cpu", capacity_bytes, std::make_unique<CpuPool>(num_threads)));
}

Result<std::unique_ptr<Device>> Device::Cuda(int index, int num_threads) {
  ASSIGN_OR_RETURN(cuda::DeviceProperties properties, cuda::Probe(index));
  std::unique_ptr<Device> device(new Device(DeviceKind::kCuda, fmt::format("cuda:{}", index),
                                            properties.free_bytes,
                                            std::make_unique<CpuPool>(num_threads)));
  device->cuda_ = std::move(properties);
  return device;
}

Result<std::unique_ptr<Device>> Device::ByName(std::string_view name, int num_threads) {
  if (name == "cpu") return Cpu(num_threads);
  if (name == "cuda") return Cuda(0, num_threads);
  if (name == "auto") {
    Result<std::unique_ptr<Device>> gpu = Cuda(0, num_threads);
    return gpu.ok() ? std::move(gpu) : Cpu(num_threads);
  }
  constexpr std::string_view kPrefix = "cuda:";
  if (name.starts_with(kPrefix)) {
    const std::string_view digits = name.substr(kPrefix.size());
    int index = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size())
      return Cuda(index, num_threads);
  }
  return InvalidArgument(fmt::format("device: got '{}', must be auto, cpu, cuda or cuda:N", name));
}

uint64_t Device::FreeBytes() const {
  const uint64_t free = ledger_.free_bytes();
  if (kind_ == DeviceKind::kCpu) return free;
  const Result<uint64_t> on_gpu = cuda::FreeBytes(cuda_.index);
  return on_gpu.ok() ? std::min(free, *on_gpu) : free;
}

Status Device::Wait() {
  return kind_ == DeviceKind::kCuda ? cuda::Wait(cuda_.index) : Status::Ok();
}

Status Device::Copy(void* target, const void* source, size_t num_bytes) {
  if (num_bytes == 0) return Status::Ok();
  if (kind_ == DeviceKind::kCuda) return cuda::Copy(cuda_.index, target, source, num_bytes);
  std::memcpy(target, source, num_bytes);
  return Status::Ok();
}

}  // namespace inflight
