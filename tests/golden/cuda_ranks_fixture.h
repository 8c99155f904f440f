// SPDX-License-Identifier: Apache-2.0
// Models split over the GPUs of a test. What fails here ends the program with its reason.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "builder/builder.h"
#include "constants.h"
#include "executor/cuda/nccl_library.h"
#include "executor/cuda_ranks.h"
#include "rank_gpus.h"
#include "run_requests.h"
#include "speculation_cases.h"

namespace inflight::golden {

// Behind NEED_RANK_GPUS.
#define NEED_NCCL(num_ranks)                                                                  \
  do {                                                                                        \
    const auto gpus_of_ranks = RankGpus(num_ranks);                                           \
    if (gpus_of_ranks[0] == gpus_of_ranks[1]) GTEST_SKIP() << "NCCL takes one rank on a GPU"; \
    if (const Status nccl = executor::cuda::LoadNccl().status(); !nccl.ok())                  \
      GTEST_SKIP() << nccl.message();                                                         \
  } while (false)

using executor::RankEngines;
using RankDrafts = std::vector<executor::DraftWeights>;
using Gpus = std::vector<Device*>;

// A part of the model in `dir` on each GPU, as many of which are of each stage. Experts are dealt
// as `with` says.
inline RankEngines OpenRanks(const std::filesystem::path& dir, const Gpus& gpus,
                             builder::OpenOptions with, int num_stages = 1) {
  with.ranks.tp_size = static_cast<int>(gpus.size()) / num_stages;
  with.ranks.pp_size = num_stages;
  RankEngines engines;
  for (; with.rank < with.ranks.num_ranks(); ++with.rank) {
    auto engine = builder::Open(dir, *gpus[static_cast<size_t>(with.rank)], with);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    CHECK(engine.ok());
    engines.push_back(*std::move(engine));
  }
  return engines;
}

inline std::unique_ptr<Executor> MakeRanked(const RankEngines& engines, const Gpus& gpus,
                                            const ExecutorOptions& options,
                                            const RankDrafts& drafts = {}) {
  auto backend = executor::CreateCudaRanks(engines, gpus, options, {}, drafts);
  EXPECT_TRUE(backend.ok()) << backend.status().ToString();
  CHECK(backend.ok());
  auto executor = executor::CreateExecutor(std::move(backend->backend), options);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  CHECK(executor.ok());
  return std::move(*executor);
}

// The demo model on two ranks.
class DemoRanksTest : public testing::Test {
 protected:
  void SetUp() override {
    NEED_RANK_GPUS(2);
    gpus = RankGpus(2);
    options.block_size = kBlockSize;
    options.max_batch_size = 8;
    options.max_kv_tokens = 4096;
    options.deterministic = true;
  }
  Sinks Run(const RankEngines& engines, const std::vector<Request>& requests,
            const RankDrafts& drafts = {}) {
    return RunAll<RowsSink>(*MakeRanked(engines, gpus, options, drafts), requests);
  }
  Gpus gpus;
  ExecutorOptions options;
};

// The demo model, whole on each of `gpus`, as its own draft model.
inline RankDrafts DemoDrafts(const Gpus& gpus, DType dtype) {
  RankDrafts drafts;
  for (Device* gpu : gpus) {
    auto draft = builder::Open(INFLIGHT_DEMO_MODEL, *gpu, {.dtype = dtype});
    EXPECT_TRUE(draft.ok()) << draft.status().ToString();
    CHECK(draft.ok());
    drafts.push_back({.model = *std::move(draft)});
  }
  return drafts;
}

}  // namespace inflight::golden
