// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "executor/cuda/weight_ring.h"
#include "ops/cuda/cuda_stream.h"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::ToStatus;
using model::LayerRing;

// A kernel may begin before those ahead of it have ended and touch its weights at once
// (ops/cuda/overlap.cuh). This one does neither: what is behind it on the stream begins after it,
// and with that after the copy that the stream waits for.
__global__ void FenceKernel() {}

Status WaitFor(cudaEvent_t event, cudaStream_t stream) {
  RETURN_IF_ERROR(ToStatus(cudaStreamWaitEvent(stream, event), "waiting for weights"));
  FenceKernel<<<1, 1, 0, stream>>>();
  return inflight::cuda::LaunchStatus("fence");
}

}  // namespace

WeightRing::WeightRing(std::shared_ptr<const model::Engine> engine, Device& device)
    : device_index_(device.cuda().index),
      engine_(std::move(engine)),
      ring_(static_cast<int>(engine_->host_layers.size())) {}

WeightRing::~WeightRing() {
  cudaSetDevice(device_index_);
  if (copies_ != nullptr) cudaStreamSynchronize(copies_);
  for (const auto& events : {left_, arrived_, {step_copied_, nullptr}})
    for (cudaEvent_t event : events)
      if (event != nullptr) cudaEventDestroy(event);
  if (copies_ != nullptr) cudaStreamDestroy(copies_);
}

Result<std::unique_ptr<WeightRing>> WeightRing::Create(std::shared_ptr<const model::Engine> engine,
                                                       Device& device) {
  std::unique_ptr<WeightRing> made(new WeightRing(std::move(engine), device));
  made->weights_ = made->engine_->weights;
  made->streamed_.resize(made->weights_.layers.size(), -1);
  if (made->ring_.num_layers() == 0) return std::unique_ptr<WeightRing>(std::move(made));
  ASSIGN_OR_RETURN(made->memory_,
                   Buffer::Allocate(device, "streamed weights", model::RingBytes(*made->engine_)));
  std::vector<std::byte*> places;
  for (int k = 0; k < made->ring_.num_layers(); ++k) {
    made->streamed_[static_cast<size_t>(made->engine_->host_layers[static_cast<size_t>(k)].layer)] =
        k;
    places.push_back(made->BufferOf(k));
  }
  made->weights_ = model::MovedWeights(*made->engine_, places);
  cudaSetDevice(made->device_index_);
  RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&made->copies_, cudaStreamNonBlocking),
                           "cudaStreamCreate"));
  for (cudaEvent_t* event : {&made->left_[0], &made->left_[1], &made->arrived_[0],
                             &made->arrived_[1], &made->step_copied_})
    RETURN_IF_ERROR(
        ToStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreate"));
  return std::unique_ptr<WeightRing>(std::move(made));
}

std::byte* WeightRing::BufferOf(int k) const {
  const uint64_t of_all = memory_.size() / LayerRing::kNumBuffers;
  return memory_.data() + static_cast<uint64_t>(LayerRing::BufferOf(k)) * of_all;
}

Status WeightRing::Copy(int k) {
  const model::HostLayer& layer = engine_->host_layers[static_cast<size_t>(k)];
  return ToStatus(
      cudaMemcpyAsync(BufferOf(k), layer.data, layer.num_bytes, cudaMemcpyHostToDevice, copies_),
      "copying weights to the GPU");
}

Result<int64_t> WeightRing::Fill() {
  if (ring_.num_layers() == 0) return int64_t{0};
  cudaSetDevice(device_index_);
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  float ms = 0;
  const auto fill = [&]() -> Status {
    RETURN_IF_ERROR(ToStatus(cudaEventCreate(&begin), "cudaEventCreate"));
    RETURN_IF_ERROR(ToStatus(cudaEventCreate(&end), "cudaEventCreate"));
    FenceKernel<<<1, 1, 0, copies_>>>();  // loaded before it is recorded
    RETURN_IF_ERROR(inflight::cuda::LaunchStatus("fence"));
    for (int k = 0; k < LayerRing::kNumBuffers; ++k) {
      if (k == 1) RETURN_IF_ERROR(ToStatus(cudaEventRecord(begin, copies_), "cudaEventRecord"));
      RETURN_IF_ERROR(Copy(k));
    }
    RETURN_IF_ERROR(ToStatus(cudaEventRecord(end, copies_), "cudaEventRecord"));
    RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(copies_), "copying weights to the GPU"));
    return ToStatus(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
  };
  const Status filled = fill();
  for (cudaEvent_t event : {begin, end})
    if (event != nullptr) cudaEventDestroy(event);
  RETURN_IF_ERROR(filled);
  is_filled_ = true;
  return static_cast<int64_t>(static_cast<double>(ms) * 1e6 * ring_.num_copies_per_step());
}

Status WeightRing::BeginLayer(size_t layer, Stream& stream) {
  const int k = streamed_[layer];
  if (k < 0 || !is_filled_ || LayerRing::BeginsInPlace(k)) return Status::Ok();
  return WaitFor(arrived_[static_cast<size_t>(LayerRing::BufferOf(k))],
                 ops::cuda::AsCuda(stream).handle());
}

Status WeightRing::EndLayer(size_t layer, Stream& stream) {
  const int k = streamed_[layer];
  if (k < 0 || !is_filled_ || ring_.NextInBuffer(k) == k) return Status::Ok();
  const auto buffer = static_cast<size_t>(LayerRing::BufferOf(k));
  RETURN_IF_ERROR(ToStatus(cudaEventRecord(left_[buffer], ops::cuda::AsCuda(stream).handle()),
                           "cudaEventRecord"));
  RETURN_IF_ERROR(ToStatus(cudaStreamWaitEvent(copies_, left_[buffer]), "cudaStreamWaitEvent"));
  RETURN_IF_ERROR(Copy(ring_.NextInBuffer(k)));
  return ToStatus(cudaEventRecord(arrived_[buffer], copies_), "cudaEventRecord");
}

Status WeightRing::EndStep(Stream& stream) {
  if (!is_filled_) return Status::Ok();
  RETURN_IF_ERROR(ToStatus(cudaEventRecord(step_copied_, copies_), "cudaEventRecord"));
  return WaitFor(step_copied_, ops::cuda::AsCuda(stream).handle());
}

}  // namespace inflight::executor::cuda
