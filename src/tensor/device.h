// SPDX-License-Identifier: Apache-2.0
// Devices belong to the process, not to a model: one memory ledger (and on the CPU one pool) each,
// from which every executor takes named shares and returns all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "inflight/status.h"
#include "tensor/cpu_pool.h"
#include "tensor/cuda_runtime_calls.h"

namespace inflight {

enum class DeviceKind : uint8_t { kCpu, kCuda };

class MemoryLedger;

// A named amount of a device's memory; gives it back when destroyed. Movable.
class MemoryShare {
 public:
  MemoryShare() = default;
  MemoryShare(MemoryShare&& other) noexcept;
  MemoryShare& operator=(MemoryShare&& other) noexcept;
  ~MemoryShare();

  uint64_t bytes() const { return bytes_; }

 private:
  friend class MemoryLedger;
  MemoryShare(MemoryLedger* ledger, uint64_t id, uint64_t bytes)
      : ledger_(ledger), id_(id), bytes_(bytes) {}
  MemoryLedger* ledger_ = nullptr;
  uint64_t id_ = 0;
  uint64_t bytes_ = 0;
};

// Accounts for all memory that executors take from one device.
// Threads: all methods are thread-safe. Whoever sizes itself by free_bytes() holds LockSizing()
// until it has taken its shares, so that two loads cannot both take 90 %.
class MemoryLedger {
 public:
  explicit MemoryLedger(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t free_bytes() const;

  // kResourceExhausted names the share, the bytes asked and the bytes free.
  Result<MemoryShare> Take(std::string name, uint64_t bytes);

  [[nodiscard]] std::unique_lock<std::mutex> LockSizing() { return std::unique_lock(sizing_); }

  // While it lives, what this thread takes stands under the name of `owner`: "owner: weights".
  class OwnerScope {
   public:
    OwnerScope(MemoryLedger& ledger, std::string owner);
    OwnerScope(const OwnerScope&) = delete;
    OwnerScope& operator=(const OwnerScope&) = delete;
    ~OwnerScope();

   private:
    MemoryLedger& ledger_;
    std::string outer_;  // restored at the end
  };

  struct Entry {
    std::string name;
    uint64_t bytes;
  };
  std::vector<Entry> entries() const;  // what is taken now, in the order of taking

 private:
  friend class MemoryShare;
  void Return(uint64_t id);
  std::string NameOf(const std::string& name) const;  // with its owner; under the lock
  std::string SetOwner(std::string owner);            // returns the one before

  struct Taken {
    uint64_t id;
    Entry entry;
  };
  const uint64_t capacity_bytes_;
  std::mutex sizing_;  // before mutex_
  mutable std::mutex mutex_;
  std::vector<Taken> taken_;
  uint64_t taken_bytes_ = 0;
  uint64_t next_id_ = 1;
  std::map<std::thread::id, std::string> owners_;  // of threads that load
};

// Memory this process can still use: MemAvailable, cut by the cgroup v2 or v1 limit.
uint64_t AvailableHostBytes();

// One device of the process. The CPU's capacity is the memory available to this process at creation
// (cgroup limit included); a GPU's is what is free on it then, which another process may have cut.
class Device {
 public:
  // "auto" is the first GPU where this build and machine have one, else the CPU; "cpu", "cuda" (the
  // first) and "cuda:1" name one. Errors as of cuda::Probe; kInvalidArgument for other names.
  // `num_threads` of the host pool: 0 = the usable cores.
  static Result<std::unique_ptr<Device>> ByName(std::string_view name, int num_threads = 0);

  static std::unique_ptr<Device> Cpu(int num_threads = 0);
  static std::unique_ptr<Device> CpuWithCapacity(int num_threads,
                                                 uint64_t capacity_bytes);  // for tests
  static Result<std::unique_ptr<Device>> Cuda(int index, int num_threads = 0);

  DeviceKind kind() const { return kind_; }
  const std::string& name() const { return name_; }  // "cpu", "cuda:0"
  MemoryLedger& ledger() { return ledger_; }
  // What can be taken now: the ledger's free bytes, on a GPU not more than other processes left.
  uint64_t FreeBytes() const;
  // Runs the kernels of a CPU device; of others, what the host does while loading.
  CpuPool& cpu_pool() { return *pool_; }
  const cuda::DeviceProperties& cuda() const { return cuda_; }  // of CUDA devices

  // Between host memory and memory of this device, in either direction; waits until it is done.
  Status Copy(void* target, const void* source, size_t num_bytes);
  Status Wait();  // until all that was enqueued on the device is done

 private:
  Device(DeviceKind kind, std::string name, uint64_t capacity_bytes, std::unique_ptr<CpuPool> pool);

  DeviceKind kind_;
  std::string name_;
  MemoryLedger ledger_;
  std::unique_ptr<CpuPool> pool_;
  cuda::DeviceProperties cuda_;
};

}  // namespace inflight
