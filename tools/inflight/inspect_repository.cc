// SPDX-License-Identifier: Apache-2.0
#include "inspect_repository.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/worker_pool.h"
#include "builder/builder.h"
#include "builder/devices.h"
#include "executor/memory_plan.h"
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

Result<serving::LoadedEngine> PlanEngine(const fs::path& dir, const std::string& owner,
                                         const ExecutorOptions& options, std::optional<int> gpu,
                                         builder::OpenOptions open, builder::DeviceChoice& devices,
                                         std::vector<EnginePlan>& plans) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Device> device,
                   serving::DeviceOf(devices, dir, open, gpu));
  open.target = device->kind();
  ASSIGN_OR_RETURN(const builder::Description description, builder::Describe(dir, open));
  MemoryLedger& ledger = device->ledger();
  ASSIGN_OR_RETURN(const executor::MemoryPlan plan,
                   executor::PlanMemory(description.config, description.limits, device->kind(),
                                        description.weight_bytes,
                                        /*weights_are_taken=*/false, options, device->FreeBytes()));
  plans.push_back({owner, dir, plan.ToString()});
  const MemoryLedger::OwnerScope scope(ledger, owner);
  std::vector<MemoryShare> shares;
  for (const auto& [name, bytes] :
       {std::pair{"weights", plan.weight_bytes}, std::pair{"workspace", plan.workspace_bytes},
        std::pair{"kv cache", plan.kv_bytes()}}) {
    ASSIGN_OR_RETURN(MemoryShare share, ledger.Take(name, bytes));
    shares.push_back(std::move(share));
  }
  const bool has_beams = device->kind() == DeviceKind::kCpu;
  const int max_beam_width =
      has_beams ? std::min(description.limits.max_beam_width, plan.max_batch_size) : 1;
  serving::LoadedEngine loaded;
  loaded.backend.executor =
      std::make_shared<PlannedExecutor>(ExecutorLimits{.vocab_size = description.config.vocab_size,
                                                       .max_batch_size = plan.max_batch_size,
                                                       .max_num_tokens = plan.max_num_tokens,
                                                       .max_seq_len = plan.max_seq_len,
                                                       .max_input_len = plan.max_input_len,
                                                       .max_beam_width = max_beam_width,
                                                       .block_size = plan.block_size,
                                                       .num_blocks = plan.num_blocks},
                                        std::move(shares));
  loaded.device = device->name();
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

std::optional<Status> InspectRepository(const fs::path& dir, const ExecutorOptions& options,
                                        const std::string& device,
                                        const builder::OpenOptions& open) {
  if (!serving::FindRepository(dir)) return std::nullopt;
  logging::SetLevel(logging::Level::kError);  // the report goes to standard output
  const auto devices = builder::DeviceChoice::ByName(device);
  if (!devices.ok()) return devices.status();
  std::vector<EnginePlan> plans;
  const auto load = [&](const fs::path& engine, const std::string& owner,
                        const ExecutorOptions& executor, std::optional<int> gpu) {
    return PlanEngine(engine, owner, executor, gpu, open, **devices, plans);
  };
  serving::ServerOptions server;
  server.executor = options;
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
