// SPDX-License-Identifier: Apache-2.0
// The live sequences of a model with sequence batching: which slot each holds, who waits for one,
// and the control inputs that tell the model about them (docs/reference/protocol/common.md,
// "Sequences"). What the model keeps of a sequence (sequence_states.h) goes with its requests.
//
//   unknown --START--> live (holds a slot) --END, idle or cancelled--> unknown
//                  \-> waiting (no slot free; its requests are held) --slot free--> live
//
// Slots: per instance max_batch_size with the direct strategy, max_candidate_sequences with the
// oldest one. All requests of a sequence go to the instance of its slot, in order. Instances come
// and go: one that is to go keeps its sequences until they have ended, and gets no new ones.
//
// Threads: all methods are thread-safe. `run` and `when_empty` are called under the table's lock,
// so that requests of a sequence keep their order; `give_up` under none. Somebody calls Tick from
// time to time: without new requests nothing else ends what is idle.
//
// Errors: kInvalidArgument without a request id, as clients compare these texts; kUnavailable when
// too many requests wait.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "inflight/status.h"
#include "model_config.pb.h"
#include "serving/core/request.h"
#include "serving/sequences/queued_request.h"

namespace inflight::serving {

class SequenceTable {
 public:
  // A request that may run now, on the instance that this is of.
  using Run = std::function<void(QueuedRequest item)>;
  // A request that waited for a slot in vain.
  using GiveUp = std::function<void(QueuedRequest item, Status status)>;

  SequenceTable(const ::inference::ModelConfig& config, Clock& clock, GiveUp give_up);

  // Its slots are free; who waits gets them. The number is the instance's name here.
  int AddInstance(Run run);
  // `when_empty` is called once, when the last of its sequences has ended: nothing runs there any
  // more.
  void RemoveInstance(int instance, std::function<void()> when_empty);

  // Runs or holds `item`, with its controls added; takes it over unless it fails.
  Status Add(QueuedRequest& item);
  // Frees the slots of idle sequences, gives up what was cancelled or waited too long, and runs
  // what waits for the freed slots.
  void Tick();

  // How many requests may wait for slots.
  static constexpr size_t kMaxWaiting = 4096;

 private:
  using Key = SequenceKey;
  struct Slots {
    Run run;
    std::set<int> used;                // by number, from 0
    std::function<void()> when_empty;  // null: the instance stays
  };
  struct Live {
    int instance = 0;
    int slot = 0;
    std::shared_ptr<SequenceStates::Values> states;  // null: the model keeps none
    std::shared_ptr<SequenceFate> fate;
    int64_t last_ns = 0;
  };
  struct Waiting {
    Key key;
    QueuedRequest item;
    int64_t deadline_ns = 0;  // 0 = none
  };
  struct GivenUp {
    QueuedRequest item;
    Status status;
  };

  Status CheckLocked(const Request& request, const Key& key) const;
  bool IsWaitingLocked(const Key& key) const;
  void DropEndedLocked();          // idle or cancelled
  int FreeInstanceLocked() const;  // -1 when all slots are taken
  int TakeSlotLocked(int instance);
  void GiveBackLocked(int instance, int slot);
  Status PlaceOrHoldLocked(const Key& key, QueuedRequest& item);
  void PlaceLocked(const Key& key, QueuedRequest item, int instance);
  void AdmitWaitingLocked();
  std::vector<GivenUp> TakeGivenUpLocked();
  void AnswerGivenUp(std::vector<GivenUp> given_up) const;

  const ::inference::ModelConfig config_;
  Clock& clock_;
  const GiveUp give_up_;
  const int64_t max_idle_ns_;
  const int slots_per_instance_;
  std::mutex mutex_;
  std::map<int, Slots> slots_;  // by instance
  int next_instance_ = 0;
  std::map<Key, Live> live_;
  std::deque<Waiting> waiting_;  // in order of arrival
};

}  // namespace inflight::serving
