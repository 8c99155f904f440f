// SPDX-License-Identifier: Apache-2.0
// What lies behind a region of shared memory: a POSIX object, or memory of a GPU that a client
// shares by its handle (cudaIpcMemHandle_t).
//
// Objects are never mapped, their bytes are copied: a client that shrinks or unlinks a POSIX object
// gets an error, and can neither crash us nor show us memory that is not the region's.
//
// Threads: all methods are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight::serving {

class SharedObject {
 public:
  virtual ~SharedObject() = default;
  virtual uint64_t byte_size() const = 0;  // now
  // All of `bytes`, or kInternal: what is wrong with "the region ...".
  virtual Status Read(uint64_t offset, std::span<std::byte> bytes) const = 0;
  virtual Status Write(uint64_t offset, std::span<const std::byte> bytes) const = 0;
};

using OpenedObject = Result<std::shared_ptr<const SharedObject>>;

// kInternal: there is none of this key. kPermissionDenied: it belongs to another user than this
// process runs as, unless `may_be_foreign`.
OpenedObject OpenPosixObject(const std::string& key, bool may_be_foreign);

// A device's number and a handle, as the client sent it. kInvalidArgument: why it cannot be opened.
using OpenCudaObject = std::function<OpenedObject(int64_t device, std::string_view handle)>;
// Null in builds without CUDA.
OpenCudaObject CudaObjects();

}  // namespace inflight::serving
