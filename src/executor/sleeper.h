// SPDX-License-Identifier: Apache-2.0
// What becomes of a model's memory while its executor sleeps (docs/sleep.md).
//
//   level      on a GPU                                    on a CPU
//   1          weights copied to pinned host memory,       KV cache given back; weights stay: they
//              they and the KV cache given back            are in the host's memory already
//   2          both given back, weights read again         both given back, weights read again
//
// Weights of a draft model are copied at level 2, too. A copy stays for the next time, until the
// model sleeps at level 2. Addresses stay, so that what was recorded with them is right afterwards.
//
// Threads: Sleep and Wake are called one at a time, while the step loop rests (rest_gate.h); state
// by any.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "executor/backend.h"
#include "inflight/executor.h"
#include "tensor/buffer.h"
#include "tensor/releasable_memory.h"

namespace inflight::executor {

class Sleeper {
 public:
  struct Options {
    std::string owner;               // in the devices' ledgers
    std::function<Status()> reload;  // reads the weights into their memory again
    Status no_sleep;                 // why nothing is given back, where that is so
    Status no_reload;                // why there is no reload, where it is null
  };

  Sleeper(ReleasableParts parts, Options options)
      : parts_(std::move(parts)), options_(std::move(options)) {}

  // Whether Sleep may be tried; kInvalidArgument, kUnimplemented.
  Status Check(int level) const;
  // On an error the memory is as it was before.
  Status Sleep(int level);
  // On an error what could be taken again is there, and the rest is not.
  Status Wake(const WakeOptions& options);
  SleepState state() const;

 private:
  using Memories = std::vector<std::shared_ptr<ReleasableMemory>>;
  struct Copy {
    std::shared_ptr<ReleasableMemory> memory;
    PinnedBuffer bytes;
  };

  Status CopyToHost(const Memories& memories);
  Status Release(const Memories& memories);
  Status TakeBack(const Memories& memories);
  Status CopyBack();
  Status WakeWeights();
  Memories WeightsToRelease(int level) const;
  void Note();

  const ReleasableParts parts_;
  const Options options_;
  std::vector<Copy> copies_;
  int level_ = 0;
  mutable std::mutex mutex_;
  SleepState state_;  // under mutex_
};

}  // namespace inflight::executor
