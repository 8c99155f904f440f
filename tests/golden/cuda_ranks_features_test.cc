// SPDX-License-Identifier: Apache-2.0
// What each rank on a GPU does for itself, and all alike: adapters, guides, drafts of a model, and
// weights that are streamed from the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "cuda_ranks_fixture.h"
#include "decoding/list_guide.h"
#include "golden_reference.h"
#include "guide_ways.h"
#include "lora_cases.h"

namespace inflight::golden {
namespace {

using Ids = std::vector<TokenId>;

// Adapters of models on ranks, against weights that have them merged (make_lora_golden.py).
class CudaRanksLoraTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    NEED_RANK_GPUS(GetParam());
    gpus = RankGpus(GetParam());
  }
  std::unique_ptr<Executor> Start(const std::string& model) {
    ExecutorOptions options;
    options.block_size = kBlockSize;
    options.max_batch_size = 16;
    options.max_kv_tokens = 8192;
    options.deterministic = true;
    return MakeRanked(OpenRanks(DataDir() / model, gpus, {.dtype = DType::kBF16}), gpus, options);
  }
  static std::vector<LoraCase> CasesOf(const std::string& model) {
    std::vector<LoraCase> cases = ReadLoraCases();
    std::erase_if(cases, [&](const LoraCase& c) { return c.model != model; });
    return cases;
  }
  Gpus gpus;
};

// The bound of cuda_lora_test.cc: ranks round each part of a sum once more, which is u^2 / 3 for
// each product that is added up, as the product of factors was: (2 / 3 + 1 + 1 / 3) / (2 / 3).
TEST_P(CudaRanksLoraTest, LogitsStayNearMergedWeights) {
  for (const std::string model : {"llama_head64", "gpt2_head64"}) {
    const auto executor = Start(model);
    const std::vector<LoraCase> cases = CasesOf(model);
    ASSERT_GE(cases.size(), model == "llama_head64" ? 10U : 4U);
    std::vector<Request> requests;
    for (size_t i = 0; i < cases.size(); ++i) requests.push_back(WholeOf(cases[i], i));
    const auto answers = RunAll<LogitsSink>(*executor, requests);
    for (size_t i = 0; i < cases.size(); ++i) {
      const LoraCase& c = cases[i];
      ASSERT_TRUE(answers[i]->last.status.ok()) << answers[i]->last.status.ToString();
      const float bound =
          std::sqrt(3.0F) * RoundingBound(DType::kBF16, {.noise_gain = c.noise_gain});
      EXPECT_LE(WorstLogit(c, LogitsOfWhole(c, answers[i]->logits)), bound) << c.Name();
    }
  }
}

// More ids than there are places: the first adapter takes memory while steps run, others come and
// go. Graphs are replayed with one mixture after the other.
TEST_P(CudaRanksLoraTest, AdaptersComeAndGoWhileOthersRun) {
  const std::vector<LoraCase> cases = CasesOf("llama_head64");
  const auto executor = Start("llama_head64");
  const auto short_of = [&](size_t i, uint64_t id) {
    Request request = RequestOf(cases[i], id);
    request.output = {.return_log_probs = true};
    request.max_tokens = 12;
    return request;
  };
  std::atomic<bool> has_ended = false;
  std::thread plain([&] {
    while (!has_ended) RunAll(*executor, {short_of(0, 0), short_of(0, 0)});
  });
  std::vector<std::shared_ptr<LogitsSink>> alone;
  for (size_t i = 1; i < cases.size(); ++i)
    alone.push_back(RunAll<LogitsSink>(*executor, {short_of(i, i)}).front());
  for (uint64_t round = 1; round <= 3; ++round) {
    std::vector<Request> requests;
    const auto case_of = [&](size_t i) { return 1 + (i + round) % alone.size(); };
    for (size_t i = 0; i < 150; ++i) requests.push_back(short_of(case_of(i), 1000 * round + i));
    const auto answers = RunAll<LogitsSink>(*executor, requests);
    for (size_t i = 0; i < answers.size(); ++i) {
      const LogitsSink& expected = *alone[case_of(i) - 1];
      EXPECT_TRUE(answers[i]->last.status.ok()) << answers[i]->last.status.ToString();
      EXPECT_EQ(answers[i]->ids, expected.ids) << i;
      EXPECT_EQ(answers[i]->log_probs, expected.log_probs) << i;
    }
  }
  has_ended = true;
  plain.join();
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaRanksLoraTest, testing::Values(2),
                         [](const auto& info) { return std::to_string(info.param); });

using CudaRanksFeaturesTest = DemoRanksTest;

// Alone, beside free rows, as beams, and with drafts out of texts: one of the ways, and the same
// each time. What a rank drew otherwise would end in another answer of the rows beside it.
TEST_F(CudaRanksFeaturesTest, GuidedRowsKeepToTheirGuideOnAllRanks) {
  const RankEngines engines = OpenRanks(INFLIGHT_DEMO_MODEL, gpus, {.dtype = DType::kBF16});
  const int vocab_size = engines.front()->config.vocab_size;
  const Ways ways = SomeWays();
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request& request = requests.emplace_back();
    request.input_ids = {5, 9, 17 + i, 33};
    request.max_tokens = 20;
    request.end_ids = {2};
    request.output.return_log_probs = true;
    if (i % 4 == 1) request.sampling = {.temperature = 3.0F, .top_p = 1.0F, .seed = 7};
    if (i % 4 == 2) request.sampling.beam_width = 2;
    if (i % 4 != 3) request.guide = decoding::MakeListGuide(vocab_size, ways);
  }
  const std::set<Ids> known(ways.begin(), ways.end());
  const Sinks together = Run(engines, requests);
  options.max_batch_size = 2;
  const Sinks alone = Run(engines, requests);
  options.max_batch_size = 8;
  options.drafts = DraftSource::kNgram;
  const Sinks drafted = Run(engines, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(together[i]->last.status.ok()) << together[i]->last.status.ToString();
    if (requests[i].sampling.beam_width > 1) {
      ASSERT_EQ(together[i]->last.beams.size(), 2U);
      for (size_t b = 0; b < 2; ++b) {
        EXPECT_TRUE(known.contains(together[i]->last.beams[b].output_ids));
        EXPECT_EQ(together[i]->last.beams[b].output_ids, alone[i]->last.beams[b].output_ids);
      }
      continue;
    }
    if (requests[i].guide != nullptr) {
      EXPECT_TRUE(known.contains(together[i]->ids));
    }
    ExpectEqual(*alone[i], *together[i], i);
    ExpectEqual(*drafted[i], *together[i], i);
  }
}

// A draft model, whole on each GPU, changes no answer: the model itself, whose drafts are mostly
// accepted, and one of other weights, whose drafts are not.
TEST_F(CudaRanksFeaturesTest, DraftsOfAModelChangeNoAnswer) {
  const RankEngines engines = OpenRanks(INFLIGHT_DEMO_MODEL, gpus, {.dtype = DType::kBF16});
  const auto requests = RequestsOfAllKinds(engines.front()->config.vocab_size);
  const Sinks expected = Run(engines, requests);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const RankDrafts drafts = DemoDrafts(gpus, dtype);
    options.drafts = DraftSource::kModel;
    options.max_draft_len = 4;
    const Sinks drafted = Run(engines, requests, drafts);
    int64_t num_accepted = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].sampling.num_return_sequences.value_or(1) > 1) continue;
      ExpectEqual(*drafted[i], *expected[i], i);
      num_accepted += drafted[i]->last.num_accepted_draft_tokens;
    }
    EXPECT_GT(num_accepted, 0) << DTypeName(dtype);
  }
}

// Layers that each GPU copies from the host while it computes.
TEST_F(CudaRanksFeaturesTest, StreamedWeightsChangeNoAnswer) {
  if (gpus[0] == gpus[1]) GTEST_SKIP() << "copies of ranks that share a GPU wait for each other";
  const RankEngines resident = OpenRanks(INFLIGHT_DEMO_MODEL, gpus, {.dtype = DType::kBF16});
  const int num_layers = resident.front()->config.num_layers;
  ASSERT_GE(num_layers, 3);
  const auto requests = RequestsOfAllKinds(resident.front()->config.vocab_size);
  const Sinks expected = Run(resident, requests);
  builder::OpenOptions with{.dtype = DType::kBF16};
  for (int layer = 0; layer < num_layers; ++layer) with.streamed_layers.push_back(layer);
  const RankEngines streamed = OpenRanks(INFLIGHT_DEMO_MODEL, gpus, with);
  for (const auto& engine : streamed) ASSERT_FALSE(engine->host_layers.empty());
  const Sinks actual = Run(streamed, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
      ExpectEqual(*actual[i], *expected[i], i);
}

}  // namespace
}  // namespace inflight::golden
