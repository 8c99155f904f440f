// SPDX-License-Identifier: Apache-2.0
#include "executor/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "executor/adapter_cache.h"
#include "executor/inbox.h"
#include "executor/step_loop.h"
#include "executor/streams.h"
#include "executor/validation.h"
#include "scheduler/scheduler.h"
#include "tensor/cpu_pool.h"

namespace inflight::executor {
namespace {

constexpr int kDefaultQueueSize = 4096;
constexpr int kMaxQueueSize = 1 << 20;
constexpr int kMaxRecords = 1 << 20;
constexpr int64_t kMaxQueueDelayUs = 3'600'000'000;  // an hour
constexpr int64_t kIdleTurnNs = 100'000'000;         // the heartbeat of an idle loop
constexpr int64_t kBacklogTurnNs = 1'000'000;        // an idle loop tries again to hand events over

// The heartbeat may be this old, and ten times the longest step seen, before the loop counts as
// stuck (docs/executor.md, "How a request ends").
constexpr int64_t kMaxHeartbeatAgeNs = 30'000'000'000;
constexpr int64_t kMaxStepsOfHeartbeat = 10;

int StreamThreads(int wanted) {
  if (wanted > 0) return wanted;
  return std::clamp(NumUsableCores() / 4, 1, 4);
}

// `option`, or the engine's value; the engine's is also the upper bound.
Result<int> AtMost(const char* name, const std::optional<int>& option, int engine) {
  if (!option) return engine;
  if (*option < 1 || *option > engine) {
    return InvalidArgument(
        name, fmt::format("got {}, must be in [1, {}] (rebuild the engine to raise it)", *option,
                          engine));
  }
  return *option;
}

Status ValidateRecords(const char* name, int num_records) {
  if (num_records >= 0 && num_records <= kMaxRecords) return Status::Ok();
  return InvalidArgument(name, fmt::format("got {}, must be in [0, {}]", num_records, kMaxRecords));
}

Status ValidateBackend(const BackendInfo& info) {
  if (info.depth < 1 || info.kv_groups.empty() || info.max_slots < info.max_batch_size) {
    return Internal(fmt::format("backend: depth {}, {} KV groups, {} slots for {} rows", info.depth,
                                info.kv_groups.size(), info.max_slots, info.max_batch_size));
  }
  for (const KvGroup& group : info.kv_groups) {
    if (group.block_size < 1 || group.num_blocks < 1) {
      return OutOfMemory(fmt::format(
          "KV cache: {} blocks of {} tokens, at least one is needed (give it more memory)",
          group.num_blocks, group.block_size));
    }
  }
  return Status::Ok();
}

// Blocks of a group that one sequence of full length holds at most at once.
int64_t FullLengthBlocks(const BackendInfo& info, const KvGroup& group,
                         const ExecutorLimits& limits, const ExecutorOptions& options) {
  const int64_t all = kv_cache::BlocksFor<int64_t>(limits.max_seq_len, group.block_size);
  if (group.window == 0) return all;
  scheduler::Scheduler::KeptTokens kept;
  int block_size = 0;
  for (const KvGroup& other : info.kv_groups) {
    kept.widest = std::max(kept.widest, other.window);
    kept.keeps_all |= other.window == 0;
    block_size = std::max(block_size, other.block_size);
  }
  const int max_chunk = scheduler::Scheduler::MaxChunkTokens(
      {.max_num_tokens = limits.max_num_tokens,
       .enable_chunked_prefill = options.enable_chunked_prefill},
      kept, block_size);
  const int max_ahead = info.depth * std::max(max_chunk, info.max_tokens_per_row);
  return std::min(all, kv_cache::KvCache::WindowBlocks({.num_blocks = group.num_blocks,
                                                        .block_size = group.block_size,
                                                        .window = group.window,
                                                        .num_sinks = group.num_sinks},
                                                       max_ahead));
}

}  // namespace

Result<ExecutorLimits> MakeLimits(const BackendInfo& info, const ExecutorOptions& options) {
  RETURN_IF_ERROR(ValidateBackend(info));
  ExecutorLimits limits = LimitsOf(info);
  ASSIGN_OR_RETURN(limits.max_batch_size,
                   AtMost("max_batch_size", options.max_batch_size, info.max_batch_size));
  ASSIGN_OR_RETURN(limits.max_num_tokens,
                   AtMost("max_num_tokens", options.max_num_tokens, info.max_num_tokens));
  limits.max_batch_size = std::min(limits.max_batch_size, scheduler::StepPlan::kMaxRows);
  for (const KvGroup& group : info.kv_groups) {
    // A step's plan names each new block of a chunk, and one sequence must fit the pool.
    const int max_chunk = scheduler::Scheduler::kMaxChunkBlocks /
                          static_cast<int>(info.kv_groups.size()) * group.block_size;
    limits.max_num_tokens = std::min(limits.max_num_tokens, max_chunk);
    if (group.num_blocks < FullLengthBlocks(info, group, limits, options)) {
      const int64_t pool_tokens = group.num_blocks * group.block_size;
      logging::Warning("KV cache holds less than one sequence of full length: max_seq_len lowered",
                       {{"max_seq_len", limits.max_seq_len}, {"kv_tokens", pool_tokens}});
      limits.max_seq_len = static_cast<int>(pool_tokens);
    }
  }
  // Each beam has a row.
  limits.max_beam_width =
      std::min({limits.max_beam_width, limits.max_batch_size, limits.max_num_tokens,
                scheduler::Scheduler::MaxBeamWidth(static_cast<int>(info.kv_groups.size()))});
  limits.max_input_len = std::min(limits.max_input_len, limits.max_seq_len - 1);
  if (!options.enable_chunked_prefill) {
    limits.max_input_len = std::min(limits.max_input_len, limits.max_num_tokens);
  }
  return limits;
}

namespace {

StepLoopOptions Watched(StepLoopOptions options, LoopWatcher* watcher, RestGate* rest) {
  options.watcher = watcher;
  options.rest = rest;
  return options;
}

class ExecutorImpl : public SteppedExecutor {
 public:
  enum class Threads { kItsOwn, kCallers };

  ExecutorImpl(std::unique_ptr<Backend> backend, const ExecutorOptions& options,
               const ExecutorLimits& limits, Clock& clock, Threads threads,
               std::unique_ptr<LoopWatcher> watcher, std::unique_ptr<Sleeper> sleeper)
      : backend_(std::move(backend)),
        limits_(limits),
        clock_(clock),
        reuses_prefixes_(options.enable_prefix_reuse),
        inbox_(options.max_queue_size > 0 ? options.max_queue_size : kDefaultQueueSize),
        streams_(threads == Threads::kItsOwn ? StreamThreads(options.num_stream_threads) : 0),
        watcher_(std::move(watcher)),
        sleeper_(std::move(sleeper)),
        loop_(Watched(LoopOptionsOf(options, limits), watcher_.get(), &rest_), *backend_, inbox_,
              streams_, clock) {
    if (threads == Threads::kItsOwn) thread_ = std::thread([this] { Run(); });
  }

  ~ExecutorImpl() override {
    Shutdown(/*drain_ms=*/0);
    is_stopping_.store(true);
    inbox_.Wake();
    if (has_threads()) {
      thread_.join();
    } else {
      while (Step()) Deliver();
    }
  }

  Result<RequestId> Enqueue(Request request, std::shared_ptr<ResponseSink> sink) override;
  void Cancel(RequestId id) override { inbox_.Cancel(id); }
  void Hold(RequestId id, bool is_held) override { inbox_.Hold(id, is_held); }
  const ExecutorLimits& limits() const override { return limits_; }
  ExecutorStats stats() const override;
  AdapterStats adapter_stats() const override {
    const AdapterCache* const cache = backend_->adapters();
    return cache == nullptr ? AdapterStats() : cache->stats();
  }
  void TakeIterationStats(std::vector<ExecutorStats>* records) override {
    loop_.TakeIterationStats(records);
  }
  void TakeRequestStats(std::vector<RequestStatsPerIteration>* records) override {
    loop_.TakeRequestStats(records);
  }
  std::shared_ptr<StepProfiler> step_profiler() const override { return loop_.step_profiler(); }
  Status Sleep(const SleepOptions& options) override;
  Status WakeUp(const WakeOptions& options) override;
  SleepState sleep_state() const override;
  bool healthy() const override;
  void Shutdown(int64_t drain_ms) override;
  bool Step() override { return loop_.Step(); }
  size_t Deliver() override { return streams_.Pump(); }

 private:
  Status FallAsleep(const SleepOptions& options);
  void GoOn();
  Result<std::shared_ptr<const model::Adapter>> AdapterOf(const Request& request);
  bool has_threads() const { return thread_.joinable(); }
  void Run();
  static RequestId NextId() {  // ids are never reused in a process
    static std::atomic<RequestId> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  const std::unique_ptr<Backend> backend_;
  const ExecutorLimits limits_;
  Clock& clock_;
  const bool reuses_prefixes_;
  Inbox inbox_;
  StreamHub streams_;
  const std::unique_ptr<LoopWatcher> watcher_;
  const std::unique_ptr<Sleeper> sleeper_;  // null: it cannot sleep
  RestGate rest_;
  std::mutex sleep_mutex_;  // of is_changing_
  std::condition_variable sleep_changed_;
  bool is_changing_ = false;  // a Sleep or a WakeUp is under way
  StepLoop loop_;
  std::atomic<bool> is_accepting_{true};
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> has_warned_of_length_{false};
  std::thread thread_;  // last: runs over all of the above
};

Result<RequestId> ExecutorImpl::Enqueue(Request request, std::shared_ptr<ResponseSink> sink) {
  bool was_shortened = false;
  RETURN_IF_ERROR(ValidateRequest(limits_, &request, &was_shortened));
  // Each round of drafts comes with the whole text before it.
  if (!request.draft_ids.empty() && !reuses_prefixes_)
    return InvalidArgument(
        "KV cache block reuse must be enabled for speculative decoding target model "
        "(enable_kv_cache_reuse is false, and the request has draft tokens)");
  if (was_shortened && !has_warned_of_length_.exchange(true)) {
    logging::Warning("max_tokens shortened to fit max_seq_len; said once",
                     {{"prompt_len", request.input_ids.size()},
                      {"max_tokens", request.max_tokens},
                      {"max_seq_len", limits_.max_seq_len}});
  }
  std::shared_ptr<const model::Adapter> adapter;
  if (request.lora) {
    ASSIGN_OR_RETURN(adapter, AdapterOf(request));
  }
  // Open first: either we see that Shutdown began, or Shutdown waits for this request.
  streams_.Open();
  struct Opened {  // closed where the request is not accepted, or finds no memory
    StreamHub* streams;
    ~Opened() {
      if (streams != nullptr) streams->Close();
    }
  } opened = {&streams_};
  if (!is_accepting_.load() || loop_.has_fault()) {
    return Unavailable(loop_.has_fault() ? "the executor stopped: " + loop_.fault().message()
                                         : "the executor is shutting down");
  }
  const RequestId id = NextId();
  const bool has_room = inbox_.Push(MakeActiveRequest(id, std::move(request), std::move(sink),
                                                      clock_.NowNs(), std::move(adapter)));
  if (!has_room) {
    return ResourceExhausted(
               fmt::format("Exceeds maximum queue size: Maximum queue size of {} has been reached, "
                           "please try again later",
                           inbox_.max_queue_size()))
        .WithReason(Reason::kQueueFull);
  }
  opened.streams = nullptr;
  return id;
}

Result<std::shared_ptr<const model::Adapter>> ExecutorImpl::AdapterOf(const Request& request) {
  AdapterCache* const cache = backend_->adapters();
  if (cache != nullptr) return cache->Get(*request.lora, request.client_id);
  return Unimplemented("lora_task_id",
                       "this executor does not run adapters; a model that is split over ranks "
                       "takes none, serve it on one rank");
}

bool ExecutorImpl::healthy() const {
  if (loop_.has_fault()) return false;
  const ExecutorStats stats = loop_.stats();
  const int64_t limit =
      std::max(kMaxHeartbeatAgeNs, kMaxStepsOfHeartbeat * loop_.longest_step_ns());
  return clock_.NowNs() - stats.heartbeat_ns <= limit;
}

ExecutorStats ExecutorImpl::stats() const {
  ExecutorStats stats = loop_.stats();
  if (sleeper_ == nullptr) return stats;
  const SleepState state = sleeper_->state();
  const auto given = static_cast<int64_t>(state.weight_bytes + state.kv_cache_bytes);
  (stats.gpu_memory_bytes > 0 ? stats.gpu_memory_bytes : stats.cpu_memory_bytes) -= given;
  stats.pinned_memory_bytes += static_cast<int64_t>(state.host_copy_bytes);
  stats.sleep_level = state.level;
  return stats;
}

SleepState ExecutorImpl::sleep_state() const {
  SleepState state = sleeper_ == nullptr ? SleepState() : sleeper_->state();
  state.is_awake = !rest_.is_asked();
  return state;
}

Status CannotSleep() {
  return FailedPrecondition(
      "sleep: the model was not loaded so that it can sleep; start the server with "
      "--enable-sleep-mode");
}

Status ExecutorImpl::Sleep(const SleepOptions& options) {
  if (sleeper_ == nullptr) return CannotSleep();
  RETURN_IF_ERROR(sleeper_->Check(options.level));
  {
    const std::lock_guard lock(sleep_mutex_);
    if (is_changing_)
      return FailedPrecondition(
          "sleep: another call puts the model to sleep or wakes it; ask "
          "again when that has ended");
    is_changing_ = true;
  }
  Status slept = FallAsleep(options);
  const std::lock_guard lock(sleep_mutex_);
  is_changing_ = false;
  sleep_changed_.notify_all();
  return slept;
}

Status ExecutorImpl::FallAsleep(const SleepOptions& options) {
  const bool was_awake = !rest_.is_asked();
  if (was_awake) {
    rest_.Ask(options.mode);
    inbox_.Wake();
    if (!rest_.Wait([this] { return loop_.has_fault(); })) {
      GoOn();
      if (loop_.has_fault()) return Unavailable("the executor stopped: " + loop_.fault().message());
      return Status(StatusCode::kAborted, "sleep: wake_up came before the model slept");
    }
  }
  Status slept = sleeper_->Sleep(options.level);
  if (!slept.ok() && was_awake) GoOn();
  return slept;
}

void ExecutorImpl::GoOn() {
  rest_.GoOn();
  inbox_.Wake();
}

Status ExecutorImpl::WakeUp(const WakeOptions& options) {
  if (sleeper_ == nullptr) return CannotSleep();
  {
    std::unique_lock lock(sleep_mutex_);
    if (is_changing_ && rest_.is_asked()) rest_.Cancel();
    sleep_changed_.wait(lock, [this] { return !is_changing_; });
    if (!rest_.is_asked()) return Status::Ok();
    is_changing_ = true;
  }
  Status woken = sleeper_->Wake(options);
  if (woken.ok() && sleeper_->state().level == 0) GoOn();
  const std::lock_guard lock(sleep_mutex_);
  is_changing_ = false;
  sleep_changed_.notify_all();
  return woken;
}

// Nobody who waits for a sleeping model would be answered while there is time for it.
void ExecutorImpl::Shutdown(int64_t drain_ms) {
  if (rest_.is_asked()) drain_ms = 0;
  is_accepting_.store(false);
  const int64_t now_ns = clock_.NowNs();
  drain_ms = std::clamp<int64_t>(drain_ms, 0, (kNever - now_ns) / 1'000'000 - 1);
  if (!has_threads()) {
    inbox_.CancelAllAt(now_ns);
    while (streams_.num_open() > 0) {
      Step();
      Deliver();
    }
    return;
  }
  inbox_.CancelAllAt(now_ns + drain_ms * 1'000'000);
  streams_.WaitUntilAllClosed();
}

void ExecutorImpl::Run() {
  NameThisThread("inflight-step");
  while (true) {
    if (loop_.Step()) continue;
    if (is_stopping_.load()) return;  // idle: nothing is in flight
    const int64_t next_ns = std::min(loop_.next_turn_ns() - clock_.NowNs(), kIdleTurnNs);
    if (next_ns > 0) inbox_.WaitForNews(streams_.has_backlog() ? kBacklogTurnNs : next_ns);
  }
}

Result<std::unique_ptr<ExecutorImpl>> MakeExecutor(std::unique_ptr<Backend> backend,
                                                   const ExecutorOptions& options, Clock& clock,
                                                   ExecutorImpl::Threads threads,
                                                   std::unique_ptr<LoopWatcher> watcher,
                                                   std::unique_ptr<Sleeper> sleeper) {
  if (options.max_queue_size < 0 || options.max_queue_size > kMaxQueueSize) {
    return InvalidArgument(
        "max_queue_size", fmt::format("got {}, must be in [0, {}] (0 = {})", options.max_queue_size,
                                      kMaxQueueSize, kDefaultQueueSize));
  }
  if (options.max_queue_delay_us < 0 || options.max_queue_delay_us > kMaxQueueDelayUs) {
    return InvalidArgument(
        "max_queue_delay_us",
        fmt::format("got {}, must be in [0, {}]", options.max_queue_delay_us, kMaxQueueDelayUs));
  }
  RETURN_IF_ERROR(ValidateRecords("iter_stats_max_iterations", options.iter_stats_max_iterations));
  RETURN_IF_ERROR(
      ValidateRecords("request_stats_max_iterations", options.request_stats_max_iterations));
  ASSIGN_OR_RETURN(const ExecutorLimits limits, MakeLimits(backend->info(), options));
  return std::make_unique<ExecutorImpl>(std::move(backend), options, limits, clock, threads,
                                        std::move(watcher), std::move(sleeper));
}

}  // namespace

Result<std::unique_ptr<Executor>> CreateExecutor(std::unique_ptr<Backend> backend,
                                                 const ExecutorOptions& options, Clock& clock,
                                                 std::unique_ptr<LoopWatcher> watcher,
                                                 std::unique_ptr<Sleeper> sleeper) {
  ASSIGN_OR_RETURN(auto made,
                   MakeExecutor(std::move(backend), options, clock, ExecutorImpl::Threads::kItsOwn,
                                std::move(watcher), std::move(sleeper)));
  return std::unique_ptr<Executor>(std::move(made));
}

Result<std::unique_ptr<SteppedExecutor>> CreateSteppedExecutor(
    std::unique_ptr<Backend> backend, const ExecutorOptions& options, Clock& clock,
    std::unique_ptr<LoopWatcher> watcher) {
  ASSIGN_OR_RETURN(auto made, MakeExecutor(std::move(backend), options, clock,
                                           ExecutorImpl::Threads::kCallers, std::move(watcher),
                                           /*sleeper=*/nullptr));
  return std::unique_ptr<SteppedExecutor>(std::move(made));
}

}  // namespace inflight::executor
