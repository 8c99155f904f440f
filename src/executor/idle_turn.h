// SPDX-License-Identifier: Apache-2.0
// What waits until no step of a model on several GPUs is in flight: taking memory. CUDA may wait
// with it until GPUs are idle and let no thread launch meanwhile, and a step whose kernels wait for
// one that another rank cannot launch would never end.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "inflight/status.h"

namespace inflight::executor {

class IdleTurn {
 public:
  // Does `work` once no step is in flight. Threads: any but that of the steps. The error of the
  // steps where they have failed.
  Status Do(const std::function<Status()>& work);

  // Before a step is launched. Where work waits, `await` returns when the steps in flight have
  // ended, and the work is done first.
  Status BeginStep(const std::function<Status()>& await);
  void EndStep();                // it was collected
  void Fail(const Status& why);  // no step is launched any more

 private:
  bool MayWork() const { return !is_working_ && (num_steps_ == 0 || steps_have_ended_); }

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  int num_steps_ = 0;  // begun and not ended
  int num_waiting_ = 0;
  bool steps_have_ended_ = false;
  bool is_working_ = false;
  Status failed_;
};

}  // namespace inflight::executor
