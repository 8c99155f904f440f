// SPDX-License-Identifier: Apache-2.0
// model::WeightStream over a copy engine: a stream of its own copies layers from pinned host memory
// into the ring, ordered with the stream of the steps by events both ways.
//
//   steps   | layer 0 | layer 1 | ... | layer 2 (waits for its copy) | ... | sampling, the end |=
//   copies            | 2 ---------------------| 3 ------------| 0 -----------| 1 ------------|=
//                     ^ layer 0 has left its buffer                      both wait for each other
//
// What EndStep waits for are the layers that the next step begins with. All of it can be recorded
// into a graph; a recorded step and one that is not leave the ring in the same state.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "model/weight_stream.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace inflight::executor::cuda {

// Threads: used by one thread at a time.
class WeightRing : public model::WeightStream {
 public:
  // Takes the ring from the device's ledger. For an engine without host_layers it takes nothing,
  // and all that follows does nothing.
  static Result<std::unique_ptr<WeightRing>> Create(std::shared_ptr<const model::Engine> engine,
                                                    Device& device);
  ~WeightRing() override;  // waits for copies under way

  // Copies the layers that a step begins with, and returns how long, by that, a step copies at
  // least, in ns. Steps before it copy nothing, and read whatever is in the buffers: first runs of
  // kernels, whose results nobody looks at.
  Result<int64_t> Fill();

  const model::DecoderWeights& weights() const override { return weights_; }
  Status BeginLayer(size_t layer, Stream& stream) override;
  Status EndLayer(size_t layer, Stream& stream) override;
  // Behind everything else of a step.
  Status EndStep(Stream& stream);

 private:
  WeightRing(std::shared_ptr<const model::Engine> engine, Device& device);
  Status Copy(int k);  // enqueues it
  std::byte* BufferOf(int k) const;

  const int device_index_;
  std::shared_ptr<const model::Engine> engine_;
  model::LayerRing ring_;
  Buffer memory_;
  model::DecoderWeights weights_;
  std::vector<int> streamed_;  // [num_layers] which streamed layer it is; -1 = it stays
  cudaStream_t copies_ = nullptr;
  // Of each buffer: nothing reads it any more; its copy is done.
  std::array<cudaEvent_t, model::LayerRing::kNumBuffers> left_{}, arrived_{};
  cudaEvent_t step_copied_ = nullptr;
  bool is_filled_ = false;
};

}  // namespace inflight::executor::cuda
