// SPDX-License-Identifier: Apache-2.0
// The passes that make trees of drafts, one for each depth: rows that are greedy alone, recorded as
// steps are (step_graphs.h).
//
// Threads: the executor's.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/log.h"
#include "executor/cuda/step_graphs.h"
#include "tensor/stream.h"

namespace inflight::executor::cuda {

class PassGraphs {
 public:
  // Enqueues on the stream what a pass of so many rows does.
  using Enqueue = std::function<Status(int pass, int num_rows)>;

  PassGraphs(int num_passes, int max_rows, inflight::Stream& stream, Enqueue enqueue);

  PassGraphs(const PassGraphs&) = delete;
  PassGraphs& operator=(const PassGraphs&) = delete;

  int size() const { return static_cast<int>(graphs_.size()); }

  // Runs each pass once with each number of rows that graphs have, whose arena names nobody; then
  // records them, for a second or so or all of them, and logs that at `level`.
  Status WarmUp(bool use_graphs, bool records_all, logging::Level level);

  Status Run(int pass, int num_rows);

 private:
  inflight::Stream& stream_;
  Enqueue enqueue_;
  bool use_graphs_ = false;
  std::vector<std::unique_ptr<StepGraphs>> graphs_;  // of each pass
};

}  // namespace inflight::executor::cuda
