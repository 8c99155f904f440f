// SPDX-License-Identifier: Apache-2.0
#include "serving/server.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "serving/engine_loader.h"
#include "serving/llm_call.h"
#include "serving/repository.h"
#include "serving/repository_layout.h"
#include "serving/validate.h"

namespace inflight::serving {
namespace {

constexpr char kProtocolVersion[] = "2.73.0";  // the level of the protocol, not ours
constexpr int kMaxTextThreads = 4;
// After the drain every request has been cancelled; what is left needs a step at most.
constexpr std::chrono::seconds kCancelTimeout{30};

int NumTextThreads() {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / 2, 1, kMaxTextThreads);
}

// Requests between acceptance and their final response.
class InFlight {
 public:
  // False once closed.
  bool Enter() {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++count_;
    return true;
  }
  void Leave() {
    std::lock_guard lock(mutex_);
    if (--count_ == 0) empty_.notify_all();
  }
  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  bool WaitEmpty(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return empty_.wait_for(lock, timeout, [this] { return count_ == 0; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  int64_t count_ = 0;
  bool closed_ = false;
};

// A handler that ends once: further responses after a final one are dropped and logged.
class Once {
 public:
  Once(ResponseHandler handler, InFlight& in_flight)
      : handler_(std::move(handler)), in_flight_(in_flight) {}

  void operator()(Response response) {
    const bool is_final = response.is_final;
    if (ended_.load(std::memory_order_acquire) ||
        (is_final && ended_.exchange(true, std::memory_order_acq_rel))) {
      logging::Error("response after the final one was dropped", {{"id", response.id}});
      return;
    }
    handler_(std::move(response));
    if (is_final) {
      handler_ = nullptr;
      in_flight_.Leave();
    }
  }
  bool ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  ResponseHandler handler_;
  InFlight& in_flight_;
  std::atomic<bool> ended_{false};
};

class ServerImpl final : public Server {
 public:
  ServerImpl(const ServerOptions& options, std::shared_ptr<WorkerPool> text_pool,
             const Repository& repository)
      : strict_readiness_(options.strict_readiness),
        text_pool_(std::move(text_pool)),
        entries_(repository.entries()),
        llms_(repository.llms()) {
    metadata_.name = options.server_id;
    metadata_.version = kProtocolVersion;
    metadata_.extensions = {"model_repository",
                            "schedule_policy",
                            "model_configuration",
                            "binary_tensor_data",
                            "parameters",
                            "statistics",
                            "logging"};
  }

  ~ServerImpl() override { Shutdown(/*drain_ms=*/0); }

  const ServerMetadata& metadata() const override { return metadata_; }
  // A device fault is for the process's supervisor; a step loop that is late only makes us not
  // ready.
  bool live() const override {
    return std::none_of(llms_.begin(), llms_.end(),
                        [](const auto& llm) { return llm->has_fault(); });
  }
  bool ready() const override;
  Result<std::shared_ptr<Model>> FindModel(std::string_view name,
                                           std::string_view version) const override;
  std::vector<IndexEntry> Index(bool ready_only) const override;
  std::vector<std::shared_ptr<Model>> models() const override;
  std::vector<ExecutorGauges> executor_gauges() const override;
  void Infer(Request request, ResponseHandler handler) override;
  void Shutdown(int64_t drain_ms) override;

 private:
  void RejectRequest(const Request& request, const ResponseHandler& handler, Status status) const;

  ServerMetadata metadata_;
  const bool strict_readiness_;
  const std::shared_ptr<WorkerPool> text_pool_;
  const std::vector<ModelEntry> entries_;
  const std::vector<std::shared_ptr<LlmModel>> llms_;
  InFlight in_flight_;
  std::mutex shutdown_mutex_;
};

bool ServerImpl::ready() const {
  if (in_flight_.closed()) return false;
  if (!strict_readiness_) return true;
  return std::all_of(entries_.begin(), entries_.end(), [](const ModelEntry& entry) {
    return !entry.required || (entry.model != nullptr && entry.model->ready());
  });
}

Result<std::shared_ptr<Model>> ServerImpl::FindModel(std::string_view name,
                                                     std::string_view version) const {
  int64_t wanted = -1;
  if (!version.empty()) {
    const auto [end, error] =
        std::from_chars(version.data(), version.data() + version.size(), wanted);
    if (error != std::errc{} || wanted < 0) {
      return InvalidArgument("failed to get model version from specified version string '" +
                             std::string(version) +
                             "' (details: stol), version should be an integral value > 0");
    }
  }
  const std::string unknown = "Request for unknown model: '" + std::string(name) + "' ";
  bool is_known = false;
  std::shared_ptr<Model> latest;
  for (const ModelEntry& entry : entries_) {
    if (entry.name != name) continue;
    is_known = true;
    if (wanted >= 0) {
      if (entry.version != std::to_string(wanted)) continue;
      if (entry.model != nullptr) return entry.model;
      return Unavailable(unknown + "version " + entry.version + " is not at ready state");
    }
    if (entry.model != nullptr) latest = entry.model;  // entries of a model are in version order
  }
  if (!is_known) return NotFound(unknown + "is not found");
  if (wanted >= 0) {
    return NotFound(unknown + "version " + std::to_string(wanted) + " is not found");
  }
  if (latest == nullptr) return NotFound(unknown + "has no available versions");
  return latest;
}

std::vector<IndexEntry> ServerImpl::Index(bool ready_only) const {
  std::vector<IndexEntry> index;
  for (const ModelEntry& entry : entries_) {
    if (entry.model != nullptr) {
      index.push_back({entry.name, entry.version, "READY", ""});
    } else if (!ready_only) {
      index.push_back({entry.name, entry.version, "UNAVAILABLE", ReasonText(entry.status)});
    }
  }
  std::stable_sort(index.begin(), index.end(),
                   [](const IndexEntry& a, const IndexEntry& b) { return a.name < b.name; });
  return index;
}

std::vector<std::shared_ptr<Model>> ServerImpl::models() const {
  std::vector<std::shared_ptr<Model>> loaded;
  for (const ModelEntry& entry : entries_) {
    if (entry.model != nullptr) loaded.push_back(entry.model);
  }
  std::stable_sort(loaded.begin(), loaded.end(),
                   [](const auto& a, const auto& b) { return a->name() < b->name(); });
  return loaded;
}

std::vector<ExecutorGauges> ServerImpl::executor_gauges() const {
  std::vector<ExecutorGauges> gauges;
  for (const auto& llm : llms_) {
    gauges.push_back({.model = llm->name(),
                      .version = llm->version(),
                      .stats = llm->executor().stats(),
                      .iteration = llm->newest_iteration(),
                      .profile = llm->iteration_profile()});
  }
  return gauges;
}

void ServerImpl::RejectRequest(const Request& request, const ResponseHandler& handler,
                               Status status) const {
  Response response;
  response.model_name = request.model_name;
  response.model_version = request.model_version;
  response.id = request.id;
  response.status = std::move(status);
  response.is_final = true;
  response.rejected = true;
  handler(std::move(response));
}

void ServerImpl::Infer(Request request, ResponseHandler handler) {
  const auto model = FindModel(request.model_name, request.model_version);
  if (!model.ok()) return RejectRequest(request, handler, model.status());
  if (const Status valid = ValidateRequest((*model)->config(), request); !valid.ok()) {
    return RejectRequest(request, handler, valid);
  }
  if (!in_flight_.Enter()) {
    return RejectRequest(request, handler,
                         Unavailable("Server is stopping, cannot accept new requests"));
  }
  if (request.received_ns == 0) request.received_ns = Clock::System().NowNs();
  Response failed;  // for the case that a library throws
  failed.model_name = (*model)->name();
  failed.model_version = (*model)->version();
  failed.id = request.id;
  failed.is_final = true;
  const auto once = std::make_shared<Once>(std::move(handler), in_flight_);
  try {
    (*model)->Infer(std::move(request),
                    [once](Response response) { (*once)(std::move(response)); });
  } catch (const std::exception& e) {
    logging::Error("inference threw", {{"model", failed.model_name}, {"what", e.what()}});
    failed.status = Internal(std::string("unexpected error: ") + e.what());
    if (!once->ended()) (*once)(std::move(failed));
  }
}

void ServerImpl::Shutdown(int64_t drain_ms) {
  std::lock_guard lock(shutdown_mutex_);
  in_flight_.Close();
  if (!in_flight_.WaitEmpty(std::chrono::milliseconds(std::max<int64_t>(drain_ms, 0)))) {
    logging::Warning("requests still running after the drain are cancelled",
                     {{"drain_ms", drain_ms}});
  }
  for (const auto& llm : llms_) llm->executor().Shutdown(/*drain_ms=*/0);
  if (!in_flight_.WaitEmpty(kCancelTimeout)) {
    logging::Error("requests did not end after they were cancelled");
  }
}

// A server without a single model is of no use to anybody.
Status CheckAnyLoaded(const Repository& repository, const ServerOptions& options) {
  if (!options.exit_on_error) return Status::Ok();
  std::string reasons;
  for (const ModelEntry& entry : repository.entries()) {
    if (entry.model != nullptr) return Status::Ok();
    reasons += "; '" + entry.name + "': " + ReasonText(entry.status);
  }
  return FailedPrecondition("failed to load all models: none could be loaded" + reasons);
}

}  // namespace

Result<std::unique_ptr<Server>> CreateServerWith(const ServerOptions& options, EngineLoader load) {
  auto text_pool = std::make_shared<WorkerPool>(NumTextThreads(), "text");
  Repository repository(options, std::move(load), text_pool);
  for (const std::string& dir : options.model_dirs) {
    if (FindRepository(dir)) {
      repository.LoadRepository(dir);
    } else {
      repository.LoadModelDir(dir);
    }
  }
  for (const std::string& dir : options.model_repositories) repository.LoadRepository(dir);
  for (const ModelEntry& entry : repository.entries()) {
    if (entry.model != nullptr || !entry.required || !options.exit_on_error) continue;
    return Status(entry.status.code(),
                  "failed to load all models: '" + entry.name + "': " + ReasonText(entry.status));
  }
  RETURN_IF_ERROR(CheckAnyLoaded(repository, options));
  return std::unique_ptr<Server>(
      std::make_unique<ServerImpl>(options, std::move(text_pool), repository));
}

}  // namespace inflight::serving
