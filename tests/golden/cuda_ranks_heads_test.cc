// SPDX-License-Identifier: Apache-2.0
// Heads of Medusa and of EAGLE, whole on each GPU of a model that two share: no answer depends on
// their trees, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "builder/eagle_files.h"
#include "cuda_ranks_fixture.h"
#include "decoding/list_guide.h"
#include "fitted_heads.h"
#include "guide_ways.h"
#include "model/adapter_part.h"
#include "widened_head.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;

class CudaRanksHeadsTest : public DemoRanksTest {
 protected:
  void SetUp() override {
    DemoRanksTest::SetUp();
    if (IsSkipped()) return;
    folder = fs::path(testing::TempDir()) / "cuda_ranks_heads";
    engines = OpenRanks(INFLIGHT_DEMO_MODEL, gpus, {.dtype = DType::kBF16});
    requests = RequestsOfAllKinds(engines.front()->config.vocab_size);
    Request& guided = requests.emplace_back();
    guided.input_ids = {5, 9, 17, 33};
    guided.max_tokens = 20;
    guided.end_ids = {2};
    guided.guide = decoding::MakeListGuide(engines.front()->config.vocab_size, SomeWays());
    options.block_size = 64;
    options.drafts = DraftSource::kNone;
  }
  void TearDown() override { fs::remove_all(folder); }

  // Ranks whose drafts differ would hold other keys and values from there on, and draw otherwise.
  void ExpectSame(const Sinks& expected, const RankDrafts& drafts = {}) {
    options.drafts = DraftSource::kAuto;
    const auto executor = MakeRanked(engines, gpus, options, drafts);
    const Sinks actual = RunAll<RowsSink>(*executor, requests);
    executor->Shutdown(0);
    const ExecutorStats stats = executor->stats();
    EXPECT_GT(stats.drafts_accepted, 40);
    EXPECT_GT(stats.tokens_drafted, stats.drafts_accepted);
    EXPECT_EQ(stats.kv_blocks_used, 0);
    ExpectAllEqual(requests, actual, expected);
  }

  // With kernels of which each GPU chooses its own.
  void ExpectMostlySameWithoutTheMode(const RankDrafts& drafts = {}) {
    options.deterministic = false;
    std::erase_if(requests, [](const Request& r) { return r.sampling.temperature.has_value(); });
    options.drafts = DraftSource::kNone;
    options.medusa_choices = {};
    const Sinks expected = Run(engines, requests);
    options.drafts = DraftSource::kAuto;
    const auto executor = MakeRanked(engines, gpus, options, drafts);
    const Sinks actual = RunAll<RowsSink>(*executor, requests);
    EXPECT_GT(executor->stats().drafts_accepted, 40);
    size_t num_equal = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(actual[i]->last.status.ok()) << actual[i]->last.status.ToString();
      num_equal += actual[i]->ids == expected[i]->ids ? 1 : 0;
    }
    EXPECT_GE(num_equal, requests.size() / 2);
  }

  fs::path folder;
  RankEngines engines;
  std::vector<Request> requests;
};

TEST_F(CudaRanksHeadsTest, TreesOfMedusaChangeNoAnswer) {
  const Sinks expected = Run(engines, requests);
  std::vector<std::vector<TokenId>> texts;
  for (size_t i = 0; i < requests.size(); ++i) {
    texts.push_back(requests[i].input_ids);
    texts.back().insert(texts.back().end(), expected[i]->ids.begin(), expected[i]->ids.end());
  }
  const auto checkpoint =
      WriteFittedHeads(INFLIGHT_DEMO_MODEL, texts, /*num_heads=*/4, DType::kBF16, folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  engines = OpenRanks(*checkpoint, gpus, {});
  for (const auto& engine : engines) EXPECT_EQ(engine->config.num_medusa_heads, 4);
  ExpectSame(expected);
  options.medusa_choices = {{0}, {0, 1}, {0, 0}, {1}, {0, 0, 2}, {1, 1}};
  ExpectSame(expected);
  ExpectMostlySameWithoutTheMode();
}

TEST_F(CudaRanksHeadsTest, TreesOfEagleChangeNoAnswer) {
  const Sinks expected = Run(engines, requests);
  for (const std::string version : {"v1", "v3"}) {
    SCOPED_TRACE(version);
    const Status written = WriteWidenedHead(fs::path(INFLIGHT_EAGLE_GOLDEN_DATA) / version, folder);
    ASSERT_TRUE(written.ok()) << written.ToString();
    RankDrafts drafts;
    for (size_t r = 0; r < gpus.size(); ++r) {
      auto head = builder::OpenEagleHead(folder, model::WholeConfig(engines[r]->config), *gpus[r]);
      ASSERT_TRUE(head.ok()) << head.status().ToString();
      drafts.push_back({.eagle = *std::move(head)});
    }
    ExpectSame(expected, drafts);
    if (version == "v1") continue;
    ExpectMostlySameWithoutTheMode(drafts);
  }
}

}  // namespace
}  // namespace inflight::golden
