// SPDX-License-Identifier: Apache-2.0
// The executor's side of a request: its sequences, what they know, and where its answers go.
//
//   Enqueue (caller's thread) makes it -> Inbox -> step loop owns it until every step in flight
//   that holds one of its sequences was collected.
//
// A Sequence is enough to set its slot up again as of the last Collect: tokens, seed, cum_log_prob
// and the request's parameters. A beam search, one sequence of several slots, begins again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "decoding/guided_slot.h"
#include "executor/streams.h"
#include "inflight/request.h"
#include "model/adapter.h"
#include "scheduler/draft_pace.h"
#include "scheduler/scheduler.h"

namespace inflight::executor {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct ActiveRequest;

struct Sequence : scheduler::SequenceState {
  ActiveRequest* request = nullptr;  // constant
  int index = 0;                     // constant; which of the request's sequences
  int num_prompt_tokens = 0;         // constant
  // Prompt, then what was generated; written by Collect. Empty before the sequence first gets a
  // slot: until then `tokens` is the request's prompt.
  std::vector<TokenId> known;
  uint64_t seed = 0;                  // constant: the request's seed + index
  float cum_log_prob = 0;             // written by Collect
  bool wants_context_logits = false;  // constant; the first sequence's alone
  int num_context_logits = 0;         // rows of the prompt collected so far
  int num_beam_steps = 0;             // written by Collect; of a beam search since it began
  int num_beam_steps_sent = 0;        // the most that the stream was told of, also before a pause
  int num_yielding_steps = 0;         // written by Collect; steps that gave it tokens; not of beams
  scheduler::DraftRecord drafts;      // written by Collect
  // Where its tokens stand in the request's guide, where the backend takes masks; else null.
  std::unique_ptr<decoding::GuidedSlot> guide;
  // Of the step whose masks were made last: what the guide says of the token behind the row's
  // newest one, then behind each of its drafts; kNone behind those that may not come.
  std::vector<decoding::GuideVerdict> guide_verdicts;
  bool has_new_row = false;  // set by Collect, cleared when request statistics are recorded
  bool is_finished = false;  // its last event was pushed; rows in flight are discarded
};

struct ActiveRequest {
  ~ActiveRequest();  // a stream without its final event (the queue was full) goes too

  RequestId id = 0;
  Request params;
  std::shared_ptr<const model::Adapter> adapter;  // that params.lora asked for; null = none
  RequestTimes times;
  int num_draft_tokens = 0, num_accepted_draft_tokens = 0;  // written by Collect
  void NoteToken(int64_t now_ns);  // the first of the request, or a later one
  int64_t deadline_ns = kNever;
  int64_t queue_deadline_ns = kNever;  // holds only while is_queued
  Stream* stream = nullptr;            // owned until the final event is pushed, null from then on
  bool is_held = false;                // its client does not read: no more tokens for now
  int64_t leaves_place_ns = kNever;    // while it is held: gives up slots and blocks then
  bool is_queued = true;               // counts against the queue's limit: no sequence was admitted
  int num_unfinished = 0;
  int num_unreleased = 0;
  std::vector<Sequence> sequences;  // [NumSequences(params)]; never resized

  int64_t next_deadline_ns() const {
    return is_queued ? std::min(deadline_ns, queue_deadline_ns) : deadline_ns;
  }
};

// Those that are drawn independently; the beams of a search are one.
inline int NumSequences(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  return sampling.beam_width > 1 ? 1 : sampling.num_return_sequences.value_or(1);
}

// `id` and times are the caller's; the sink goes into a new Stream.
std::unique_ptr<ActiveRequest> MakeActiveRequest(
    RequestId id, Request request, std::shared_ptr<ResponseSink> sink, int64_t now_ns,
    std::shared_ptr<const model::Adapter> adapter = nullptr);

// What requests share blocks by: of each adapter another one for every salt.
uint64_t PrefixSalt(uint64_t cache_salt, const model::Adapter* adapter);

}  // namespace inflight::executor
