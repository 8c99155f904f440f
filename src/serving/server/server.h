// SPDX-License-Identifier: Apache-2.0
// The server behind every front end: models by name and version, health, and the way in for
// requests.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/executor.h"
#include "serving/core/model.h"
#include "serving/llm/named_adapters.h"
#include "serving/memory/shared_memory.h"
#include "serving/repository/model_control.h"
#include "serving/server/profile_capture.h"
#include "serving/server/sleeping_models.h"
#include "serving/statistics/iteration_metrics.h"
#include "serving/trace/tracer.h"

namespace inflight::serving {

struct ServerMetadata {
  std::string name = "triton";  // what old clients and probes compare; `--id` replaces it
  std::string version;          // protocol level that we answer like
  std::vector<std::string> extensions;
};

// What the metrics page shows of one LLM model's executor.
struct ExecutorGauges {
  std::string model;
  std::string version;
  std::string name_space;  // Model::name_space
  ExecutorStats stats;     // counters, as of now
  Iteration iteration;     // gauges, as of the newest iteration that was reported
  IterationProfile profile;
  // The newest record; null before the first, and where none are kept.
  std::shared_ptr<const RequestStatsPerIteration> requests;
  std::optional<LoadedAdapters> adapters;  // none where none has a name
};

// Threads: all methods are thread-safe.
class Server {
 public:
  virtual ~Server() = default;

  virtual const ServerMetadata& metadata() const = 0;
  virtual bool live() const = 0;  // false after a device fault: the process should be restarted
  // Every model that should be is; false while draining and after a device fault.
  virtual bool ready() const = 0;

  // kNotFound / kUnavailable / kInvalidArgument with the texts of
  // docs/reference/protocol/common.md; empty version = latest available.
  virtual Result<std::shared_ptr<Model>> FindModel(std::string_view name,
                                                   std::string_view version) const = 0;
  // kUnavailable where there is nothing to list: a repository was not there at the start.
  virtual Status CheckUsable() const { return Status::Ok(); }
  // Here and of LoadModel, files are told without the folders that they lie in: those stand in the
  // log.
  virtual std::vector<IndexEntry> Index(bool ready_only) const = 0;
  // Loaded ones, by name and version.
  virtual std::vector<std::shared_ptr<Model>> models() const = 0;
  // Their adapters, which cost more, only where they are asked for.
  virtual std::vector<ExecutorGauges> executor_gauges(bool with_adapters = false) const = 0;

  // Validates against the model's config (missing, unexpected, wrong type or shape, batch size:
  // texts of docs/reference/protocol/common.md), then runs. The handler gets exactly one final
  // response, also for errors. `model` is what FindModel gave for the request's names: a request
  // runs on the model that it was parsed for, also where another has these names by now.
  virtual void Infer(std::shared_ptr<Model> model, Request request, ResponseHandler handler) = 0;

  // --- model control, in mode explicit; kUnavailable in the others (repository.h) ---
  // Returns when the model runs or failed to; kResourceExhausted where memory for it is missing.
  virtual Status LoadModel(const std::string& name, const LoadOverride& override) = 0;
  // Returns before requests that run have ended. `with_steps`: also the models that only this
  // ensemble uses.
  virtual Status UnloadModel(const std::string& name, bool with_steps) = 0;
  virtual int model_load_threads() const { return 1; }  // calls of them worth running at a time

  // --- repositories that come and go, in mode explicit ---
  // From now on LoadModel finds `model`, and by their directories' names the others, such as an
  // ensemble's steps. kAlreadyExists for a repository or a name that is there.
  virtual Status AddRepository(const AddedRepository& added) = 0;
  // Unloads what it has and forgets its models, also those that failed.
  virtual void RemoveRepository(const std::string& root) = 0;

  // The process is about to end: no longer ready, it takes requests until Shutdown. Loads and
  // unloads answer kUnavailable; one that runs goes on.
  virtual void BeginExit() = 0;
  virtual bool exiting() const = 0;

  virtual SharedMemory& shared_memory() = 0;
  virtual Tracer& tracer() = 0;
  // Of the step loops that are there when it begins. kNotFound for an unknown model,
  // kInvalidArgument for one without a step loop; else profile_capture.h.
  virtual void CaptureProfile(const ProfileRequest& /*request*/, const ProfileHandler& handler) {
    handler(Unimplemented("this server takes no profiles"));
  }

  // --- sleep (sleeping_models.h), of the LLMs that `model` is or runs; empty: all ---
  virtual Status Sleep(const std::string& /*model*/, const SleepOptions& /*options*/) {
    return Unimplemented("sleep", "this server's models do not sleep");
  }
  virtual Status WakeUp(const std::string& /*model*/, const WakeOptions& /*options*/) {
    return Unimplemented("wake_up", "this server's models do not sleep");
  }
  virtual Result<std::vector<SleepingModel>> SleepStates(const std::string& /*model*/) const {
    return std::vector<SleepingModel>();
  }

  // Stops accepting, lets what runs finish for `drain_ms`, cancels the rest. Blocks.
  virtual void Shutdown(int64_t drain_ms) = 0;
};

}  // namespace inflight::serving
