// SPDX-License-Identifier: Apache-2.0
// Experts by rank on GPUs. Models have one layer, so that the router reads the same bits as where
// ranks have a part of every expert: no token goes to other experts by rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cuda_ranks_fixture.h"
#include "golden_reference.h"
#include "worse.h"

namespace inflight::golden {
namespace {

struct ExpertRanksCase {
  const char* model;
  int num_ranks;
  int moe_ep_size;
  std::optional<model::QuantAlgo> algo = std::nullopt;

  std::string name() const {
    return std::string(model) + "_" + std::to_string(num_ranks) + "_ep" +
           std::to_string(moe_ep_size) +
           (algo ? "_" + std::string(model::QuantAlgoName(*algo)) : "");
  }
};

class CudaExpertRanksTest : public testing::TestWithParam<ExpertRanksCase> {
 protected:
  void SetUp() override {
    NEED_RANK_GPUS(GetParam().num_ranks);
    gpus_ = RankGpus(GetParam().num_ranks);
    expected_ = ReadReference(DataDir() / GetParam().model);
  }
  // By ranks that have the GPUs to themselves meanwhile.
  auto AnswersOf(int moe_ep_size, bool is_greedy) {
    builder::OpenOptions open = {.dtype = DType::kBF16, .quant_algo = GetParam().algo};
    open.ranks.moe_ep_size = moe_ep_size;
    ExecutorOptions options;
    options.block_size = kBlockSize;
    options.max_batch_size = 4;
    options.max_num_tokens = 128;
    const auto executor =
        MakeRanked(OpenRanks(DataDir() / GetParam().model, gpus_, open), gpus_, options);
    return RunAll<LogitsSink>(*executor, RequestsOf(is_greedy));
  }
  // Where each rank has a part of every expert; a quarter of these is too narrow.
  static int OtherEpSize() { return GetParam().num_ranks == 2 ? 1 : 4; }
  // What rounding may change, of weights in fewer bits between two ways of scaling them: E4M3 has a
  // unit roundoff of 2^-4, a row of int8 about that of two bits less than bfloat16.
  static float BoundOf(const Expected& expected) {
    const float bound = RoundingBound(DType::kBF16, expected);
    if (!GetParam().algo) return bound;
    return bound * (*GetParam().algo == model::QuantAlgo::kW8A16 ? 8 : 32);
  }
  // Prompts alone, or with their texts.
  std::vector<Request> RequestsOf(bool is_greedy) const {
    std::vector<Request> requests(expected_.size());
    for (size_t i = 0; i < expected_.size(); ++i) {
      requests[i].input_ids = is_greedy ? expected_[i].prompt : expected_[i].Whole();
      requests[i].max_tokens = is_greedy ? 64 : 1;
      requests[i].output.return_context_logits = !is_greedy;
      requests[i].output.return_generation_logits = is_greedy;
    }
    return requests;
  }

  Gpus gpus_;
  std::vector<Expected> expected_;
};

TEST_P(CudaExpertRanksTest, LogitsAreThoseOfTransformersAndOfPartsOfEveryExpert) {
  const auto got = AnswersOf(GetParam().moe_ep_size, /*is_greedy=*/false);
  const auto of_parts = AnswersOf(OtherEpSize(), /*is_greedy=*/false);
  for (size_t i = 0; i < expected_.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    const float bound = BoundOf(expected_[i]);
    const size_t vocab = expected_[i].logits.size() / expected_[i].positions.size();
    float worst = 0;
    for (size_t p = 0; p < expected_[i].positions.size(); ++p)
      for (size_t v = 0; v < vocab; ++v)
        worst = Worse(
            worst,
            std::fabs(got[i]->logits[static_cast<size_t>(expected_[i].positions[p]) * vocab + v] -
                      expected_[i].logits[p * vocab + v]));
    if (!GetParam().algo) {
      EXPECT_LE(worst, bound);  // else attention has other bits, and tokens may have other experts
    }
    ASSERT_EQ(got[i]->logits.size(), of_parts[i]->logits.size());
    worst = 0;
    for (size_t v = 0; v < got[i]->logits.size(); ++v)
      worst = Worse(worst, std::fabs(got[i]->logits[v] - of_parts[i]->logits[v]));
    EXPECT_LE(worst, bound) << "beside parts of every expert";
  }
}

TEST_P(CudaExpertRanksTest, GreedyIdsAreThoseOfPartsOfEveryExpertButForTies) {
  const auto got = AnswersOf(GetParam().moe_ep_size, /*is_greedy=*/true);
  const auto of_parts = AnswersOf(OtherEpSize(), /*is_greedy=*/true);
  for (size_t i = 0; i < expected_.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    ASSERT_EQ(got[i]->ids.size(), 64);
    const auto differ = std::ranges::mismatch(got[i]->ids, of_parts[i]->ids);
    if (differ.in1 == got[i]->ids.end()) continue;
    const auto step = static_cast<size_t>(differ.in1 - got[i]->ids.begin());
    const size_t vocab = expected_[i].logits.size() / expected_[i].positions.size();
    const float* row = got[i]->logits.data() + step * vocab;
    EXPECT_LE(row[*differ.in1] - row[*differ.in2], 2 * BoundOf(expected_[i])) << "token " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaExpertRanksTest,
                         testing::Values(ExpertRanksCase{"mixtral_experts", 2, 2},
                                         ExpertRanksCase{"mixtral_experts", 4, 2},
                                         ExpertRanksCase{"gpt_oss_experts", 2, 2},
                                         // One shared expert, which the last rank holds.
                                         ExpertRanksCase{"qwen2_moe_ranks", 2, 2},
                                         ExpertRanksCase{"mixtral_experts", 2, 2,
                                                         model::QuantAlgo::kW8A16},
                                         ExpertRanksCase{"mixtral_experts", 2, 2,
                                                         model::QuantAlgo::kFp8PerChannelPerToken}),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace inflight::golden
