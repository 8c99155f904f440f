// SPDX-License-Identifier: Apache-2.0
// Times launches on a CudaStream as a decode step pays for them: inside a CUDA graph of many calls,
// over buffers that rotate through more than the L2 cache holds.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "device_support.h"
#include "ops/cuda/cuda_stream.h"

namespace inflight::bench {

// Equal blocks of device memory with repeatable random numbers in [-1, 1), together more than three
// times the L2 cache (180 MB) where calls are enough to use so many.
class Rotation {
 public:
  Rotation() = default;
  Rotation(Device& device, DType dtype, Shape shape);
  TensorView At(int call) const;
  int num_copies() const { return num_copies_; }

 private:
  Buffer memory_;
  TensorView view_;
  int64_t stride_ = 0;
  int num_copies_ = 0;
};

struct TimedCase {
  std::string kernel;
  std::string shape;
  DType dtype;
  double bytes;     // read and written by one call, of which the limit is the copy bandwidth
  double flop = 0;  // of a call; 0 = only bytes count
  // Enqueues call `call` on the stream; by the number it picks its buffers.
  std::function<Status(int call)> launch;
};

class CudaBench {
 public:
  // `filter`: only cases whose "kernel shape dtype" contain it; empty = all.
  CudaBench(Device& device, std::unique_ptr<ops::cuda::CudaStream> stream, std::string filter);

  Device& device() { return device_; }
  ops::cuda::CudaStream& stream() { return *stream_; }

  // Whether any case of `kernel` may run; asked before memory is taken for them.
  bool Wants(std::string_view kernel) const;
  // Prints kernel,shape,dtype,us,GB/s,TFLOP/s,% of limit: the median of the repetitions.
  void Time(const TimedCase& timed);

 private:
  double GraphUs(const TimedCase& timed, int num_calls, int repetitions);

  Device& device_;
  std::unique_ptr<ops::cuda::CudaStream> stream_;
  std::string filter_;
  double copy_bytes_per_us_ = 0;
};

}  // namespace inflight::bench
