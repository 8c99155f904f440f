// SPDX-License-Identifier: Apache-2.0
// For tests: an executor without a model, and a tokenizer whose tokens are bytes.
//
// The fake generates by a function of request and position, by default the prompt over and over.
// It advances when a test calls Step, or by its own thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "inflight/executor.h"
#include "inflight/tokenizer.h"

namespace inflight::serving {

class FakeExecutor : public Executor {
 public:
  using Generator = std::function<TokenId(const inflight::Request&, int position)>;

  static ExecutorLimits SmallLimits() {
    return {.vocab_size = 300,
            .max_batch_size = 8,
            .max_num_tokens = 256,
            .max_seq_len = 64,
            .max_input_len = 32,
            .block_size = 16,
            .num_blocks = 64};
  }

  explicit FakeExecutor(ExecutorLimits limits = SmallLimits(), bool threaded = false)
      : limits_(limits) {
    if (threaded) thread_ = std::thread([this] { Loop(); });
  }
  ~FakeExecutor() override { Stop(); }

  // No sink is held any more. Who may be held by one calls it before it lets go of the executor.
  void Stop() {
    Shutdown(0);
    if (thread_.joinable()) thread_.join();
  }

  Result<RequestId> Enqueue(inflight::Request request,
                            std::shared_ptr<ResponseSink> sink) override {
    std::lock_guard lock(mutex_);
    last_request = request;
    if (closed_) return Unavailable("the executor is shut down");
    if (!refuse_with.ok()) return refuse_with;
    const RequestId id = next_id_++;
    active_[id] = {.request = std::move(request), .sink = std::move(sink)};
    wake_.notify_all();
    return id;
  }

  void Cancel(RequestId id) override {
    std::lock_guard lock(mutex_);
    cancelled_ids.push_back(id);
    if (const auto it = active_.find(id); it != active_.end()) it->second.cancelled = true;
    wake_.notify_all();
  }

  void Hold(RequestId id, bool is_held) override {
    std::lock_guard lock(mutex_);
    if (const auto it = active_.find(id); it != active_.end()) it->second.is_held = is_held;
  }

  const ExecutorLimits& limits() const override { return limits_; }
  ExecutorStats stats() const override {
    std::lock_guard lock(mutex_);
    ExecutorStats stats;
    stats.num_queued_requests = static_cast<int>(active_.size());
    stats.gpu_memory_bytes = gpu_memory_bytes;
    return stats;
  }
  void TakeIterationStats(std::vector<ExecutorStats>* records) override {
    std::lock_guard lock(mutex_);
    records->insert(records->end(), iterations.begin(), iterations.end());
    iterations.clear();
  }
  void TakeRequestStats(std::vector<RequestStatsPerIteration>* records) override {
    std::lock_guard lock(mutex_);
    records->insert(records->end(), request_stats.begin(), request_stats.end());
    request_stats.clear();
  }
  std::shared_ptr<StepProfiler> step_profiler() const override { return profiler; }
  bool healthy() const override { return is_healthy; }

  void Shutdown(int64_t /*drain_ms*/) override {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      for (auto& [id, work] : active_) work.cancelled = true;
      wake_.notify_all();
    }
    if (!thread_.joinable()) Run();
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return active_.empty(); });
  }

  // One token for each active request that is not held. Sinks are called without the lock.
  void Step() {
    std::vector<std::pair<std::shared_ptr<ResponseSink>, inflight::Response>> out;
    {
      std::lock_guard lock(mutex_);
      ++now_ns_;
      for (auto it = active_.begin(); it != active_.end();) {
        if (it->second.is_held && !it->second.cancelled) {
          ++it;
          continue;
        }
        Advance(it->first, it->second, out);
        it = !out.empty() && out.back().second.request_id == it->first && out.back().second.is_final
                 ? active_.erase(it)
                 : std::next(it);
      }
    }
    for (auto& [sink, response] : out) sink->OnResponse(std::move(response));
    idle_.notify_all();
  }
  void Run() {
    while (num_active() > 0) Step();
  }
  size_t num_active() const {
    std::lock_guard lock(mutex_);
    return active_.size();
  }

  Generator generate = [](const inflight::Request& request, int position) {
    return request.input_ids[static_cast<size_t>(position) % request.input_ids.size()];
  };
  Status refuse_with;          // what Enqueue answers, if not OK
  Status fail_with;            // what the next step answers, if not OK
  bool time_out_next = false;  // the next step ends what it holds as timed out in the queue
  bool is_healthy = true;
  std::shared_ptr<StepProfiler> profiler;
  inflight::Request last_request;  // as enqueued
  std::vector<RequestId> cancelled_ids;
  std::vector<ExecutorStats> iterations;                // to be taken
  std::vector<RequestStatsPerIteration> request_stats;  // to be taken
  int64_t gpu_memory_bytes = 0;

 private:
  struct Work {
    inflight::Request request;
    std::shared_ptr<ResponseSink> sink;
    int position = 0;
    bool cancelled = false;
    bool is_held = false;
    bool has_answered = false;
    float cum_log_prob = 0;
    std::vector<TokenId> ids = {};      // not sent yet
    std::vector<float> log_probs = {};  // of `ids`
  };

  void Advance(RequestId id, Work& work,
               std::vector<std::pair<std::shared_ptr<ResponseSink>, inflight::Response>>& out) {
    inflight::Response response;
    response.request_id = id;
    if (!fail_with.ok()) {
      response.status = fail_with;
      response.is_final = true;
      out.emplace_back(work.sink, std::move(response));
      return;
    }
    response.finish_reason = work.cancelled  ? FinishReason::kCancelled
                             : time_out_next ? FinishReason::kTimedOut
                                             : NextToken(work, work.request);
    response.is_final = response.is_sequence_final =
        response.finish_reason != FinishReason::kNotFinished;
    if (!response.is_final && !work.request.streaming) return;
    response.output_ids = std::exchange(work.ids, {});
    response.output_log_probs = std::exchange(work.log_probs, {});
    FillLogits(work, response);
    response.cum_log_prob = work.cum_log_prob;
    out.emplace_back(work.sink, std::move(response));
  }

  // Of each token 1 at its own place, else 0.
  LogitsRows OneHot(const std::vector<TokenId>& ids) const {
    LogitsRows rows{static_cast<int>(ids.size()), limits_.vocab_size, {}};
    for (const TokenId id : ids) {
      rows.values.resize(rows.values.size() + static_cast<size_t>(limits_.vocab_size));
      rows.values[rows.values.size() - static_cast<size_t>(limits_.vocab_size - id)] = 1;
    }
    return rows;
  }
  void FillLogits(Work& work, inflight::Response& response) const {
    const OutputOptions& output = work.request.output;
    if (output.return_generation_logits) response.generation_logits = OneHot(response.output_ids);
    for (const TokenId id : response.output_ids) {  // the token, and those before it
      for (int i = 0; i < output.num_top_log_probs; ++i) {
        response.top_log_probs.push_back({id - i, -0.5F * static_cast<float>(i + 1)});
      }
    }
    if (output.return_context_logits && !std::exchange(work.has_answered, true)) {
      response.context_logits = OneHot(work.request.input_ids);
    }
  }

  FinishReason NextToken(Work& work, const inflight::Request& request) {
    const TokenId token = generate(request, work.position++);
    for (const TokenId end : request.end_ids) {
      if (token == end) return FinishReason::kEndId;
    }
    work.ids.push_back(token);
    work.cum_log_prob -= 0.5F;
    if (request.output.return_log_probs) work.log_probs.push_back(-0.5F);
    return work.position == request.max_tokens ? FinishReason::kLength : FinishReason::kNotFinished;
  }

  void Loop() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return closed_ || !active_.empty(); });
        if (closed_ && active_.empty()) return;
      }
      Step();
    }
  }

  const ExecutorLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::map<RequestId, Work> active_;
  RequestId next_id_ = 1;
  int64_t now_ns_ = 0;
  bool closed_ = false;
  std::thread thread_;
};

// tokenizer.json of a byte-level BPE without merges: 256 tokens, one per byte, then <s> = 256 and
// </s> = 257, which are special; <s> goes before a prompt.
std::string ByteTokenizerJson();
// `text` as that tokenizer has it, without <s>.
std::vector<TokenId> ByteIds(std::string_view text);

}  // namespace inflight::serving
