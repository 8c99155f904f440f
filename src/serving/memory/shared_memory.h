// SPDX-License-Identifier: Apache-2.0
// Regions of shared memory that clients registered, POSIX objects and memory of GPUs: tensors of
// requests are read from them and tensors of answers written to them
// (docs/reference/protocol/common.md). Both kinds share one space of names, which each identity has
// of its own: clients of another neither see its regions nor name, or unregister, them.
//
// A region that is unregistered while a request uses it stays, listed and open, until the last such
// request has ended.
//
// Threads: all methods are thread-safe.
// Errors: texts as clients compare them; kUnimplemented where clients may not register at all.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/status.h"
#include "serving/memory/registrant.h"
#include "serving/memory/shared_memory_options.h"
#include "serving/memory/shared_object.h"

namespace inflight::serving {

// What the inputs of one request may copy from regions, all together.
inline constexpr uint64_t kMaxSharedInputBytes = uint64_t{2} << 30;

// Each keeps an object open, and its name and key, which are the memory that it takes here.
inline constexpr size_t kMaxRegions = 1024;
inline constexpr size_t kMaxRegionNameBytes = 1024;  // of a name, and of a key

// Held by who uses a region.
using RegionUse = std::shared_ptr<const void>;

// Bytes [offset, offset + byte_size) of an open object, inside one region.
class SharedWindow {
 public:
  uint64_t byte_size() const { return byte_size_; }
  // All bytes, which are taken off `left`: what the request may still copy (kInvalidArgument where
  // that is less). kInternal when the object does not have them any more.
  Result<std::string> Read(uint64_t& left) const;
  // Into the first bytes; `data` is at most as long as the window.
  Status Write(std::span<const std::byte> data) const;
  // What keeps the region listed; the window is as good without it.
  RegionUse TakeUse() { return std::move(use_); }

 private:
  friend class ClientRegions;
  Status OfRegion(const Status& status) const;

  std::shared_ptr<const SharedObject> object_;
  RegionUse use_;
  std::string region_;
  uint64_t offset_ = 0;  // in the object
  uint64_t byte_size_ = 0;
};

enum class RegionKind : uint8_t { kSystem, kCuda };

struct SharedRegion {
  std::string name;
  std::string key;      // of a POSIX object, as shm_open takes it
  uint64_t offset = 0;  // in that object
  uint64_t byte_size = 0;
  std::optional<int64_t> device_id;  // the GPU whose memory it is

  RegionKind kind() const { return device_id ? RegionKind::kCuda : RegionKind::kSystem; }
};

class SharedMemory;

// The regions that clients of one identity registered.
class ClientRegions {
 public:
  // One region, or all of this kind by name when `name` is empty.
  Result<std::vector<SharedRegion>> Find(RegionKind kind, std::string_view name) const;

  Result<SharedWindow> Window(std::string_view region, uint64_t offset, uint64_t byte_size) const;

 private:
  friend class SharedMemory;
  ClientRegions(const SharedMemory& memory, const Identity& client)
      : memory_(memory), client_(client) {}

  const SharedMemory& memory_;
  const Identity client_;
};

class SharedMemory {
 public:
  // `open_cuda` null: no region of a GPU can be registered.
  explicit SharedMemory(SharedMemoryOptions options, OpenCudaObject open_cuda = nullptr)
      : options_(std::move(options)), open_cuda_(std::move(open_cuda)) {}

  // kPermissionDenied for clients, and objects, that the options do not allow.
  Status Register(SharedRegion region, const Registrant& from);
  // `region` has a device; `handle` is a cudaIpcMemHandle_t.
  Status RegisterCuda(SharedRegion region, std::string_view handle, const Registrant& from);
  // "" = all of this kind; of one that the client does not have nothing happens.
  Status Unregister(RegionKind kind, std::string_view name, const Registrant& from);
  // Lets go of what was unregistered while it was used, and is not any more. Called by itself
  // before anything else.
  void DropUnused();
  ClientRegions Of(const Identity& client) const { return {*this, client}; }

  // What register and unregister answer where they are switched off, or to a client that may not.
  Status CheckAllowed(const Registrant& from) const;

 private:
  struct Open {
    SharedRegion region;
    std::shared_ptr<const SharedObject> object;
    std::string client;
    uint64_t object_bytes = 0;  // when it was registered
    RegionUse use = std::make_shared<const char>();
    bool is_leaving = false;  // once nobody uses it
  };

  friend class ClientRegions;
  using Name = std::pair<Identity, std::string>;

  // What is to be closed, without the lock: a GPU may take its time.
  std::vector<Open> TakeUnusedLocked() const;
  Status CheckNewLocked(const Name& name) const;
  Status CheckKey(const SharedRegion& region) const;
  // Whether the client may have another, with an object of this size.
  Status CheckShareLocked(const std::string& name, const std::string& client,
                          uint64_t object_bytes) const;

  const SharedMemoryOptions options_;
  const OpenCudaObject open_cuda_;
  mutable std::mutex mutex_;
  mutable std::map<Name, Open> regions_;
  mutable size_t num_leaving_ = 0;  // of them; mostly none, and then nobody looks for them
};

}  // namespace inflight::serving
