// SPDX-License-Identifier: Apache-2.0
// Regions of POSIX shared memory that clients registered: tensors of requests are read from them
// and tensors of answers written to them (spec/triton-protocol.md 1.17).
//
// A region is never mapped: its bytes are copied by pread and pwrite. A client that shrinks or
// unlinks the object behind a region gets an error, and can neither crash us nor show us memory
// that is not the region's.
//
// Threads: all methods are thread-safe. A window keeps its region open after it was unregistered.
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
#include <vector>

#include "inflight/status.h"

namespace inflight::serving {

// What the inputs of one request may copy from regions, all together.
inline constexpr uint64_t kMaxSharedInputBytes = uint64_t{2} << 30;

// Bytes [offset, offset + byte_size) of an open object, inside one region.
class SharedWindow {
 public:
  uint64_t byte_size() const { return byte_size_; }
  // All bytes, which are taken off `left`: what the request may still copy (kInvalidArgument where
  // that is less). kInternal when the object does not have them any more.
  Result<std::string> Read(uint64_t& left) const;
  // Into the first bytes; `data` is at most as long as the window.
  Status Write(std::span<const std::byte> data) const;

 private:
  friend class SharedMemory;
  class File;
  std::shared_ptr<const File> file_;
  std::string region_;
  uint64_t offset_ = 0;  // in the object
  uint64_t byte_size_ = 0;
};

struct SharedRegion {
  std::string name;
  std::string key;  // as shm_open takes it
  uint64_t offset = 0;
  uint64_t byte_size = 0;
};

class SharedMemory {
 public:
  explicit SharedMemory(bool clients_may_register) : is_allowed_(clients_may_register) {}

  Status Register(SharedRegion region);
  // "" = all; of an unknown one nothing happens.
  Status Unregister(std::string_view name);
  // One region, or all by name when `name` is empty.
  Result<std::vector<SharedRegion>> Find(std::string_view name) const;

  Result<SharedWindow> Window(std::string_view region, uint64_t offset, uint64_t byte_size) const;

  // Regions of GPUs can be asked for, not registered: none is ever known.
  Status RegisterCuda(std::string_view name) const;
  Status UnregisterCuda() const { return CheckAllowed(); }
  Status FindCuda(std::string_view name) const;  // "" = all

  // What register and unregister answer where they are switched off.
  Status CheckAllowed() const;

 private:
  struct Open {
    SharedRegion region;
    std::shared_ptr<const SharedWindow::File> file;
  };

  const bool is_allowed_;
  mutable std::mutex mutex_;
  std::map<std::string, Open, std::less<>> regions_;
};

}  // namespace inflight::serving
