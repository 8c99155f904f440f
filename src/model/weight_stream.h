// SPDX-License-Identifier: Apache-2.0
// Layers whose weights lie in host memory pass through a ring of buffers on the device, one after
// the other, in every step:
//
//   streamed layers        0     1     2     3     4        the k-th has buffer k % 2
//   buffer 0         ----- 0 --------- 2 --------- 4 ----   what is in it while layers are computed
//   buffer 1         ----- 1 --------- 3 ----------- 1 --   (a step begins with 0 and 1 in place)
//
// A buffer that a layer has left is filled at once with the next one that belongs there: the next
// layers of this step, and at its end the first ones of the next step.
#pragma once

#include <cstdint>
#include <vector>

#include "model/engine.h"
#include "tensor/stream.h"

namespace inflight::model {

// Which layers take turns in which buffer. Streamed layers are counted from 0, in their order.
class LayerRing {
 public:
  static constexpr int kNumBuffers = 2;  // one is read while the other is filled

  // `num_layers` of more than kNumBuffers, or none: so few would stay in their buffers for good.
  explicit LayerRing(int num_layers);

  int num_layers() const { return num_layers_; }
  int num_buffers() const { return num_layers_ == 0 ? 0 : kNumBuffers; }
  static int BufferOf(int k) { return k % kNumBuffers; }
  // Whether the layer is in its buffer when a step begins.
  static bool BeginsInPlace(int k) { return k < kNumBuffers; }
  // Which layer its buffer is filled with when layer k has been computed; k itself where no other
  // has that buffer.
  int NextInBuffer(int k) const;
  int num_copies_per_step() const;  // of a layer each

 private:
  int num_layers_;
};

// Bytes of device memory that the ring of an engine takes; 0 where it has no host_layers.
uint64_t RingBytes(const Engine& engine);
// Of `num_layers` streamed ones of `layer_bytes` each.
uint64_t RingBytes(int num_layers, uint64_t layer_bytes);
// Where a buffer of the ring begins, in bytes, for layers of at most `layer_bytes`.
uint64_t RingOffset(int buffer, uint64_t layer_bytes);

// The engine's weights, those of each of its host_layers moved from host memory to `places[k]`.
DecoderWeights MovedWeights(const Engine& engine, const std::vector<std::byte*>& places);

// Brings weights to the device while earlier layers are computed. Operators read `weights()`.
// Threads: as Decoder::Forward.
class WeightStream {
 public:
  WeightStream() = default;
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;
  virtual ~WeightStream() = default;

  virtual const DecoderWeights& weights() const = 0;
  // Whatever is enqueued on `stream` from here on finds the layer's weights in place.
  virtual Status BeginLayer(size_t layer, Stream& stream) = 0;
  // Nothing that is enqueued from here on, in this step, reads the layer's weights.
  virtual Status EndLayer(size_t layer, Stream& stream) = 0;
};

}  // namespace inflight::model
