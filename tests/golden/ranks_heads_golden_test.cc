// SPDX-License-Identifier: Apache-2.0
// Heads of Medusa and EAGLE beside models that are split over ranks: no answer depends on them, and
// over stages, which add up nothing, they propose what they do on one rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "artifact/checkpoint.h"
#include "builder/builder.h"
#include "builder/eagle_files.h"
#include "constants.h"
#include "even_clock.h"
#include "executor/ranked_backend.h"
#include "golden_reference.h"
#include "model/adapter_part.h"
#include "run_requests.h"
#include "speculation_cases.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;
using artifact::RankMapping;

class RanksHeadsTest : public testing::TestWithParam<RankMapping> {
 protected:
  using Parts = std::vector<std::shared_ptr<const model::Engine>>;

  Parts OpenParts(const fs::path& dir, const RankMapping& ranks) {
    Parts parts;
    for (int rank = 0; rank < ranks.num_ranks(); ++rank) {
      auto part = builder::Open(dir, *device_, {.ranks = ranks, .rank = rank});
      EXPECT_TRUE(part.ok()) << part.status().ToString();
      if (!part.ok()) return {};
      parts.push_back(*std::move(part));
    }
    return parts;
  }

  Sinks Run(const Parts& parts, const executor::DraftWeights& draft) {
    EvenClock clock;
    auto backend = parts.size() == 1
                       ? executor::CreateLocalBackend(parts[0], *device_, options_, {}, draft)
                       : executor::CreateRankedBackend(parts, *device_, options_, {}, draft);
    EXPECT_TRUE(backend.ok()) << backend.status().ToString();
    if (!backend.ok()) return {};
    auto executor = executor::CreateExecutor(std::move(backend->backend), options_, clock);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    Sinks sinks = RunAll<RowsSink>(**executor, requests_);
    (*executor)->Shutdown(0);
    stats_ = (*executor)->stats();
    return sinks;
  }

  void ExpectSameWithHeads(const Parts& parts, const Parts& whole,
                           const executor::DraftWeights& draft) {
    ASSERT_FALSE(parts.empty());
    ASSERT_FALSE(whole.empty());
    requests_ = RequestsOfAllKinds(whole[0]->config.vocab_size);
    options_.drafts = DraftSource::kNone;
    const Sinks expected = Run(parts, {});
    ASSERT_EQ(expected.size(), requests_.size());
    EXPECT_EQ(stats_.tokens_drafted, 0);
    options_.drafts = DraftSource::kAuto;
    const Sinks actual = Run(parts, draft);
    ASSERT_EQ(actual.size(), requests_.size());
    ExpectAllEqual(requests_, actual, expected);
    EXPECT_GT(stats_.drafts_accepted, 20);
    if (GetParam().tp_size > 1) return;
    const ExecutorStats on_ranks = stats_;
    Run(whole, draft);
    EXPECT_EQ(on_ranks.drafts_accepted, stats_.drafts_accepted);
    EXPECT_EQ(on_ranks.tokens_drafted, stats_.tokens_drafted);
  }

  std::shared_ptr<Device> device_ = Device::Cpu(2);
  ExecutorOptions options_ = {.max_batch_size = 8, .max_kv_tokens = 4096, .deterministic = true};
  std::vector<Request> requests_;
  ExecutorStats stats_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, RanksHeadsTest,
                         testing::Values(RankMapping{2, 1}, RankMapping{1, 2}, RankMapping{2, 2}),
                         [](const auto& info) {
                           return "tp" + std::to_string(info.param.tp_size) + "pp" +
                                  std::to_string(info.param.pp_size);
                         });

TEST_P(RanksHeadsTest, EaglesChangeNoAnswer) {
  const Parts parts = OpenParts(INFLIGHT_DEMO_MODEL, GetParam());
  const Parts whole = OpenParts(INFLIGHT_DEMO_MODEL, {});
  ASSERT_FALSE(parts.empty());
  for (const std::string version : {"v1", "v3"}) {
    SCOPED_TRACE(version);
    const auto head = builder::OpenEagleHead(fs::path(INFLIGHT_EAGLE_GOLDEN_DATA) / version,
                                             model::WholeConfig(parts[0]->config), *device_);
    ASSERT_TRUE(head.ok()) << head.status().ToString();
    ExpectSameWithHeads(parts, whole, {.model = nullptr, .eagle = *head});
  }
}

// From a checkpoint whose ranks hold parts of the heads, and through an engine.
TEST_P(RanksHeadsTest, MedusasChangeNoAnswer) {
  const fs::path dir =
      fs::path(testing::TempDir()) / ("medusa_on_ranks_" + std::to_string(getpid()));
  fs::remove_all(dir);
  const auto convert = [&](const fs::path& to, int tp_size, int pp_size) {
    const Status done =
        builder::Convert({.model_dir = DataDir() / "llama_gqa2",
                          .output_dir = to,
                          .dtype = "float32",
                          .tp_size = tp_size,
                          .pp_size = pp_size,
                          .medusa = {.dir = fs::path(INFLIGHT_MEDUSA_GOLDEN_DATA) / "heads"}});
    EXPECT_TRUE(done.ok()) << done.ToString();
  };
  convert(dir / "whole", 1, 1);
  convert(dir / "ranks", GetParam().tp_size, GetParam().pp_size);
  const Status built =
      builder::Build({.checkpoint_dir = dir / "ranks", .output_dir = dir / "engine", .limits = {}});
  ASSERT_TRUE(built.ok()) << built.ToString();
  const Parts whole = OpenParts(dir / "whole", {});
  for (const char* name : {"ranks", "engine"}) {
    SCOPED_TRACE(name);
    const Parts parts = OpenParts(dir / name, GetParam());
    ASSERT_FALSE(parts.empty());
    EXPECT_EQ(parts[0]->config.num_medusa_heads, 3);
    EXPECT_EQ(parts.back()->config.num_medusa_heads, 0);
    ExpectSameWithHeads(parts, whole, {});
  }
  fs::remove_all(dir);
}

}  // namespace
}  // namespace inflight::golden
