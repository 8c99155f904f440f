// SPDX-License-Identifier: Apache-2.0
// What the ranks of a group say to each other while they compute: the collectives of a model that
// is split over them. Each rank has a Communicator of its group and calls the same operations in
// the same order, with the same shapes.
//
// On the CPU an operation has finished when its call returns; on CUDA it has been enqueued, as an
// operator has (tensor/stream.h), and its values lie in what the ranks share.
// Threads: one at a time for each rank's Communicator, but that a Receive may run beside the other
// calls; the ranks are different threads.
// Errors:  kUnavailable with the reason that Abort was given, on all ranks, from then on. An error
// leaves the values undefined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "inflight/status.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace inflight::ops::cuda {
struct Peers;
}

namespace inflight::comm {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Memory that is laid out alike on all ranks, before the first operation. It outlives this.
  virtual void Share(std::span<std::byte> /*memory*/) {}

  // values = sum over the ranks: the same bits on all. Added in the order of ranks in float32, but
  // by NCCL, which rounds each sum of two (executor/cuda/nccl_group.h).
  virtual Status AllReduce(const TensorView& values, Stream& stream) = 0;
  // On CUDA: what add_norm needs to add up rows of that number and width itself, in place of
  // AllReduce; null: it does not.
  virtual const ops::cuda::Peers* PeersOfNorm(int64_t /*num_rows*/, int64_t /*width*/) {
    return nullptr;
  }
  // all = what the ranks have, in the order of ranks. `all` has size() times the bytes of `mine`.
  virtual Status AllGather(const TensorView& mine, const TensorView& all, Stream& stream) = 0;
  // From one rank to another, each of which calls its half. A Send may wait for the Receive.
  virtual Status Send(const TensorView& values, int to, Stream& stream) = 0;
  virtual Status Receive(const TensorView& values, int from, Stream& stream) = 0;
  // On CUDA: whether a graph may hold them, also where what the other rank does of the same call is
  // in none, or in another graph.
  virtual bool may_be_recorded() const { return true; }

  // A rank's columns `own` [rows, width] become columns from rank * width on of `all` [rows,
  // row_width], row_width <= size() * width; float32. On the CPU `all` is rank 0's alone, whose
  // `own` is overwritten; on CUDA each rank's.
  virtual Status GatherColumns(const TensorView& own, const TensorView& all, Stream& stream);

  // Ends what any rank of the group waits for, and all that it calls later. For any thread; the
  // first reason is kept.
  virtual void Abort(const Status& reason) = 0;
};

// The ranks of one model. tensor: those that share its layers; pipeline: those with this rank's
// part of the other stages. Null: there is one.
struct RankGroups {
  Communicator* tensor = nullptr;
  Communicator* pipeline = nullptr;
};

}  // namespace inflight::comm
