// SPDX-License-Identifier: Apache-2.0
#include "inspect_repository.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/worker_pool.h"
#include "loader/loader.h"
#include "serving/repository/repository.h"
#include "serving/repository/repository_layout.h"
#include "tensor/device.h"

namespace inflight::tool {
namespace {

namespace fs = std::filesystem;

// Stands for an executor: knows its limits, holds its shares of the ledger, runs nothing.
class PlannedExecutor : public Executor {
 public:
  PlannedExecutor(ExecutorLimits limits, std::vector<MemoryShare> shares)
      : limits_(limits), shares_(std::move(shares)) {}

  Result<RequestId> Enqueue(Request, std::shared_ptr<ResponseSink>) override {
    return Unavailable("inspected models run nothing");
  }
  void Cancel(RequestId) override {}
  const ExecutorLimits& limits() const override { return limits_; }
  ExecutorStats stats() const override { return {}; }
  void TakeIterationStats(std::vector<ExecutorStats>*) override {}
  void TakeRequestStats(std::vector<RequestStatsPerIteration>*) override {}
  bool healthy() const override { return true; }
  void Shutdown(int64_t) override {}

 private:
  const ExecutorLimits limits_;
  const std::vector<MemoryShare> shares_;
};

// What would be loaded for one LLM.
struct EnginePlan {
  std::string owner;  // "tensorrt_llm/1"
  fs::path dir;
  std::string plan;
};

Result<serving::LoadedEngine> PlanEngine(const fs::path& dir, const OpenOptions& options,
                                         std::vector<EnginePlan>& plans) {
  ASSIGN_OR_RETURN(loader::Plan plan, loader::MakePlan(dir, options));
  plans.push_back({options.owner, dir, plan.ToString()});
  MemoryLedger& ledger = plan.device->ledger();
  const MemoryLedger::OwnerScope scope(ledger, options.owner);
  std::vector<MemoryShare> shares;
  for (const auto& [name, bytes] : {std::pair{"weights", plan.memory.weight_bytes},
                                    std::pair{"workspace", plan.memory.workspace_bytes},
                                    std::pair{"kv cache", plan.memory.kv_bytes()}}) {
    ASSIGN_OR_RETURN(MemoryShare share, ledger.Take(name, bytes));
    shares.push_back(std::move(share));
  }
  serving::LoadedEngine loaded;
  loaded.backend.executor = std::make_shared<PlannedExecutor>(plan.info.limits, std::move(shares));
  loaded.device = plan.info.device;
  loaded.tokenizer_dir = dir;
  return loaded;
}

// What became of a model; false where that would end the start.
bool PrintModel(const serving::ModelEntry& entry, const serving::Repository& repository,
                const std::vector<EnginePlan>& plans) {
  const bool ends_start = entry.model == nullptr && entry.required;
  const std::string state = entry.model != nullptr
                                ? "READY"
                                : "UNAVAILABLE: " + serving::ReasonText(entry.status) +
                                      (ends_start ? " (ends the start)" : "");
  fmt::print("\nmodel {} version {}: {}\n", entry.name, entry.version.empty() ? "-" : entry.version,
             state);
  for (const EnginePlan& plan : plans) {
    if (plan.owner != entry.name + "/" + entry.version) continue;
    fmt::print("engine {}\n{}", plan.dir.string(), plan.plan);
  }
  for (const serving::ModelReport& report : repository.reports()) {
    if (report.model != entry.name || report.version != entry.version) continue;
    fmt::print("{}", contract::ToTable(report.keys));
  }
  return !ends_start;
}

}  // namespace

std::optional<Status> InspectRepository(const fs::path& dir, const OpenOptions& options) {
  if (!serving::FindRepository(dir)) return std::nullopt;
  logging::SetLevel(logging::Level::kError);  // the report goes to standard output
  const auto devices = FindDevices(options.device);
  if (!devices.ok()) return devices.status();
  OpenOptions base = options;
  base.devices = *devices;
  std::vector<EnginePlan> plans;
  const auto load = [&](const fs::path& engine, const std::string& owner,
                        const ExecutorOptions& executor,
                        std::optional<int> gpu) -> Result<serving::LoadedEngine> {
    ASSIGN_OR_RETURN(const OpenOptions open,
                     serving::OptionsFor(base, engine, owner, executor, gpu));
    return PlanEngine(engine, open, plans);
  };
  serving::ServerOptions server;
  server.open = base;
  serving::Repository repository(server, load, std::make_shared<WorkerPool>(1, "text"));
  repository.LoadRepository(dir);
  fmt::print("{}: model repository\n", dir.string());
  bool starts = true;
  for (const serving::ModelEntry& entry : repository.entries()) {
    starts &= PrintModel(entry, repository, plans);
  }
  return starts ? Status::Ok() : FailedPrecondition("a model of this repository ends the start");
}

}  // namespace inflight::tool
