// SPDX-License-Identifier: Apache-2.0
#include "executor/streams.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/no_memory_left.h"
#include "base/thread_name.h"
#include "executor/sequence.h"

namespace inflight::executor {
namespace {

void CallSink(Stream& stream, Response response) {
  try {
    stream.sink->OnResponse(std::move(response));
  } catch (const std::exception& e) {
    logging::Error("response sink threw", {{"request_id", stream.id}, {"what", e.what()}});
  } catch (...) {
    logging::Error("response sink threw", {{"request_id", stream.id}});
  }
}

// The last word to a sink of which something was lost. Where not even that can be made the sink
// goes without, and says so to its client.
void TellLoss(Stream& stream) {
  try {
    CallSink(stream, {.request_id = stream.id, .status = NoMemoryLeft(), .is_final = true});
  } catch (const std::bad_alloc&) {
    return;
  }
}

Response MakeResponse(Stream& stream, const StreamEvent& event) {
  Response response;
  response.request_id = stream.id;
  response.is_final = (event.flags & StreamEvent::kRequestEnd) != 0;
  response.sequence_index = event.sequence_index;
  response.is_sequence_final = (event.flags & StreamEvent::kSequenceEnd) != 0;
  response.times = response.is_final ? stream.times : stream.first_times;
  if (response.is_final) {
    response.num_draft_tokens = stream.num_draft_tokens;
    response.num_accepted_draft_tokens = stream.num_accepted_draft_tokens;
    response.status = stream.status;
    if (!response.status.ok()) return response;
  }
  response.finish_reason = event.finish_reason;
  response.num_cached_tokens = stream.num_cached_tokens;
  Stream::Pending& pending = stream.pending[event.sequence_index];
  if (event.finish_reason != FinishReason::kTimedOut) {
    response.output_ids = std::exchange(pending.ids, {});
    response.output_log_probs = std::exchange(pending.log_probs, {});
    if (stream.return_log_probs) response.cum_log_prob = event.cum_log_prob;
    response.beams = pending.beams;  // kept: the last word, should the search end without another
    if (stream.logits) {
      stream.logits->Take(event.sequence_index, static_cast<int>(response.output_ids.size()),
                          &response);
    }
  }
  return response;
}

}  // namespace

Stream::Stream(const Request& request, RequestId request_id,
               std::shared_ptr<ResponseSink> response_sink)
    : id(request_id),
      sink(std::move(response_sink)),
      streaming(request.streaming),
      return_log_probs(request.output.return_log_probs),
      logits(LogitsQueue::MakeFor(request)),
      pending(static_cast<size_t>(NumSequences(request))) {}

StreamHub::StreamHub(int num_threads, size_t ring_events) {
  for (int i = 0; i < std::max(num_threads, 1); ++i) {
    lanes_.push_back(std::make_unique<Lane>(ring_events));
  }
  for (int i = 0; i < num_threads; ++i) {
    Lane& lane = *lanes_[static_cast<size_t>(i)];
    lane.thread = std::thread([this, &lane] { Run(lane); });
  }
}

StreamHub::~StreamHub() {
  is_stopping_.store(true);
  for (const auto& lane : lanes_) {
    lane->is_sleeping.store(0);
    lane->is_sleeping.notify_one();
  }
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
  Pump();
}

void StreamHub::Push(const StreamEvent& event) {
  Lane& lane = *lanes_[event.stream->id % lanes_.size()];
  lane.has_news |= event.stream->streaming || (event.flags & StreamEvent::kSequenceEnd) != 0;
  if (!lane.backlog.empty() || !lane.ring.Push(event)) lane.backlog.push_back(event);
}

// Waking a thread costs more than all else in a step: nobody is woken for tokens that wait for
// their sequence's end.
void StreamHub::Flush() {
  for (const auto& lane : lanes_) {
    if (!lane->backlog.empty()) {
      MoveBacklog(*lane);
      lane->has_news = true;
    }
    if (!std::exchange(lane->has_news, false)) continue;
    // A thread that found its ring empty set the flag first: either it sees the events, or we see
    // the flag.
    if (lane->is_sleeping.load() != 0 && !lane->ring.empty()) {
      lane->is_sleeping.store(0);
      lane->is_sleeping.notify_one();
    }
  }
}

// Each event is moved a constant number of times, however long the backlog grows.
void StreamHub::MoveBacklog(Lane& lane) {
  size_t& begin = lane.backlog_begin;
  while (begin < lane.backlog.size() && lane.ring.Push(lane.backlog[begin])) ++begin;
  if (2 * begin < lane.backlog.size()) return;
  lane.backlog.erase(lane.backlog.begin(), lane.backlog.begin() + static_cast<ptrdiff_t>(begin));
  begin = 0;
}

bool StreamHub::has_backlog() const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return !lane->backlog.empty(); });
}

void StreamHub::Run(Lane& lane) {
  NameThisThread("inflight-stream");
  StreamEvent event;
  while (true) {
    while (lane.ring.Pop(&event)) Deliver(event);
    lane.is_sleeping.store(1);
    if (!lane.ring.empty()) {
      lane.is_sleeping.store(0);
      continue;
    }
    if (is_stopping_.load()) return;
    lane.is_sleeping.wait(1);
  }
}

size_t StreamHub::Pump() {
  size_t num_events = 0;
  StreamEvent event;
  for (const auto& lane : lanes_) {
    do {
      while (lane->ring.Pop(&event)) {
        Deliver(event);
        ++num_events;
      }
      Flush();
    } while (!lane->ring.empty());
  }
  return num_events;
}

void StreamHub::Deliver(const StreamEvent& event) {
  Stream& stream = *event.stream;
  const std::unique_ptr<std::vector<Beam>> beams(event.beams);
  const bool is_last = (event.flags & StreamEvent::kRequestEnd) != 0;
  try {
    if (!stream.has_lost) Gather(stream, event, beams.get());
  } catch (const std::bad_alloc&) {
    stream.has_lost = true;
  }
  if (!is_last) return;
  if (stream.has_lost) TellLoss(stream);
  delete event.stream;
  Close();
}

void StreamHub::Gather(Stream& stream, const StreamEvent& event, std::vector<Beam>* beams) {
  Stream::Pending& pending = stream.pending[event.sequence_index];
  if ((event.flags & StreamEvent::kToken) != 0) {
    pending.ids.push_back(event.token);
    if (stream.return_log_probs) pending.log_probs.push_back(event.log_prob);
  }
  const bool has_beams = beams != nullptr;
  if (has_beams) pending.beams = std::move(*beams);
  const bool is_end = (event.flags & StreamEvent::kSequenceEnd) != 0;
  const bool has_news = stream.streaming && (event.flags & StreamEvent::kStepEnd) != 0 &&
                        (!pending.ids.empty() || has_beams);
  if (!is_end && !has_news) return;
  CallSink(stream, MakeResponse(stream, event));
}

void StreamHub::Close() {
  if (num_open_.fetch_sub(1) == 1) {
    const std::lock_guard lock(mutex_);
    all_closed_.notify_all();
  }
}

void StreamHub::WaitUntilAllClosed() {
  std::unique_lock lock(mutex_);
  all_closed_.wait(lock, [this] { return num_open_.load() == 0; });
}

}  // namespace inflight::executor
