// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/no_memory_left.h"
#include "base/status_macros.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"
#include "serving/core/apply_output_rules.h"
#include "serving/core/run_model.h"
#include "serving/core/validate.h"
#include "serving/llm/llm_call.h"
#include "serving/repository/repositories.h"
#include "serving/server/create_server.h"
#include "serving/server/local_paths.h"

namespace inflight::serving {
namespace {

constexpr char kProtocolVersion[] = "2.73.0";  // the level of the protocol, not ours
constexpr int kMaxTextThreads = 4;
// After the drain every request has been cancelled; what is left needs a step at most.
constexpr std::chrono::seconds kCancelTimeout{30};

int NumTextThreads() {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / 2, 2, kMaxTextThreads);  // one is for short texts alone
}

// Requests between acceptance and their final response.
class InFlight {
 public:
  struct Entry {
    std::shared_ptr<CancelToken> cancel;
    std::weak_ptr<Model> model;
  };
  // Of one request, which leaves with it.
  class Ticket {
   public:
    Ticket(InFlight& in_flight, std::list<Entry>::iterator entry)
        : in_flight_(&in_flight), entry_(entry) {}
    Ticket(Ticket&& other) noexcept
        : in_flight_(std::exchange(other.in_flight_, nullptr)), entry_(other.entry_) {}
    ~Ticket() { Return(); }
    Ticket& operator=(Ticket&&) = delete;

    void Return() {
      if (auto* in_flight = std::exchange(in_flight_, nullptr)) in_flight->Leave(entry_);
    }

   private:
    InFlight* in_flight_;  // null: returned
    std::list<Entry>::iterator entry_;
  };

  // None once closed.
  std::optional<Ticket> Enter(std::shared_ptr<CancelToken> cancel,
                              const std::shared_ptr<Model>& model) {
    std::lock_guard lock(mutex_);
    if (closed_) return std::nullopt;
    return Ticket(*this, running_.insert(running_.end(), {std::move(cancel), model}));
  }
  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  // Those of models that were unloaded too.
  void CancelAll() {
    std::vector<std::shared_ptr<CancelToken>> running;
    {
      std::lock_guard lock(mutex_);
      for (const Entry& entry : running_) running.push_back(entry.cancel);
    }
    for (const auto& cancel : running) cancel->Cancel();
  }
  // One for each request.
  std::vector<std::shared_ptr<Model>> models() const {
    std::vector<std::shared_ptr<Model>> models;
    std::lock_guard lock(mutex_);
    for (const Entry& entry : running_) {
      if (auto model = entry.model.lock()) models.push_back(std::move(model));
    }
    return models;
  }
  bool WaitEmpty(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return empty_.wait_for(lock, timeout, [this] { return running_.empty(); });
  }

 private:
  void Leave(std::list<Entry>::iterator entry) {
    std::list<Entry> left;  // goes behind the lock
    std::lock_guard lock(mutex_);
    left.splice(left.end(), running_, entry);
    if (running_.empty()) empty_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable empty_;
  std::list<Entry> running_;
  bool closed_ = false;
};

// A handler that ends once: further responses after a final one are dropped and logged. Until then
// the model stays, whatever is loaded or unloaded meanwhile.
class Once {
 public:
  Once(ResponseHandler handler, std::shared_ptr<Model> model, InFlight::Ticket ticket,
       ClientPlace place)
      : handler_(std::move(handler)),
        model_(std::move(model)),
        ticket_(std::move(ticket)),
        place_(std::move(place)) {}
  // Whoever was to answer has gone, such as by bad_alloc while the answer was made.
  ~Once() {
    if (ended()) return;
    try {
      (*this)({.status = NoMemoryLeft(), .is_final = true});
    } catch (const std::exception&) {  // the front end sees its handler go
    }
  }
  Once(const Once&) = delete;
  Once& operator=(const Once&) = delete;

  void operator()(Response response) {
    const bool is_final = response.is_final;
    if (ended_.load(std::memory_order_acquire) ||
        (is_final && ended_.exchange(true, std::memory_order_acq_rel))) {
      logging::Error("response after the final one was dropped", {{"id", response.id}});
      return;
    }
    if (!is_final) return handler_(std::move(response));
    place_.Release();  // first: a client that is answered may ask again at once
    const Leaving leaving(*this);
    handler_(std::move(response));
  }
  bool ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  // Once the last response has gone, or could not: a handler may throw, such as bad_alloc.
  class Leaving {
   public:
    explicit Leaving(Once& once) : once_(once) {}
    ~Leaving() {
      once_.handler_ = nullptr;
      once_.model_ = nullptr;
      once_.ticket_.Return();
    }
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;

   private:
    Once& once_;
  };

  ResponseHandler handler_;
  std::shared_ptr<Model> model_;
  InFlight::Ticket ticket_;
  ClientPlace place_;
  std::atomic<bool> ended_{false};
};

// What the client asked for in place of the model's outputs.
ResponseHandler WithRules(ResponseHandler handler, std::shared_ptr<Model> model,
                          OutputRules rules) {
  return [handler = std::move(handler), model = std::move(model),
          rules = std::move(rules)](Response response) {
    if (response.status.ok()) response.status = ApplyOutputRules(rules, *model, response);
    if (!response.status.ok()) response.outputs.clear();
    handler(std::move(response));
  };
}

// Lets go of the regions once the last answer lies in them, before it is told.
ResponseHandler HoldingRegions(ResponseHandler handler, SharedMemory& memory,
                               std::vector<RegionUse> regions) {
  return [handler = std::move(handler), &memory,
          regions = std::move(regions)](Response response) mutable {
    if (response.is_final) {
      regions.clear();
      memory.DropUnused();
    }
    handler(std::move(response));
  };
}

class ServerImpl final : public LoadableServer {
 public:
  ServerImpl(const ServerOptions& options, std::unique_ptr<Repositories> repositories)
      : options_(options),
        shared_memory_(options.shared_memory, CudaObjects()),
        tracer_(options.trace),
        repositories_(std::move(repositories)) {
    metadata_.name = options_.server_id;
    metadata_.version = kProtocolVersion;
    metadata_.extensions = {"classification",
                            "sequence",
                            "model_repository",
                            "model_repository(unload_dependents)",
                            "schedule_policy",
                            "model_configuration",
                            "system_shared_memory",
                            "cuda_shared_memory",
                            "binary_tensor_data",
                            "parameters",
                            "statistics",
                            "trace",
                            "logging"};
  }

  Status LoadAtStart() override {
    RETURN_IF_ERROR(repositories_->LoadAtStart());
    is_loading_.store(false, std::memory_order_release);
    if (options_.control_mode == ControlMode::kPoll) StartPolling();
    return Status::Ok();
  }

  ~ServerImpl() override { Shutdown(/*drain_ms=*/0); }

  const ServerMetadata& metadata() const override { return metadata_; }
  // A device fault is for the process's supervisor; a step loop that is late only makes us not
  // ready.
  bool live() const override {
    if (is_loading()) return true;
    if (!repositories_->usable()) return false;
    const HeldTable table = repositories_->table();
    return std::none_of(table->llms().begin(), table->llms().end(),
                        [](const auto& llm) { return llm->has_fault(); });
  }
  bool ready() const override {
    if (is_loading() || exiting() || in_flight_.closed() || !repositories_->usable()) return false;
    if (!options_.strict_readiness) return true;
    const HeldTable table = repositories_->table();
    return table->ready();
  }
  Result<std::shared_ptr<Model>> FindModel(std::string_view name,
                                           std::string_view version) const override {
    RETURN_IF_ERROR(CheckUsable());
    const HeldTable table = repositories_->table();
    return table->Find(name, version);
  }
  Status CheckUsable() const override;
  std::vector<IndexEntry> Index(bool ready_only) const override;
  std::vector<std::shared_ptr<Model>> models() const override {
    if (is_loading()) return {};
    const HeldTable table = repositories_->table();
    return table->models();
  }
  std::vector<ExecutorGauges> executor_gauges(bool with_adapters) const override;
  void Infer(std::shared_ptr<Model> model, Request request, ResponseHandler handler) override;
  Status LoadModel(const std::string& name, const LoadOverride& override) override;
  Status UnloadModel(const std::string& name, bool with_steps) override;
  int model_load_threads() const override { return options_.model_load_threads; }
  Status AddRepository(const AddedRepository& added) override;
  void RemoveRepository(const std::string& root) override { repositories_->RemoveRepository(root); }
  void BeginExit() override {
    is_exiting_ = true;
    repositories_->BeginExit();
    profiles_.Stop();
    if (is_loading()) return;
    const HeldTable table = repositories_->table();
    for (const auto& llm : table->llms()) llm->EndSleep();
  }
  bool exiting() const override { return is_exiting_; }
  SharedMemory& shared_memory() override { return shared_memory_; }
  Tracer& tracer() override { return tracer_; }
  void CaptureProfile(const ProfileRequest& request, const ProfileHandler& handler) override;
  Status Sleep(const std::string& model, const SleepOptions& options) override {
    ASSIGN_OR_RETURN(const auto llms, SleepersOf(model));
    return PutToSleep(llms, options);
  }
  Status WakeUp(const std::string& model, const WakeOptions& options) override {
    ASSIGN_OR_RETURN(const auto llms, SleepersOf(model));
    return Wake(llms, options);
  }
  Result<std::vector<SleepingModel>> SleepStates(const std::string& model) const override {
    ASSIGN_OR_RETURN(const auto llms, SleepersOf(model));
    return StatesOf(llms);
  }
  void Shutdown(int64_t drain_ms) override;

 private:
  bool is_loading() const { return is_loading_.load(std::memory_order_acquire); }
  Status CheckControl() const;
  Result<std::vector<ProfiledLoop>> LoopsOf(const std::string& model) const;
  Result<std::vector<std::shared_ptr<LlmModel>>> SleepersOf(const std::string& model) const {
    RETURN_IF_ERROR(CheckUsable());
    return LlmsOf(repositories_->table(), model);
  }
  bool WaitForRequests(int64_t deadline_ns);
  void StartPolling();

  const ServerOptions options_;
  ServerMetadata metadata_;
  SharedMemory shared_memory_;
  Tracer tracer_;
  InFlight in_flight_;
  const std::unique_ptr<Repositories> repositories_;
  std::atomic<bool> is_loading_ = true;  // until then repositories_ are LoadAtStart's alone
  std::atomic<bool> is_exiting_ = false;
  std::mutex shutdown_mutex_;
  std::condition_variable_any stop_polling_;
  std::mutex polling_mutex_;
  std::jthread polling_;
  ProfileCapture profiles_;
};

std::vector<ExecutorGauges> ServerImpl::executor_gauges(bool with_adapters) const {
  std::vector<ExecutorGauges> gauges;
  if (is_loading()) return gauges;
  const HeldTable table = repositories_->table();
  for (const auto& llm : table->llms()) {
    auto newest = llm->newest_iteration();
    gauges.push_back({.model = llm->name(),
                      .version = llm->version(),
                      .name_space = llm->name_space(),
                      .stats = llm->executor().stats(),
                      .iteration = newest.iteration,
                      .profile = llm->iteration_profile(),
                      .requests = std::move(newest.requests),
                      .adapters = with_adapters ? llm->loaded_adapters() : std::nullopt});
  }
  return gauges;
}

// "cuda:0" where it holds memory of a GPU.
std::string DeviceOf(const Model& model) {
  for (const MemoryUsage& usage : model.memory_usage())
    if (usage.type == "GPU") return "cuda:" + std::to_string(usage.id);
  return "cpu";
}

Result<std::vector<ProfiledLoop>> ServerImpl::LoopsOf(const std::string& model) const {
  RETURN_IF_ERROR(CheckUsable());
  std::vector<ProfiledLoop> loops;
  std::string names;
  const HeldTable table = repositories_->table();
  if (!model.empty()) RETURN_IF_ERROR(table->Find(model, /*version=*/"").status());
  for (const auto& llm : table->llms()) {
    auto profiler = llm->executor().step_profiler();
    if (profiler == nullptr) continue;
    names += (names.empty() ? "" : ", ") + llm->name();
    if (!model.empty() && llm->name() != model) continue;
    loops.push_back({.facts = {.model = llm->name(),
                               .version = llm->version(),
                               .device = DeviceOf(*llm),
                               .kv_blocks_max = llm->executor().stats().kv_blocks_max,
                               .steps = {}},
                     .profiler = std::move(profiler)});
  }
  if (!loops.empty()) return loops;
  if (names.empty()) return FailedPrecondition("no model that is loaded has a step loop");
  return InvalidArgument(
      "model", "got '" + model + "', must be one that has a step loop of its own: " + names);
}

void ServerImpl::CaptureProfile(const ProfileRequest& request, const ProfileHandler& handler) {
  auto loops = LoopsOf(request.model);
  if (!loops.ok()) return handler(loops.status());
  profiles_.Start(request, *std::move(loops), handler);
}

std::vector<IndexEntry> ServerImpl::Index(bool ready_only) const {
  if (is_loading()) return {};
  std::vector<IndexEntry> index = repositories_->Index(ready_only);
  for (IndexEntry& entry : index) entry.reason = WithoutFolders(entry.reason);
  return index;
}

Status ServerImpl::CheckUsable() const {
  if (is_loading()) {
    return Unavailable("the server is loading its models, ask again later")
        .WithReason(Reason::kLoading);
  }
  return repositories_->usable() ? Status::Ok() : Unavailable("Server not ready");
}

Status ServerImpl::CheckControl() const {
  RETURN_IF_ERROR(CheckUsable());
  if (exiting()) return Unavailable("Server is stopping, cannot load or unload models");
  if (options_.control_mode == ControlMode::kExplicit) return Status::Ok();
  return Unavailable("explicit model load / unload is not allowed if polling is enabled");
}

Status ServerImpl::LoadModel(const std::string& name, const LoadOverride& override) {
  RETURN_IF_ERROR(CheckControl());
  const Status status = repositories_->Load(name, override);
  return status.WithMessage(WithoutFolders(status.message()));
}

Status ServerImpl::UnloadModel(const std::string& name, bool with_steps) {
  RETURN_IF_ERROR(CheckControl());
  return repositories_->Unload(name, with_steps);
}

Status ServerImpl::AddRepository(const AddedRepository& added) {
  RETURN_IF_ERROR(CheckControl());
  return repositories_->AddRepository(added);
}

void ServerImpl::StartPolling() {
  polling_ = std::jthread([this](const std::stop_token& stop) {
    NameThisThread("poll");
    std::unique_lock lock(polling_mutex_);
    while (!stop_polling_.wait_for(lock, stop, std::chrono::seconds(options_.poll_secs), [] {
      return false;
    }) && !stop.stop_requested()) {
      RunTurn("poll", [this] { repositories_->Rescan(); });
    }
  });
}

void RejectRequest(const Request& request, const ResponseHandler& handler, Status status) {
  if (logging::Enabled(logging::Level::kVerbose)) {
    logging::Verbose("[request id: " + (request.id.empty() ? "<id_unknown>" : request.id) +
                     "] Infer failed: " + status.message());
  }
  Response response;
  response.model_name = request.model_name;
  response.model_version = request.model_version;
  response.id = request.id;
  response.status = std::move(status);
  response.is_final = true;
  response.rejected = true;
  handler(std::move(response));
}

// By the limits of its client.
Result<ClientPlace> PlaceFor(const Model& model, const Request& request) {
  if (request.client == nullptr) return ClientPlace();
  if (request.is_of_stream) {
    RETURN_IF_ERROR(TakeRequestOfStream(request.client, Clock::System().NowNs()));
  }
  return model.OnlyStops(request) ? ClientPlace() : ClientPlace::Take(request.client);
}

void ServerImpl::Infer(std::shared_ptr<Model> model, Request request, ResponseHandler handler) {
  if (request.tally != nullptr) request.tally->SetModel(model->name());
  if (request.generation == nullptr) {
    if (const Status valid = ValidateRequest(model->config(), request); !valid.ok())
      return RejectRequest(request, handler, valid);
  } else if (model->text() == nullptr) {
    return RejectRequest(request, handler,
                         InvalidArgument("model", "'" + model->name() + "' answers with tensors"));
  }
  auto place = PlaceFor(*model, request);
  if (!place.ok()) return RejectRequest(request, handler, place.status());
  auto ticket = in_flight_.Enter(request.cancel, model);
  if (!ticket) {
    return RejectRequest(request, handler,
                         Unavailable("Server is stopping, cannot accept new requests"));
  }
  if (request.received_ns == 0) request.received_ns = Clock::System().NowNs();
  Response failed;  // for the case that a library throws
  failed.model_name = model->name();
  failed.model_version = model->version();
  failed.id = request.id;
  failed.is_final = true;
  if (!request.regions.empty()) {
    handler = HoldingRegions(std::move(handler), shared_memory_, std::move(request.regions));
  }
  if (!request.output_rules.empty()) {
    handler = WithRules(std::move(handler), model, std::move(request.output_rules));
  }
  const auto once =
      std::make_shared<Once>(std::move(handler), model, *std::move(ticket), *std::move(place));
  try {
    RunModel(*model, std::move(request),
             [once](Response response) { (*once)(std::move(response)); });
  } catch (const std::exception& e) {
    logging::Error("inference threw", {{"model", failed.model_name}, {"what", e.what()}});
    failed.status = Caught("unexpected error", e);
    if (!once->ended()) (*once)(std::move(failed));
  }
}

int64_t MsUntil(int64_t deadline_ns) {
  return std::max<int64_t>(0, (deadline_ns - Clock::System().NowNs()) / 1'000'000);
}

// What is waited for, once a second as the original says it (docs/operations.md, "The end").
bool ServerImpl::WaitForRequests(int64_t deadline_ns) {
  constexpr int64_t kReportMs = 1000;
  while (true) {
    const int64_t left_ms = MsUntil(deadline_ns);
    std::map<std::pair<std::string, std::string>, size_t> counts;
    for (const auto& model : in_flight_.models()) ++counts[{model->name(), model->version()}];
    logging::Info("Timeout " + std::to_string((left_ms + 999) / 1000) + ": Found " +
                  std::to_string(counts.size()) + " model versions that have in-flight inferences");
    for (const auto& [model, count] : counts) {
      logging::Info("Model '" + model.first + "' (version " + model.second + ") has " +
                    std::to_string(count) + " in-flight inferences");
    }
    if (in_flight_.WaitEmpty(std::chrono::milliseconds(std::min(left_ms, kReportMs)))) break;
    if (left_ms == 0) return false;
  }
  logging::Info("All models are stopped, unloading models");
  return true;
}

void ServerImpl::Shutdown(int64_t drain_ms) {
  std::lock_guard lock(shutdown_mutex_);
  BeginExit();
  if (is_loading()) return in_flight_.Close();  // nothing was begun
  const int64_t deadline_ns = Clock::System().NowNs() + std::max<int64_t>(drain_ms, 0) * 1'000'000;
  const bool is_first = !in_flight_.closed();
  if (is_first) logging::Info("Waiting for in-flight requests to complete.");
  in_flight_.Close();
  polling_ = {};  // stops and joins
  if (is_first && !WaitForRequests(deadline_ns)) {
    logging::Warning("requests still running after the drain are cancelled",
                     {{"drain_ms", drain_ms}});
  }
  in_flight_.CancelAll();
  const HeldTable table = repositories_->table();
  for (const auto& llm : table->llms()) llm->executor().Shutdown(/*drain_ms=*/0);
  if (!in_flight_.WaitEmpty(kCancelTimeout)) {
    logging::Error("requests did not end after they were cancelled");
  }
  if (is_first) {
    logging::Info("Timeout " + std::to_string(MsUntil(deadline_ns) / 1000) + ": Found " +
                  std::to_string(models().size()) +
                  " live models and 0 in-flight non-inference requests");
  }
}

}  // namespace

std::unique_ptr<LoadableServer> CreateEmptyServerWith(const ServerOptions& options,
                                                      EngineLoader load) {
  auto text_pool = WorkerPool::MakeShared(NumTextThreads(), "text");
  return std::make_unique<ServerImpl>(
      options, std::make_unique<Repositories>(options, std::move(load), std::move(text_pool)));
}

Result<std::unique_ptr<LoadableServer>> CreateEmptyServer(const ServerOptions& options) {
  ASSIGN_OR_RETURN(EngineLoader load, LocalEngineLoader(options.open, options.orchestrator,
                                                        options.recording, options.issuing));
  return CreateEmptyServerWith(options, std::move(load));
}

Result<std::unique_ptr<Server>> CreateServerWith(const ServerOptions& options, EngineLoader load) {
  auto server = CreateEmptyServerWith(options, std::move(load));
  RETURN_IF_ERROR(server->LoadAtStart());
  return std::unique_ptr<Server>(std::move(server));
}

Result<std::unique_ptr<Server>> CreateServer(const ServerOptions& options) {
  ASSIGN_OR_RETURN(auto server, CreateEmptyServer(options));
  RETURN_IF_ERROR(server->LoadAtStart());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace inflight::serving
