// SPDX-License-Identifier: Apache-2.0
// A model repository as `serve` would load it, without executors: configurations, engines' sizes
// and tokenizers are read as `serve` reads them, so that reports are those that it would log.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "inflight/open.h"
#include "inflight/status.h"
#include "serving/repository/repository.h"

namespace inflight::tool {

// What would be loaded for one LLM.
struct EnginePlan {
  std::string owner;  // "tensorrt_llm/1"
  std::filesystem::path dir;
  std::string plan;
};

struct PlannedRepository {
  std::unique_ptr<serving::Repository> repository;
  std::shared_ptr<std::vector<EnginePlan>> engines;
};

// `dir` is a repository (serving::FindRepository).
Result<PlannedRepository> PlanRepository(const std::filesystem::path& dir,
                                         const OpenOptions& options);

}  // namespace inflight::tool
