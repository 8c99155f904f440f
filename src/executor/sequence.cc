// SPDX-License-Identifier: Apache-2.0
#include "executor/sequence.h"

#include <optional>
#include <random>
#include <utility>

namespace inflight::executor {
namespace {

int64_t After(int64_t now_ns, const std::optional<int64_t>& timeout, int64_t unit_ns) {
  const bool is_bound = timeout && *timeout < (kNever - now_ns) / unit_ns;
  return is_bound ? now_ns + *timeout * unit_ns : kNever;
}

// Of the request's blocks: its own; of a table that its own does not cover one that no other has.
uint64_t SaltOf(const Request& request, RequestId id) {
  if (request.prompt_table == nullptr || request.salt_covers_prompt_table)
    return request.cache_salt;
  static const uint64_t secret = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return secret ^ id;
}

}  // namespace

ActiveRequest::~ActiveRequest() { delete stream; }

void ActiveRequest::NoteToken(int64_t now_ns) {
  if (times.first_token_ns == 0) {
    times.first_token_ns = now_ns;
    stream->first_times = times;
  }
  times.last_token_ns = now_ns;
}

// Salts are 0, or bits of a hash that nobody aims (serving/core/cache_salt.h): what a serial adds
// leads to another's salt as seldom as two such hashes are equal.
uint64_t PrefixSalt(uint64_t cache_salt, const model::Adapter* adapter) {
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15U;  // odd: no two serials give the same
  return adapter == nullptr ? cache_salt : cache_salt ^ (adapter->serial * kSpread);
}

std::unique_ptr<ActiveRequest> MakeActiveRequest(RequestId id, Request request,
                                                 std::shared_ptr<ResponseSink> sink, int64_t now_ns,
                                                 std::shared_ptr<const model::Adapter> adapter) {
  auto active = std::make_unique<ActiveRequest>();
  active->id = id;
  active->times.enqueued_ns = now_ns;
  active->deadline_ns = After(now_ns, request.timeout_ms, 1'000'000);
  active->queue_deadline_ns = After(now_ns, request.queue_timeout_us, 1'000);
  const int num_sequences = NumSequences(request);
  active->stream = new Stream(request, id, std::move(sink));
  active->num_unfinished = active->num_unreleased = num_sequences;
  active->sequences = std::vector<Sequence>(static_cast<size_t>(num_sequences));
  active->params = std::move(request);
  active->params.lora.reset();  // the adapter has what it brought
  active->adapter = std::move(adapter);
  const Request& params = active->params;
  const uint64_t salt = SaltOf(params, id);
  for (int i = 0; i < num_sequences; ++i) {
    Sequence& sequence = active->sequences[static_cast<size_t>(i)];
    sequence.request = active.get();
    sequence.index = i;
    sequence.num_prompt_tokens = static_cast<int>(params.input_ids.size());
    sequence.seed = params.sampling.seed.value_or(0) + static_cast<uint64_t>(i);
    sequence.tokens = &params.input_ids;
    sequence.cache_salt = PrefixSalt(salt, active->adapter.get());
    sequence.wants_context_logits = params.output.return_context_logits && i == 0;
    sequence.reuses_blocks = !sequence.wants_context_logits;
    sequence.priority = params.priority;
    sequence.arrival = id;
    sequence.num_beams = params.sampling.beam_width;
    sequence.num_prompt_drafts = static_cast<int>(params.draft_ids.size());
    // One step verifies drafts of the client, and ends the sequence.
    const int most =
        sequence.num_prompt_drafts == 0 ? params.max_tokens : sequence.num_prompt_drafts + 1;
    sequence.max_seq_len = sequence.num_prompt_tokens + std::min(params.max_tokens, most);
  }
  return active;
}

}  // namespace inflight::executor
