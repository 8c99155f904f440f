// SPDX-License-Identifier: Apache-2.0
// The tiny models of make_golden.py on a GPU in bfloat16 and float16, beside what transformers said
// in float32: logits within what rounding may change, and the greedy id wherever the two best
// logits lie further apart than that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "constants.h"
#include "golden_reference.h"
#include "paged_model.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

// Those whose head sizes and widths the CUDA kernels have (docs/cuda.md).
constexpr const char* kModels[] = {"gpt2_gelu",
                                   "gpt2_head64",
                                   "llama_head64",
                                   "llama_head80",
                                   "llama_head96",
                                   "llama_head128",
                                   "llama_head256",
                                   "mistral_head64",
                                   "qwen2_head64",
                                   "qwen3_head128",
                                   "phi3_head64",
                                   "starcoder2_head64",
                                   "llama_yarn_mscale",
                                   "gpt_neox_head64",
                                   "opt_head64",
                                   "falcon_head64",
                                   "mixtral_head64",
                                   "qwen2_moe_ranks",
                                   "qwen3_moe_renormalized",
                                   "olmoe_head64",
                                   "granitemoe_head64",
                                   "gpt_oss_mxfp4",
                                   "gemma_head64",
                                   "gemma2_head64",
                                   "gemma3_head64",
                                   "olmo2_head64",
                                   "granite_head64",
                                   "smollm3_head64",
                                   "gptj_head64",
                                   "gpt_neox_parallel64"};

class CudaGoldenTest : public testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    device_ = TestGpu().value().get();
    dir_ = DataDir() / std::get<0>(GetParam());
    expected_ = ReadReference(dir_);
    auto engine = builder::Open(dir_, *device_, {.dtype = dtype(), .limits = std::nullopt});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
    tables_ = ops::CudaOpTables(model::KernelShape(engine_->config), *device_);
    ASSERT_FALSE(tables_.empty());
  }

  DType dtype() const { return std::get<1>(GetParam()); }

  // Logits of every position of `ids`, fed in pieces of the sizes in `chunks`, repeated.
  std::vector<std::vector<float>> AllLogits(const ops::OpTable& table, std::span<const TokenId> ids,
                                            std::span<const size_t> chunks) {
    PagedModel model(engine_, table, *device_, 1, kBlockSize);
    return golden::AllLogits(model, ids, chunks);
  }

  // Every kept position: all logits within `bound`, and the same best id unless the two best ones
  // are nearer to each other than both may move.
  void ExpectNear(const Expected& expected, const std::vector<std::vector<float>>& logits,
                  const std::string& where) {
    const float bound = RoundingBound(dtype(), expected);
    const size_t vocab = logits.front().size();
    size_t jumps = 0;
    for (size_t i = 0; i < expected.positions.size(); ++i) {
      const std::span<const float> want(expected.logits.data() + i * vocab, vocab);
      const std::vector<float>& got = logits[static_cast<size_t>(expected.positions[i])];
      float worst = 0;
      size_t worst_id = 0;
      for (size_t v = 0; v < vocab; ++v)
        if (const float error = std::abs(want[v] - got[v]); !(error <= worst) && !std::isnan(worst))
          worst = error, worst_id = v;
      if (worst > bound && jumps < MostJumps(expected.positions.size())) {
        ++jumps;
        continue;
      }
      EXPECT_LE(worst, bound) << where << ", position " << expected.positions[i] << ", id "
                              << worst_id << ": found " << got[worst_id] << ", expected "
                              << want[worst_id];
      const auto best = std::max_element(want.begin(), want.end());
      float second = -INFINITY;
      for (auto it = want.begin(); it != want.end(); ++it)
        if (it != best) second = std::max(second, *it);
      if (*best - second > 2 * bound) {
        EXPECT_EQ(std::max_element(got.begin(), got.end()) - got.begin(), best - want.begin())
            << where << ", position " << expected.positions[i];
      }
    }
    RecordProperty("jumps, " + where, static_cast<int>(jumps));
  }

  // Of n positions, how many may be far off: rounding may give a token other experts, which its
  // successors see.
  size_t MostJumps(size_t n) const {
    return engine_->config.num_experts > 0 ? std::max<size_t>(n / 8, 2) : 0;
  }

  Device* device_ = nullptr;
  std::filesystem::path dir_;
  std::vector<Expected> expected_;
  std::shared_ptr<const model::Engine> engine_;
  std::vector<ops::OpTable> tables_;
};

TEST_P(CudaGoldenTest, LogitsOfWholePromptsAndOfChunksStayNearTransformers) {
  for (const ops::OpTable& table : tables_) {
    for (const Expected& expected : expected_) {
      const auto ids = expected.Whole();
      const size_t whole[] = {ids.size()};
      const size_t chunks[] = {1, 7, 64, 3, 16, 130};
      ExpectNear(expected, AllLogits(table, ids, whole), table.name + ", whole");
      ExpectNear(expected, AllLogits(table, ids, chunks), table.name + ", chunks");
    }
  }
}

// The reference's own continuation fed token by token, all prompts in one batch: a decode row per
// step and sequence.
TEST_P(CudaGoldenTest, DecodeStepsFollowTheGreedyPath) {
  for (const ops::OpTable& table : tables_) {
    PagedModel model(engine_, table, *device_, expected_.size(), kBlockSize);
    constexpr size_t kSteps = 64;
    size_t jumps = 0;
    for (size_t step = 0; step < kSteps; ++step) {
      std::vector<Piece> pieces;
      for (size_t s = 0; s < expected_.size(); ++s)
        pieces.push_back({s, step == 0
                                 ? std::span<const TokenId>(expected_[s].prompt)
                                 : std::span<const TokenId>(&expected_[s].greedy[step - 1], 1)});
      std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
        return a.tokens.size() == 1 && b.tokens.size() > 1;
      });
      const auto logits = model.Step(pieces, /*last_only=*/true);
      for (size_t i = 0; i < pieces.size(); ++i) {
        const Expected& expected = expected_[pieces[i].sequence];
        const TokenId want = expected.greedy[step];
        const auto best = static_cast<TokenId>(
            std::max_element(logits[i].begin(), logits[i].end()) - logits[i].begin());
        // Another id only where it is nearly as good as the reference's.
        const float better =
            logits[i][static_cast<size_t>(best)] - logits[i][static_cast<size_t>(want)];
        const float bound = 2 * RoundingBound(dtype(), expected);
        if (better > bound && jumps < MostJumps(kSteps * expected_.size())) {
          ++jumps;
          continue;
        }
        EXPECT_LE(better, bound) << table.name << ", step " << step << ", prompt "
                                 << pieces[i].sequence << ": found " << best << ", expected "
                                 << want;
      }
    }
    RecordProperty("jumps of decode steps by " + table.name, static_cast<int>(jumps));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaGoldenTest,
                         testing::Combine(testing::ValuesIn(kModels),
                                          testing::Values(DType::kBF16, DType::kF16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::string(DTypeName(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace inflight::golden
