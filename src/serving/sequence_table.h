// SPDX-License-Identifier: Apache-2.0
// The live sequences of a model with sequence batching: which slot each holds, who waits for one,
// and the control inputs that tell the model about them (spec/triton-protocol.md 3.6).
//
//   unknown --START--> live (holds a slot) --END or idle--> unknown
//                  \-> waiting (no slot free; its requests are held) --slot free--> live
//
// Slots: per instance max_batch_size with the direct strategy, max_candidate_sequences with the
// oldest one. All requests of a sequence go to the instance of its slot, in order.
//
// Threads: all methods are thread-safe. `run` is called under no lock.
// Errors: kInvalidArgument without a request id, as clients compare these texts.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "inflight/status.h"
#include "model_config.pb.h"
#include "serving/request.h"
#include "serving/request_queue.h"

namespace inflight::serving {

class SequenceTable {
 public:
  // A request that may run now, on the instance with this index.
  using Run = std::function<void(QueuedRequest item, int instance)>;

  SequenceTable(const ::inference::ModelConfig& config, int num_instances, Clock& clock, Run run);

  // Runs or holds `item`, with its controls added; takes it over unless it fails.
  Status Add(QueuedRequest& item);

 private:
  using Key = std::pair<uint64_t, std::string>;  // number and name; one of them is set
  struct Live {
    int instance = 0;
    int64_t last_ns = 0;
  };
  struct Ready {
    QueuedRequest item;
    int instance;
  };

  Status CheckLocked(const Request& request, const Key& key) const;
  bool IsWaitingLocked(const Key& key) const;
  void DropIdleLocked();
  int FreeInstanceLocked() const;  // -1 when all slots are taken
  void PlaceLocked(const Key& key, QueuedRequest item, int instance, std::vector<Ready>& ready);
  void AdmitWaitingLocked(std::vector<Ready>& ready);

  const ::inference::ModelConfig config_;
  Clock& clock_;
  const Run run_;
  const int64_t max_idle_ns_;
  const int slots_per_instance_;
  std::mutex mutex_;
  std::vector<int> used_slots_;  // by instance
  std::map<Key, Live> live_;
  std::deque<std::pair<Key, QueuedRequest>> waiting_;  // in order of arrival
};

}  // namespace inflight::serving
