// SPDX-License-Identifier: Apache-2.0
// The order in which operators of one executor run on a device. On the CPU an operator has finished
// when its call returns; on CUDA it has been enqueued. Operators take a Stream& and do nothing else
// to order themselves.
#pragma once

#include "tensor/device.h"

namespace inflight {

class Stream {
 public:
  explicit Stream(Device& device) : device_(device) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Waits until all that was enqueued is done, and says whether a kernel failed. Never on the path
  // of a step.
  virtual Status Synchronize() { return Status::Ok(); }

  Device& device() { return device_; }
  CpuPool& cpu_pool() { return device_.cpu_pool(); }

 private:
  Device& device_;
};

}  // namespace inflight
