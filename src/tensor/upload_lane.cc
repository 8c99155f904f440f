// SPDX-License-Identifier: Apache-2.0
#include "tensor/upload_lane.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "tensor/buffer.h"
#include "tensor/cuda_status.h"

namespace inflight {
namespace {

constexpr int kNumPieces = 2;

}  // namespace

struct UploadLane::Impl {
  explicit Impl(Device& of) : owner(of), device(of.cuda().index) {}

  Device& owner;
  const int device;
  cudaStream_t stream = nullptr;
  PinnedBuffer memory;
  Buffer scratch;
  std::array<cudaEvent_t, kNumPieces> sent{};  // the last copy of each piece
  int piece = 0;                               // that NextPiece gave last

  ~Impl() {
    cudaSetDevice(device);
    if (stream != nullptr) cudaStreamSynchronize(stream);
    for (cudaEvent_t event : sent)
      if (event != nullptr) cudaEventDestroy(event);
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
};

UploadLane::UploadLane(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UploadLane::~UploadLane() = default;
void* UploadLane::stream() const { return impl_->stream; }

Result<std::unique_ptr<UploadLane>> UploadLane::Create(Device& device) {
  auto impl = std::make_unique<Impl>(device);
  cudaSetDevice(impl->device);
  RETURN_IF_ERROR(cuda::ToStatus(cudaStreamCreateWithFlags(&impl->stream, cudaStreamNonBlocking),
                                 "cudaStreamCreate"));
  ASSIGN_OR_RETURN(impl->memory, PinnedBuffer::Allocate(device, kNumPieces * kPieceBytes));
  for (cudaEvent_t& event : impl->sent)
    RETURN_IF_ERROR(cuda::ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                   "cudaEventCreate"));
  return std::unique_ptr<UploadLane>(new UploadLane(std::move(impl)));
}

Result<std::byte*> UploadLane::NextPiece() {
  impl_->piece = (impl_->piece + 1) % kNumPieces;
  const auto piece = static_cast<size_t>(impl_->piece);
  cudaSetDevice(impl_->device);
  RETURN_IF_ERROR(
      cuda::ToStatus(cudaEventSynchronize(impl_->sent[piece]), "copy to the GPU's memory"));
  return impl_->memory.data() + piece * kPieceBytes;
}

Status UploadLane::Send(void* target, size_t num_bytes) {
  CHECK_LE(num_bytes, kPieceBytes);
  const auto piece = static_cast<size_t>(impl_->piece);
  cudaSetDevice(impl_->device);
  RETURN_IF_ERROR(cuda::ToStatus(cudaMemcpyAsync(target, impl_->memory.data() + piece * kPieceBytes,
                                                 num_bytes, cudaMemcpyHostToDevice, impl_->stream),
                                 "copy to the GPU's memory"));
  return cuda::ToStatus(cudaEventRecord(impl_->sent[piece], impl_->stream), "cudaEventRecord");
}

Result<void*> UploadLane::Scratch() {
  if (impl_->scratch.size() == 0) {
    ASSIGN_OR_RETURN(impl_->scratch, Buffer::Allocate(impl_->owner, "loading", kPieceBytes));
  }
  return static_cast<void*>(impl_->scratch.data());
}

Status UploadLane::Wait() {
  cudaSetDevice(impl_->device);
  return cuda::ToStatus(cudaStreamSynchronize(impl_->stream), "copy to the GPU's memory");
}

Status UploadAll(Device& device, int64_t n, const LaneWork& work, int max_lanes) {
  CpuPool& pool = device.cpu_pool();
  const int64_t num_lanes = std::min({n, int64_t{max_lanes}, int64_t{pool.num_threads()}});
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  Status status;  // under mutex
  const auto run = [&]() -> Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<UploadLane> lane, UploadLane::Create(device));
    for (int64_t i = next++; i < n; i = next++) RETURN_IF_ERROR(work(*lane, i));
    return lane->Wait();
  };
  pool.ParallelFor(num_lanes, [&](int64_t) {
    const Status done = run();
    if (done.ok()) return;
    next = n;
    const std::lock_guard lock(mutex);
    if (status.ok()) status = done;
  });
  return status;
}

}  // namespace inflight
