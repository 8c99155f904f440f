// SPDX-License-Identifier: Apache-2.0
#include "inspect_repository.h"

#include <fmt/format.h>

#include <vector>

#include "base/log.h"
#include "planned_repository.h"
#include "serving/repository/repository_layout.h"

namespace inflight::tool {
namespace {

namespace fs = std::filesystem;

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

std::optional<Status> InspectRepository(const fs::path& dir, const OpenOptions& options,
                                        bool as_json) {
  if (!serving::FindRepository(dir)) return std::nullopt;
  if (as_json)
    return InvalidArgument("--json: is of a model's directory, and " + dir.string() +
                           " is a repository");
  logging::SetLevel(logging::Level::kError);  // the report goes to standard output
  const auto planned = PlanRepository(dir, options);
  if (!planned.ok()) return planned.status();
  fmt::print("{}: model repository\n", dir.string());
  bool starts = true;
  for (const serving::ModelEntry& entry : planned->repository->entries())
    starts &= PrintModel(entry, *planned->repository, *planned->engines);
  return starts ? Status::Ok() : FailedPrecondition("a model of this repository ends the start");
}

}  // namespace inflight::tool
