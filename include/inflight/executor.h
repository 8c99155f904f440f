// SPDX-License-Identifier: Apache-2.0
// The executor runs one engine with in-flight batching: requests of tokens in, responses of tokens
// out.
//
// It is the waist of the product: servers, plug-ins, the command line and embedding programs use
// this interface and nothing below it. Requests join and leave the running batch between steps.
//
// Promises (tested by tests/simulation):
//   every accepted request gets exactly one final response, also on cancel, time-out, error and
//   shutdown; a cancelled request is in no plan made after the cancel was admitted; sinks never run
//   on the step loop's thread, and one request's responses arrive in order from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "inflight/kv_events.h"
#include "inflight/request.h"
#include "inflight/request_stats.h"
#include "inflight/status.h"
#include "inflight/step_profile.h"

namespace inflight {

// Receives the responses of one request. Called from a stream thread of the executor; must not
// block for long, since other requests share the thread. The executor drops its reference after the
// final response.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  virtual void OnResponse(Response response) = 0;
};

// Bounds that validation of a request uses; constant after load.
struct ExecutorLimits {
  int vocab_size = 0;
  int max_batch_size = 0;  // sequences in one step
  int max_num_tokens = 0;  // packed tokens in one step
  int max_seq_len = 0;     // prompt + output of one sequence
  int max_input_len = 0;   // prompt of one sequence
  int max_beam_width = 1;
  int max_draft_len = 0;  // draft tokens of a row of a step
  // OutputOptions::return_context_logits, return_generation_logits, num_top_log_probs
  bool returns_logits = false;
  int hidden_size = 0;                      // of the rows of Request::prompt_table
  int max_prompt_embedding_table_size = 0;  // rows of it; 0: no prompt tuning
  int block_size = 0;                       // tokens per KV block
  int64_t num_blocks = 0;                   // KV blocks in the pool
  // Where layers of different windows have pools of their own, num_blocks is that of the layers
  // which see most, and this the smallest; else 0.
  int64_t least_blocks = 0;
};

// Who may hold KV blocks (docs/reference/scheduling.md, "Who runs").
enum class SchedulerPolicy : uint8_t {
  kMaxUtilization = 0,     // admits while the next steps fit; pauses the last one when they do not
  kGuaranteedNoEvict = 1,  // admits who fits at full length; nobody is ever paused
  kStaticBatch = 2,        // the same, and nobody joins until all of a batch have ended
};

// Who gets the prompt tokens of a step, where not all fit (docs/reference/scheduling.md).
enum class ChunkingPolicy : uint8_t {
  kFirstComeFirstServed = 0,  // in order, each as many as are left
  kEqualProgress = 1,         // a block each, round after round
};

// Who proposes tokens that a step of the model then verifies, several at once
// (docs/reference/speculation.md).
enum class DraftSource : uint8_t {
  kAuto = 0,  // kEagle where there is such a head, kMedusa of a model that has heads, else kNone
  kNone = 1,
  kNgram = 2,   // the text itself: what followed its last tokens when they stood there before
  kMedusa = 3,  // the model's own heads
  kSuffix = 4,  // texts: that of the sequence, and outputs that ended lately, whosever they are
  kEagle = 5,   // a head of EAGLE beside the model (OpenOptions::draft_model)
  kModel = 6,   // a smaller model (the same)
};

// What becomes of requests when an executor is put to sleep (docs/sleep.md).
enum class SleepMode : uint8_t {
  kKeep = 0,   // those that run are paused, and go on after waking
  kWait = 1,   // those that run end first
  kAbort = 2,  // all that are there end, as cancelled
};

struct SleepOptions {
  // What is given back beside the memory of the KV cache, whose contents are lost: 1: of weights on
  // a GPU their memory there, a copy of which is kept in the host's; 2: the weights, which are read
  // from the model's directory again.
  int level = 1;
  SleepMode mode = SleepMode::kKeep;
};

// What is taken again; requests go on once both are there.
struct WakeOptions {
  bool weights = true;
  bool kv_cache = true;
};

struct SleepState {
  // No sleep was asked for, or all is over: requests run.
  bool is_awake = true;
  int level = 0;  // 0: nothing is given back
  // Of the device's memory, given back now.
  uint64_t weight_bytes = 0;
  uint64_t kv_cache_bytes = 0;
  uint64_t host_copy_bytes = 0;  // pinned host memory that holds weights of a GPU
  int64_t last_sleep_ns = 0;     // what the device took of the last Sleep, requests aside
  int64_t last_wake_ns = 0;      // and of the last WakeUp
};

// Gauges and counters as of the last completed step. Counters grow from load.
struct ExecutorStats {
  int64_t num_steps = 0;
  int num_active_requests = 0;  // admitted, not finished
  int num_queued_requests = 0;  // accepted, not admitted
  int max_active_requests = 0;
  int num_scheduled_requests = 0;   // rows of the last step
  int num_context_requests = 0;     // of them in prefill
  int num_generation_requests = 0;  // of them in decode
  // Started, paused since, not resumed yet: they hold no blocks (kMaxUtilization, Executor::Hold).
  // They count as active.
  int num_paused_requests = 0;
  // Tokens of the last step in prefill: prompts and what resumes repeat.
  int num_context_tokens = 0;
  int micro_batch_id = 0;  // place of the last step among those in flight: [0, backend's depth)
  // Of all pools, where layers of different windows have their own. Used are blocks that sequences
  // hold; free includes reusable ones.
  int64_t kv_blocks_max = 0, kv_blocks_free = 0, kv_blocks_used = 0;
  int64_t kv_blocks_reused = 0, kv_blocks_missed = 0, kv_blocks_alloc_total = 0,
          kv_blocks_alloc_new = 0;
  // The host pool: blocks it has and those that hold something; blocks copied there, and back.
  int64_t kv_host_blocks_max = 0, kv_host_blocks_used = 0;
  int64_t kv_blocks_offloaded = 0, kv_blocks_onboarded = 0;
  int64_t tokens_generated = 0, prompt_tokens = 0, prompt_tokens_cached = 0;
  int64_t requests_started = 0;  // admitted for the first time
  int64_t queue_ns = 0;          // what those waited for it, together
  // Rows of all steps that yielded tokens, and how many. Of a beam search each step counts as one.
  int64_t rows_decoded = 0, tokens_decoded = 0;
  // Drafts that were verified, and those of them that became output.
  int64_t tokens_drafted = 0, drafts_accepted = 0;
  int64_t num_pauses = 0;         // how often a request was paused
  int64_t tokens_recomputed = 0;  // tokens whose K and V a resume computed a second time
  int64_t requests_completed = 0, requests_cancelled = 0, requests_failed = 0,
          requests_timed_out = 0;
  // What this executor holds of each kind of memory: weights, workspace and KV blocks. Constant,
  // but for what sleeping gives back.
  int64_t cpu_memory_bytes = 0, gpu_memory_bytes = 0, pinned_memory_bytes = 0;
  int64_t last_step_ns = 0;  // duration of the last step
  // Host work outside Launch and waiting, waking the stream threads included: known only once they
  // are awake, so records of TakeIterationStats do not have it.
  int64_t last_host_ns = 0;
  int64_t last_launch_ns = 0;  // that the host took to enqueue the newest step
  // That the device did nothing before the last step; 0 where it has no clock (the CPU). Behind a
  // step that was in flight when this one was launched, what the host's work failed to hide.
  int64_t last_idle_ns = 0;
  int sleep_level = 0;       // SleepState::level; also while it falls asleep or wakes
  int64_t heartbeat_ns = 0;  // monotonic time of the step loop's last turn (also when idle)
};

// The adapters (LoRA) that an executor keeps.
struct AdapterStats {
  // Of those whose ids the program gave (LoraUse::is_own), the newest use first.
  std::vector<uint64_t> own_ids;
  // How many of the present ones' mean size it has memory for; 0 where it runs none.
  int max_adapters = 0;
};

// One number per step, for histograms; called on the step loop's thread, so it must not block or
// allocate.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void OnStep(int64_t step_ns, int num_rows, int num_tokens) = 0;
};

// Of the weights of a model's layers, what stays in a GPU's memory. The other layers lie in pinned
// host memory, and each step copies them while earlier ones are computed (docs/cuda.md, "Weights
// that do not fit").
struct GpuWeights {
  double fraction = 1;          // [0, 1] of the layers; what is no layer's always stays
  bool as_many_as_fit = false;  // in place of the fraction: all, where there is room
};

struct ExecutorOptions {
  std::optional<int> max_batch_size = {};     // default and upper bound: the engine's
  std::optional<int> max_num_tokens = {};     // default and upper bound: the engine's
  std::optional<int> max_seq_len = {};        // default and upper bound: the engine's
  std::optional<int64_t> max_kv_tokens = {};  // cap on KV cache tokens
  double kv_cache_free_memory_fraction =
      0.9;                      // of memory free after weights and workspace; 0 < f < 1
  int block_size = 64;          // 16, 32, 64 or 128 tokens
  GpuWeights gpu_weights = {};  // other than all: GPUs only
  // Tokens that each layer attends to, repeated over the layers; 0, or as many as a sequence has,
  // is all. The first sink_tokens of a sequence are always among them (arXiv:2309.17453).
  std::vector<int> attention_windows = {};
  int sink_tokens = 0;
  // Host memory where reusable blocks are kept that the KV cache has no room for.
  uint64_t kv_cache_host_bytes = 0;
  // Memory for the adapters (LoRA) of requests. Where either is set it is taken at load, on the CPU
  // as many bytes as the second says, or else the first. Without, a twentieth of what is left, on
  // the CPU at most 1 GiB, when the first adapter comes. On a GPU the first is the GPU's memory,
  // and the second, by default 1 GiB, bounds host memory in which what clients brought is kept.
  std::optional<double> adapter_memory_fraction = {};  // [0, 1) of what KV cache and this share
  std::optional<uint64_t> adapter_host_bytes = {};
  // The largest rank, over all modules, that these must hold one adapter of; 0 = any.
  int max_adapter_rank = 0;
  // Executor::Sleep may be called: weights and KV cache lie in memory that can be given back.
  bool enable_sleep = false;
  bool enable_prefix_reuse = true;
  bool enable_chunked_prefill = true;
  SchedulerPolicy scheduler_policy = SchedulerPolicy::kGuaranteedNoEvict;
  ChunkingPolicy chunking_policy = ChunkingPolicy::kFirstComeFirstServed;
  DraftSource drafts = DraftSource::kAuto;
  // Draft tokens of a row of a step at most, below block_size. Default: the engine's, or where that
  // is 0 and there are drafts 4, and of a tree as many as it has nodes.
  std::optional<int> max_draft_len = {};
  // The tree of kMedusa, a path for each node (docs/reference/speculation.md, "Medusa"); empty: the
  // 63 nodes that are upstream's default, or as many as max_draft_len and block_size allow.
  std::vector<std::vector<int>> medusa_choices = {};
  int max_queue_size = 0;  // requests that wait for their start; 0 = 4096
  // A request that finds room may wait this long for others to start with it: until as many wait as
  // can still join, or the oldest has waited so long. 0 = starts at once.
  int64_t max_queue_delay_us = 0;
  // Prefill share of a step is sized by its measured cost to meet this.
  double step_time_goal_ms = 250;
  int num_stream_threads = 0;  // 0 = by cores
  // A request's results depend on the request alone, bit for bit: not on what else is in its steps,
  // the chunks of its prompt, blocks that it reuses, pauses, or the start of the process. On a GPU
  // at a price (docs/performance.md).
  bool deterministic = false;
  // Records that TakeIterationStats finds at most; older ones are lost. 0 keeps none.
  int iter_stats_max_iterations = 1000;
  // The same of TakeRequestStats. A record has an entry for each request, queued ones too.
  int request_stats_max_iterations = 0;
  StepObserver* step_observer = nullptr;  // not owned; outlives the executor
  KvEventsOptions kv_events = {};
  // In place of kv_events, for embedding programs.
  std::shared_ptr<KvObserver> kv_observer = nullptr;
};

class Executor {
 public:
  virtual ~Executor() = default;  // Shutdown, then joins its threads

  // Thread-safe, never blocks. Validates against limits() (kInvalidArgument names field, value,
  // bound and remedy), then queues; kResourceExhausted when the queue is full ("Maximum queue size
  // of %d has been reached, please try again later"), kUnavailable after Shutdown or a device
  // fault. A failed Enqueue never calls the sink.
  virtual Result<RequestId> Enqueue(Request request, std::shared_ptr<ResponseSink> sink) = 0;

  // Thread-safe, idempotent; unknown and finished ids are ignored. The final response has finish
  // reason kCancelled and status OK.
  virtual void Cancel(RequestId id) = 0;

  // While a request is held no further tokens are generated for it, besides those of steps that are
  // under way; so a client that reads slowly keeps its responses from gathering. For 0.1 s it keeps
  // its place, then it gives up its KV blocks to others until it goes on (ExecutorStats counts it
  // among the paused ones). Its deadlines run on, and Cancel ends it. Calls for one request count
  // in their order. Thread-safe, never blocks; unknown and finished ids are ignored.
  virtual void Hold(RequestId id, bool is_held);

  virtual const ExecutorLimits& limits() const = 0;
  virtual ExecutorStats stats() const = 0;
  virtual AdapterStats adapter_stats() const { return {}; }  // thread-safe

  // Appends a record for each step since the last call, oldest first: stats() as they were right
  // after it, heartbeat_ns being when it was collected. When nothing is left to do, one more record
  // follows whose step fields (scheduled, context, generation, duration) are 0. Thread-safe; never
  // delays the step loop.
  virtual void TakeIterationStats(std::vector<ExecutorStats>* records) = 0;

  // Appends a record for each step since the last call, oldest first: the requests that were there
  // at its end, and those that ended since the record before. Those that ended after the last step
  // are in one more record of its number. Thread-safe.
  virtual void TakeRequestStats(std::vector<RequestStatsPerIteration>* records) = 0;

  // Takes profiles of the step loop; null where there is none. Thread-safe.
  virtual std::shared_ptr<StepProfiler> step_profiler() const { return nullptr; }

  // Gives back the memory of KV cache and weights, and returns when that is done; requests are
  // accepted meanwhile and wait, up to the queue's bounds and their deadlines, until WakeUp.
  // Nothing happens where it sleeps at that level or a deeper one. Thread-safe; blocks.
  // kFailedPrecondition where it was not opened with enable_sleep or another call is under way,
  // kUnimplemented where the model cannot sleep so, kResourceExhausted where the host has no room
  // for the copy: then it goes on as before. kAborted: WakeUp came before it slept.
  virtual Status Sleep(const SleepOptions& options);
  // Takes the memory again, and returns when the weights are there. Nothing happens where it is
  // awake. Thread-safe; blocks. kResourceExhausted where others have the memory by now; then, and
  // where the directory cannot be read, it goes on sleeping.
  virtual Status WakeUp(const WakeOptions& options);
  virtual SleepState sleep_state() const { return {}; }  // thread-safe

  // False after a device fault or when the step loop's heartbeat is older than it should be.
  virtual bool healthy() const = 0;

  // Refuses new requests; lets accepted ones finish until `drain_ms` have passed, then cancels the
  // rest. Blocks until done.
  virtual void Shutdown(int64_t drain_ms) = 0;
};

inline void Executor::Hold(RequestId, bool) {}  // of an executor that has no loop to hold
inline Status Executor::Sleep(const SleepOptions&) {
  return {StatusCode::kUnimplemented, "sleep: this executor has nothing to give back"};
}
inline Status Executor::WakeUp(const WakeOptions&) { return Status::Ok(); }

}  // namespace inflight
