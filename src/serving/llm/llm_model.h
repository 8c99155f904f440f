// SPDX-License-Identifier: Apache-2.0
// The `tensorrt_llm` model: token ids in, token ids out, by one executor. Behaviour:
// docs/reference/requests.md.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/worker_pool.h"
#include "contract/llm_request.h"
#include "inflight/executor.h"
#include "receipts/issuer.h"
#include "serving/core/model.h"
#include "serving/llm/guide_cache.h"
#include "serving/llm/logits_types.h"
#include "serving/llm/named_adapters.h"
#include "serving/llm/prompt_table_dir.h"
#include "serving/statistics/iteration_reporter.h"

namespace inflight::serving {

class LlmCall;

// Step times of an executor into the statistics of the model that owns it. Made before the
// executor, bound to the model after; steps before that are not counted.
class StepRecorder : public StepObserver {
 public:
  void Bind(ModelStatistics* statistics) { statistics_.store(statistics); }
  void OnStep(int64_t step_ns, int num_rows, int num_tokens) override;

 private:
  std::atomic<ModelStatistics*> statistics_{nullptr};
};

// What an LLM model runs on. The executor is shut down with the model, which requests keep, so that
// no sink outlives its model.
struct LlmBackend {
  std::shared_ptr<StepRecorder> steps;  // may be null; outlives the executor
  std::shared_ptr<Executor> executor;
  std::vector<TokenId> end_ids;  // the model's own
  int64_t gpu = 0;               // the index of the one that it runs on, if any
  std::shared_ptr<PromptTableDir> prompt_tables = {};  // null: the server has none
  IterationReporterOptions iterations = {};
  std::shared_ptr<NamedAdapters> adapters = {};  // null: none has a name
  std::shared_ptr<GuideCache> guides = {};       // null: none are made
  // Whose threads make guides and read files of the server; null: no guides, and callers read.
  std::shared_ptr<WorkerPool> text_pool = {};
  // Ranks of the model are processes, and it alone ends with them: a fault is theirs.
  bool has_processes = false;
  std::shared_ptr<receipts::Issuer> issuer = {};  // null: answers carry none
};

// Executor requests by the client's request id, for the `stop` tensor. Several requests may share
// an id; a stop cancels all of them that its own client sent.
class ActiveRequests {
 public:
  // Again for each request that a call makes of the executor, one at a time; 0: none as yet.
  void Add(const LlmCall& call, RequestId id);
  void Remove(const LlmCall& call);
  // Marks the calls as stopped; what the executor has of them is to be cancelled.
  std::vector<RequestId> Stop(const std::string& client_id, const Identity& identity) const;

 private:
  struct Entry {
    const LlmCall* call;
    RequestId id;
  };
  mutable std::mutex mutex_;
  std::unordered_multimap<std::string, Entry> entries_;
};

class LlmModel : public Model {
 public:
  LlmModel(::inference::ModelConfig config, std::string version, LlmBackend backend,
           const contract::LlmRequestDefaults& defaults, const LogitsTypes& logits_types = {},
           Clock& clock = Clock::System());
  ~LlmModel() override;

  bool ready() const override { return backend_.executor->healthy() && !is_sleeping(); }
  std::string_view why_not_ready() const override;
  bool is_sleeping() const { return !backend_.executor->sleep_state().is_awake; }
  // Nobody wakes a model that leaves: where it sleeps, what waits for it ends.
  void EndSleep();
  bool allows_single_response_calls() const override { return true; }
  bool OnlyStops(const Request& request) const override;
  void Infer(Request request, ResponseHandler handler) override;

  Executor& executor() { return *backend_.executor; }
  const std::vector<TokenId>& end_ids() const { return backend_.end_ids; }
  bool issues_receipts() const { return backend_.issuer != nullptr; }
  const contract::LlmRequestDefaults& defaults() const { return defaults_; }
  const LogitsTypes& logits_types() const { return logits_types_; }
  bool with_dummies() const { return with_dummies_; }
  bool SendsSequenceIndex(const contract::LlmRequest& parsed) const;
  // 0.12 and 0.13 say which row it is also of a request of one row.
  bool always_sends_batch_index() const {
    return with_dummies_ && iteration_profile().release >= 12;
  }
  const std::vector<std::string>& declared_outputs() const { return declared_outputs_; }
  Clock& clock() const { return clock_; }
  ActiveRequests& active() { return active_; }
  const IterationProfile& iteration_profile() const { return iterations_.profile(); }
  IterationReporter::Newest newest_iteration() { return iterations_.Check(); }
  std::vector<MemoryUsage> memory_usage() const override;
  std::optional<LoadedAdapters> loaded_adapters() const;  // none where none has a name
  std::shared_ptr<AdapterNames> adapter_names() const { return backend_.adapters; }

  // True after a device fault: the executor has failed requests and is no longer healthy. Requests
  // go on failing until the process is restarted.
  bool has_fault() const { return has_fault_.load(std::memory_order_acquire); }
  void NoteExecutorError();  // a request failed in the executor, or was not accepted

  // Whether the request would read files of the server, a prompt table or an adapter that it is the
  // first to name: no work for an I/O thread. An adapter that it names is looked for once:
  // request.adapter has it from here on.
  bool HasToRead(Request& request) const;

  // What the prompt has besides ids: the table that the request brings, or names by its parameter
  // (prompt_task.h), and its rows among the ids. Before contract::FitToEngine.
  Status PlacePrompt(LlmCall& call, contract::LlmRequest& parsed);

  // Enqueues the request of a call, connects its cancel token, and registers it. Errors are the
  // call's to report.
  Status Start(inflight::Request request, const std::shared_ptr<LlmCall>& call);
  // Its two halves, for a call that takes several requests: what the call says of all of them and
  // may take; then each of them, whose answers go to `sink`.
  Status Admit(LlmCall& call, inflight::Request* request);
  Status Enqueue(inflight::Request request, const std::shared_ptr<ResponseSink>& sink,
                 const LlmCall& call);

 private:
  using Answer = std::function<void(contract::LlmRequest)>;
  void AddGuide(const std::shared_ptr<LlmCall>& call, contract::LlmRequest parsed, bool has_to_read,
                Answer answer);
  static void AnswerNow(LlmCall& call, contract::LlmRequest parsed, const Answer& answer);
  // On a thread of the text pool, in turns with others.
  void AnswerLater(const std::shared_ptr<LlmCall>& call, contract::LlmRequest parsed,
                   Answer answer);
  Status ChooseAdapter(const Request& asked, inflight::Request& request, std::string* name) const;
  void InferBatch(Request request, ResponseHandler handler);
  void Stop(const Request& request, const ResponseHandler& handler);
  float PriorityOf(uint64_t level) const;
  std::optional<int64_t> QueueTimeoutOf(uint64_t asked_us) const;

  LlmBackend backend_;
  const contract::LlmRequestDefaults defaults_;
  const LogitsTypes logits_types_;
  const bool with_dummies_;
  std::vector<std::string> declared_outputs_;  // of this release's configuration
  Clock& clock_;
  ActiveRequests active_;
  std::atomic<bool> has_fault_{false};
  IterationReporter iterations_;
};

}  // namespace inflight::serving
