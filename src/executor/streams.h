// SPDX-License-Identifier: Apache-2.0
// From the step loop's tokens to the clients' responses: the loop pushes small events into a ring
// per stream thread and wakes a sleeping thread once per step; the thread builds each Response and
// calls the sink. A request is hashed to one thread, so its responses stay in order.
//
// The step loop never waits here: events that find a ring full go to a backlog, which is tried
// again at each Flush.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "executor/logits_queue.h"
#include "executor/spsc_ring.h"
#include "inflight/executor.h"

namespace inflight::executor {

// The client's side of one request. Made by Enqueue, deleted by its stream thread after the final
// response.
struct Stream {
  Stream(const Request& request, RequestId request_id, std::shared_ptr<ResponseSink> response_sink);

  RequestId id;
  std::shared_ptr<ResponseSink> sink;
  bool streaming;
  bool return_log_probs;
  const std::unique_ptr<LogitsQueue> logits;  // null where none were asked for

  // Written by the step loop before the first event.
  int num_cached_tokens = 0;
  RequestTimes first_times;  // up to the first token
  // Written by the step loop before the request's last event.
  Status status;
  RequestTimes times;
  int num_draft_tokens = 0, num_accepted_draft_tokens = 0;

  // Of the stream thread: what its next response will hold, for each sequence.
  struct Pending {
    std::vector<TokenId> ids;
    std::vector<float> log_probs;
    std::vector<Beam> beams;
  };
  std::vector<Pending> pending;
  bool has_lost = false;  // for want of memory: its last response says so, and none goes out before
};

struct StreamEvent {
  enum Flags : uint8_t {
    kToken = 1,        // token and log_prob are new output
    kStepEnd = 2,      // last event of this sequence in this step
    kSequenceEnd = 4,  // finish_reason says why
    kRequestEnd = 8,   // with kSequenceEnd of the last sequence: the final response
  };
  Stream* stream = nullptr;
  TokenId token = 0;
  float log_prob = 0;
  float cum_log_prob = 0;
  uint16_t sequence_index = 0;
  uint8_t flags = 0;
  FinishReason finish_reason = FinishReason::kNotFinished;
  std::vector<Beam>* beams = nullptr;  // owned: all that a search has; Deliver deletes it
};
static_assert(sizeof(StreamEvent) == 32);

class StreamHub {
 public:
  static constexpr size_t kRingEvents = 16384;

  // Without threads, events wait for Pump (tests that run everything on one thread).
  explicit StreamHub(int num_threads, size_t ring_events = kRingEvents);
  ~StreamHub();  // delivers what was pushed, joins

  // Step loop's thread.
  void Push(const StreamEvent& event);
  void Flush();  // once per step
  bool has_backlog() const;

  size_t Pump();  // without threads only: delivers everything on this thread; number of events

  // Any thread. A request is open until the return of its final OnResponse, and until the step loop
  // gave back what it held.
  void Open() { num_open_.fetch_add(1); }
  void Close();
  int64_t num_open() const { return num_open_.load(); }
  void WaitUntilAllClosed();  // not from a sink

 private:
  struct Lane {
    explicit Lane(size_t ring_events) : ring(ring_events) {}
    SpscRing<StreamEvent> ring;
    std::vector<StreamEvent> backlog;  // step loop's; entries before backlog_begin are gone
    size_t backlog_begin = 0;
    bool has_news = false;  // step loop's: since the last Flush something to deliver was pushed
    std::atomic<uint32_t> is_sleeping{0};  // 1: its thread waits to be woken
    std::thread thread;
  };

  static void MoveBacklog(Lane& lane);
  void Run(Lane& lane);
  void Deliver(const StreamEvent& event);
  // Into the stream's next response, which goes out where the event is one's last.
  static void Gather(Stream& stream, const StreamEvent& event, std::vector<Beam>* beams);

  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<int64_t> num_open_{0};
  std::mutex mutex_;
  std::condition_variable all_closed_;
};

}  // namespace inflight::executor
