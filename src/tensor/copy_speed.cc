// SPDX-License-Identifier: Apache-2.0
#include "tensor/copy_speed.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/status_macros.h"
#include "tensor/buffer.h"
#include "tensor/cuda_status.h"

namespace inflight {
namespace {

constexpr size_t kUploadBytes = size_t{64} << 20;
constexpr size_t kCopyBytes = size_t{128} << 20;  // more than an L2 holds
constexpr int kRepeats = 4;                       // the first one wakes the link

// A stream and two events that time what is enqueued between them.
class Timer {
 public:
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    for (cudaEvent_t event : {begin_, end_})
      if (event != nullptr) cudaEventDestroy(event);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Status Create() {
    cudaError_t made = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (made == cudaSuccess) made = cudaEventCreate(&begin_);
    if (made == cudaSuccess) made = cudaEventCreate(&end_);
    return cuda::ToStatus(made, "cannot time copies");
  }

  // Of the fastest copy.
  Result<double> BytesPerSecond(void* target, const void* source, size_t num_bytes) {
    float best_ms = 0;
    for (int i = 0; i < kRepeats; ++i) {
      float ms = 0;
      cudaError_t done = cudaEventRecord(begin_, stream_);
      if (done == cudaSuccess)
        done = cudaMemcpyAsync(target, source, num_bytes, cudaMemcpyDefault, stream_);
      if (done == cudaSuccess) done = cudaEventRecord(end_, stream_);
      if (done == cudaSuccess) done = cudaEventSynchronize(end_);
      if (done == cudaSuccess) done = cudaEventElapsedTime(&ms, begin_, end_);
      RETURN_IF_ERROR(cuda::ToStatus(done, "cannot time a copy"));
      best_ms = i == 0 ? ms : std::min(best_ms, ms);
    }
    return static_cast<double>(num_bytes) / std::max(static_cast<double>(best_ms), 1e-6) * 1e3;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace

Result<CopySpeed> MeasureCopySpeed(Device& device) {
  cudaSetDevice(device.cuda().index);
  ASSIGN_OR_RETURN(const PinnedBuffer host, PinnedBuffer::Allocate(device, kUploadBytes));
  ASSIGN_OR_RETURN(const Buffer on_device,
                   Buffer::Allocate(device, "measuring copies", 2 * kCopyBytes));
  Timer timer;
  RETURN_IF_ERROR(timer.Create());
  CopySpeed speed;
  ASSIGN_OR_RETURN(speed.upload_bytes_per_s,
                   timer.BytesPerSecond(on_device.data(), host.data(), kUploadBytes));
  ASSIGN_OR_RETURN(const double copied, timer.BytesPerSecond(on_device.data() + kCopyBytes,
                                                             on_device.data(), kCopyBytes));
  speed.memory_bytes_per_s = 2 * copied;
  return speed;
}

}  // namespace inflight
