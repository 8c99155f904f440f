// SPDX-License-Identifier: Apache-2.0
// Logits of steps that are in flight over the stages of a model. The last stage sends those of one
// step after the other; here a thread takes them as they come, so that the last stage never waits
// for the leader, which computes the first stage of a later step and waits for the second to take
// it.
//
// Threads: one calls; the thread of its own receives.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "comm/communicator.h"
#include "tensor/stream.h"

namespace inflight::executor {

class StageLogits {
 public:
  // As the first member of `pipeline`; both outlive it.
  StageLogits(comm::Communicator& pipeline, Device& device);
  // Waits for what is awaited: the last stage has been told to send it, or has ended the group.
  ~StageLogits();
  StageLogits(const StageLogits&) = delete;
  StageLogits& operator=(const StageLogits&) = delete;

  // The last stage has been told to compute `rows`, [num_rows, vocab_size] float32 and not empty,
  // behind those of earlier calls. They stay where they are until they have come. Returns how many
  // were awaited so far, for Wait.
  int64_t Await(const TensorView& rows);
  // Until the first `count` that were awaited are there. An error is that of the group, for good.
  Status Wait(int64_t count);

 private:
  void Run();

  comm::Communicator& pipeline_;
  inflight::Stream stream_;  // executor::Stream is another
  std::mutex mutex_;         // of all below
  std::condition_variable changed_;
  std::deque<TensorView> awaited_;
  int64_t num_awaited_ = 0, num_received_ = 0;
  Status failed_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace inflight::executor
