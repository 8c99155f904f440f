// SPDX-License-Identifier: Apache-2.0
// What the step loop asks of a device. local_backend.h has those that run a model on this process's
// CPU or GPU; `FakeBackend` (tests) completes steps late.
//
// Depth belongs to the backend: up to `depth` steps may be launched and not yet collected. Depth 1
// (CPU) computes inside Launch; at depth 2 (CUDA) the step loop plans and launches N+1 while N
// computes, and every sequence found finished at Collect has one row in flight, which is discarded.
// Slots and blocks are reused only after the last step that holds them was collected (Retire).
// A device of several stages, one behind the other, has a step in each: depth is their number. It
// learns a token no sooner than the host, so that it does not look ahead (looks_ahead): the steps
// in flight are of different sequences, or chunks of a prompt.
//
// Launch is Forward, then Decode, with late inputs between: rows planned with has_late_inputs are
// decoded only once ProvideLateInputs was called for that step. Where no row has any, the two are
// one.
//
// Threads: all calls come from the executor's thread.
// Errors:  a failed Launch, Collect or ProvideLateInputs is a device fault: the executor fails what
// is pending and turns unhealthy. A device that may hang needs a watchdog in its Collect
// (docs/cuda.md, "Faults"). A failed SetupSlot ends that request alone.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "decoding/guided_slot.h"
#include "inflight/executor.h"
#include "inflight/request.h"
#include "scheduler/step_plan.h"

namespace inflight {
class ReleasableMemory;
}

namespace inflight::model {
struct Adapter;
}

namespace inflight::executor {

class AdapterCache;

using scheduler::BlockId;
using scheduler::SlotId;
using scheduler::StepPlan;

// Layers of one window share block tables (executor/kv_shares.h).
struct KvGroup {
  int block_size = 0;  // tokens
  int64_t num_blocks = 0;
  // A token sees the first num_sinks tokens and the last window - num_sinks ones; 0 = all.
  int window = 0;
  int num_sinks = 0;
  // Blocks with ids from num_blocks on, where copies of StepPlan go to and come from.
  int64_t num_host_blocks = 0;
};

struct BackendInfo {
  int depth = 1;
  // Whether a decode row may be launched while a step in flight computes the token that it begins
  // with. Rows of beams never are.
  bool looks_ahead = true;
  int max_slots = 0;  // sequences that can be set up at once; at least max_batch_size + depth - 1
  int max_batch_size = 0;      // rows in one step, at most StepPlan::kMaxRows
  int max_num_tokens = 0;      // tokens in one step
  int max_tokens_per_row = 1;  // that a decode row computes and may yield: 1 + the longest draft
  int max_drafts = std::numeric_limits<int>::max();  // in one step, of all its rows
  bool makes_drafts = false;  // for decode rows, as many as the plan lets them have
  // Where they are the first nodes of a tree: how often each of its nodes may be accepted, a guess.
  std::vector<double> draft_chances = {};
  // Likewise: of which node each is a child; -1: of the row's newest token.
  std::vector<int> draft_parents = {};
  int max_beam_width = 1;  // of the engine; 1 = no beam search
  int max_seq_len = 0;
  int max_input_len = 0;
  int vocab_size = 0;
  bool returns_logits = false;
  bool wants_guide_masks = false;  // of rows that are no beams, as late inputs
  int hidden_size = 0;
  int max_prompt_embedding_table_size = 0;  // rows of a request's table; 0: takes none
  std::vector<KvGroup> kv_groups;
  int64_t least_step_ns = 0;  // of any step: what copying streamed weights takes
  // Held while the backend lives: all that its memory plan lists.
  int64_t cpu_memory_bytes = 0, gpu_memory_bytes = 0, pinned_memory_bytes = 0;
};

// What requests of this backend are validated by.
ExecutorLimits LimitsOf(const BackendInfo& info);

// What belongs to a sequence and does not change from step to step; sent once, when the sequence
// gets its slot. A paused or rebuilt sequence is set up again with what it had generated, as of the
// last Collect.
struct SlotSetup {
  SlotId slot = 0;
  std::span<const TokenId> tokens;  // [num_prompt_tokens + num_generated] known so far
  int num_prompt_tokens = 0;
  // Prompt + max_tokens: the sequence ends with kLength when it holds that many.
  int max_seq_len = 0;
  // Sampling, output, end_ids, stop_words, prompt_table; valid during the call only.
  const Request* request = nullptr;
  // Logits of prompt tokens [*context_logits_from, num_prompt_tokens) are to be returned.
  std::optional<int> context_logits_from = std::nullopt;
  uint64_t seed = 0;       // of this sequence (request seed + sequence index)
  float cum_log_prob = 0;  // so far
  // Beam search: the slots of all beams, `slot` the first; empty without. Then `tokens` are the
  // prompt, and the search begins anew.
  std::span<const SlotId> beam_slots = {};
  const model::Adapter* adapter = nullptr;  // lives as long as the sequence; null = none
};

// Inputs that the host makes while the forward pass runs: masks of guides.
struct LateInputs {
  // Of the token behind the slot's newest one, or behind one of its row's drafts. Where it has no
  // bit nothing is drawn that counts.
  struct Mask {
    SlotId slot;
    int draft = 0;                           // 0: the newest, i: the i-th draft, or node i - 1
    std::span<const uint32_t> allowed_bits;  // [ceil(vocab_size / 32)]
  };
  std::vector<Mask> masks;
};

using Ticket = int64_t;  // the plan's step_id

// What one row of a step returns of the model's logits, as they were before decoding, and of the
// distribution after it.
struct RowLogits {
  LogitsRows context;                     // of the prompt tokens that the row computed
  LogitsRows generation;                  // one row per token that it yielded
  std::vector<TopLogProb> top_log_probs;  // num_top_log_probs per token that it yielded
};

// Results of one step, row by row in plan order. The arrays are reused; valid until the next
// Collect.
struct StepResult {
  // [num_rows + 1]; row r yielded tokens [token_begin[r], token_begin[r+1])
  std::vector<int32_t> token_begin;
  std::vector<TokenId> token_ids;    // an end id that finished a row is included here; the executor
                                     // keeps it from clients
  std::vector<float> log_probs;      // one per token: what output_log_probs reports to clients
  std::vector<float> cum_log_probs;  // [num_rows] after this step
  // [num_rows] kNotFinished, kEndId, kStopWords or kLength
  std::vector<FinishReason> finish_reasons;
  // [num_rows] of a row whose request has a guide; its request fails with StatusOf it
  std::vector<decoding::GuideVerdict> verdicts;
  // [num_rows] drafts that the row had: at most as many as planned. (Tokens yielded - 1) of them
  // were accepted: of a chain the first ones, of a tree those of accepted_nodes.
  std::vector<int32_t> num_drafted;
  std::vector<uint64_t> accepted_nodes;  // [num_rows] bit i: node i of the row's tree
  // [num_rows] of a beam search, which yields no tokens: the beam that row r's goes on from. The
  // first of its rows has its finish reason, kLength when it is over; BestBeams has the tokens.
  std::vector<int32_t> parents;
  // [num_rows], null where nothing was asked for; empty where no row asks.
  std::vector<std::shared_ptr<RowLogits>> logits;
  // By the device's own clock, first kernel to last; 0 where it has none.
  int64_t device_begin_ns = 0, device_end_ns = 0;

  void Reserve(int max_rows);    // so that no step allocates
  void Clear(int num_rows);      // sizes the per-row arrays, empties the per-token ones
  RowLogits& LogitsOf(int row);  // made when first asked for
};

// Memory that can be given back while no step is in flight and no slot is set up (sleeper.h).
struct ReleasableParts {
  using Memories = std::vector<std::shared_ptr<ReleasableMemory>>;
  Memories weights;        // of the model, or of each rank
  Memories draft_weights;  // of a draft model
  Memories kv_cache;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const BackendInfo& info() const = 0;

  // Where requests' adapters come from; null: it takes none. For any thread.
  virtual AdapterCache* adapters() { return nullptr; }

  // Why no step can be computed any more; OK while one can. Asked while none is in flight, so that
  // what a launched step would say is known before a request comes.
  virtual Status status() const { return Status::Ok(); }

  // kUnimplemented says why nothing can be given back.
  virtual Result<ReleasableParts> releasable() const {
    return Status(StatusCode::kUnimplemented, "sleep: this model's backend gives nothing back");
  }

  // Takes effect for steps launched afterwards. Overwrites whatever the slot held.
  virtual Status SetupSlot(const SlotSetup& setup) = 0;

  // The sequence that has the slot, or the beams, has ended, and no step in flight has it: what is
  // kept for it alone may go.
  virtual void ReleaseSlot(SlotId /*slot*/) {}

  // Enqueues a step; on return `plan` may be overwritten. At most `depth` steps may be outstanding,
  // and those that have late inputs were given them.
  virtual Result<Ticket> Launch(const StepPlan& plan) = 0;
  virtual Status ProvideLateInputs(Ticket ticket, const LateInputs& inputs) = 0;

  // The drafts of a row of the oldest step, before it is given its late inputs: of a row that has
  // some and was planned with drafts. Waits until they are known; valid until the next Launch.
  virtual Result<std::span<const TokenId>> DraftsOf(Ticket /*ticket*/, SlotId /*slot*/) {
    return std::span<const TokenId>();
  }

  // True when Collect would not wait.
  virtual bool Ready(Ticket ticket) const = 0;

  // The answer of the beam search whose beam 0 has `slot`, had it ended with the last collected
  // step; generation_logits are in the last answer alone. The slot is set up, and a step that
  // yields was collected.
  virtual std::vector<Beam> BestBeams(SlotId /*slot*/, bool /*is_last*/) const { return {}; }

  // Waits for the oldest outstanding step and hands out its results. Tickets are collected in
  // order.
  virtual Result<const StepResult*> Collect(Ticket ticket) = 0;
};

}  // namespace inflight::executor
