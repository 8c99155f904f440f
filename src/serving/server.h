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
#include "model/config.h"
#include "serving/iteration_metrics.h"
#include "serving/model.h"
#include "serving/override_dir.h"
#include "serving/shared_memory.h"
#include "serving/tracer.h"

namespace inflight::serving {

class RateLimiter;

struct ServerMetadata {
  std::string name = "triton";  // what old clients and probes compare; `--id` replaces it
  std::string version;          // protocol level that we answer like (spec/triton-protocol.md 0.4)
  std::vector<std::string> extensions;
};

struct IndexEntry {
  std::string name;
  std::string version;
  std::string state;  // "READY", "UNAVAILABLE", "LOADING", "UNLOADING"
  std::string reason;
};

// A repository that comes while the server runs.
struct AddedRepository {
  std::string root;
  std::string model;      // the name of one of its models, whatever its directory is called
  std::string directory;  // of that model in `root`
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
};

// Threads: all methods are thread-safe.
class Server {
 public:
  virtual ~Server() = default;

  virtual const ServerMetadata& metadata() const = 0;
  virtual bool live() const = 0;  // false after a device fault: the process should be restarted
  virtual bool ready()
      const = 0;  // every model that should be is; false while draining and after a device fault

  // kNotFound / kUnavailable / kInvalidArgument with the texts of spec/triton-protocol.md 1.2;
  // empty version = latest available.
  virtual Result<std::shared_ptr<Model>> FindModel(std::string_view name,
                                                   std::string_view version) const = 0;
  virtual std::vector<IndexEntry> Index(bool ready_only) const = 0;
  virtual std::vector<std::shared_ptr<Model>> models()
      const = 0;  // loaded ones, by name and version
  virtual std::vector<ExecutorGauges> executor_gauges() const = 0;

  // Validates against the model's config (missing, unexpected, wrong type or shape, batch size:
  // texts of spec/triton-protocol.md 1.7), then runs. The handler gets exactly one final response,
  // also for errors.
  virtual void Infer(Request request, ResponseHandler handler) = 0;

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

  // Stops accepting, lets what runs finish for `drain_ms`, cancels the rest. Blocks.
  virtual void Shutdown(int64_t drain_ms) = 0;
};

// Who loads models while the server runs: nobody, a watch of the repositories, or requests.
enum class ControlMode : uint8_t { kNone, kPoll, kExplicit };

struct ServerOptions {
  std::vector<std::string> model_dirs;  // Hugging Face, checkpoint or engine directories: served
                                        // under the four models' names
  std::vector<std::string> model_repositories;
  bool model_namespacing = false;  // each of them is a namespace (repositories.h)
  ControlMode control_mode = ControlMode::kNone;
  std::vector<std::string> load_models;  // at start, in mode explicit; "*" = all
  int poll_secs = 15;
  std::string model_config_name;  // <model>/configs/<name>.pbtxt where it exists
  int model_load_retries = 0;     // of each version
  int model_load_threads = 4;     // loads that run at a time, of models that do not touch
  bool auto_complete = true;      // configurations (auto_complete.h)
  bool allow_client_shm = false;  // clients may register shared memory
  std::string server_id = "triton";
  TraceOptions trace;
  StatisticsOptions statistics;                   // of each model
  std::shared_ptr<ResponseCache> response_cache;  // of the models that ask for it; null = none
  std::shared_ptr<RateLimiter> rate_limiter;      // of models on instances; null = off
  bool strict_readiness = true;
  bool exit_on_error = true;    // a model that fails to load ends the start
  std::string device = "auto";  // builder/devices.h
  std::optional<std::string> dtype;
  std::optional<model::QuantAlgo> quant_algo;
  std::optional<bool> fp8_kv_cache;
  std::optional<bool> quantize_lm_head;
  ExecutorOptions executor;
  // Of model_dirs only; a repository says both in its files.
  bool decoupled = true;                 // requests may stream
  bool include_input_in_output = false;  // non-streaming answers begin with the prompt
};

// What clients of KServe are told of a load: that contract has one class for all that failed.
inline Status AsContractLoadStatus(const Status& status) {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return InvalidArgument(status.message());
}

// Loads everything; logs a line per model. An error says which model and why.
Result<std::unique_ptr<Server>> CreateServer(const ServerOptions& options);

}  // namespace inflight::serving
