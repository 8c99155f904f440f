// SPDX-License-Identifier: Apache-2.0
#include "planned_repository.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/worker_pool.h"
#include "loader/loader.h"
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

}  // namespace

Result<PlannedRepository> PlanRepository(const fs::path& dir, const OpenOptions& options) {
  const auto devices = FindDevices(options.device);
  if (!devices.ok()) return devices.status();
  OpenOptions base = options;
  base.devices = *devices;
  auto plans = std::make_shared<std::vector<EnginePlan>>();
  const auto load = [base, plans](
                        const fs::path& engine, const std::string& owner,
                        const ExecutorOptions& executor,
                        const serving::AskedPlace& place) -> Result<serving::LoadedEngine> {
    ASSIGN_OR_RETURN(const OpenOptions open,
                     serving::OptionsFor(base, engine, owner, executor, place));
    return PlanEngine(engine, open, *plans);
  };
  serving::ServerOptions server;
  server.open = base;
  auto repository =
      std::make_unique<serving::Repository>(server, load, WorkerPool::MakeShared(1, "text"));
  repository->LoadRepository(dir);
  return PlannedRepository{std::move(repository), std::move(plans)};
}

}  // namespace inflight::tool
