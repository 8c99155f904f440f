// SPDX-License-Identifier: Apache-2.0
// The tiny models of make_golden.py on a GPU in bfloat16 and float16, beside what transformers said
// in float32: logits within what rounding may change, and the greedy id wherever the two best
// logits lie further apart than that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/status_macros.h"
#include "constants.h"
#include "golden_reference.h"
#include "paged_model.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

// Those whose head sizes and widths the CUDA kernels have (docs/cuda.md).
constexpr const char* kExpertModels[] = {"mixtral_head64",         "qwen2_moe_ranks",
                                         "qwen3_moe_renormalized", "olmoe_head64",
                                         "granitemoe_head64",      "gpt_oss_mxfp4"};

constexpr const char* kModels[] = {
    "gpt2_gelu",         "gpt2_head64",     "llama_head64",  "llama_head80",
    "llama_head96",      "llama_head128",   "llama_head256", "mistral_head64",
    "qwen2_head64",      "qwen3_head128",   "phi3_head64",   "starcoder2_head64",
    "llama_yarn_mscale", "gpt_neox_head64", "opt_head64",    "falcon_head64",
    "gemma_head64",      "gemma2_head64",   "gemma3_head64", "olmo2_head64",
    "granite_head64",    "smollm3_head64",  "gptj_head64",   "gpt_neox_parallel64"};

// Which experts each token of a text has: as one table of operators chose them, for another that is
// given them. With experts given, logits follow weights without a jump. Operators are plain
// functions, so those below find the routes here.
struct TextRoutes {
  ops::OpTable inner;                                  // whose `route` is replaced
  std::vector<std::vector<std::vector<int>>> experts;  // [layers with experts][tokens], ascending
  size_t layer = 0;                                    // of the next call
  size_t first_token = 0;                              // of this step
};

TextRoutes& TheRoutes() {
  static TextRoutes routes;
  return routes;
}

// On the CPU, of a text in one step.
Status RecordRoutes(const ops::RouteParams& p, Stream& stream) {
  TextRoutes& routes = TheRoutes();
  RETURN_IF_ERROR(routes.inner.route(p, stream));
  auto& of_layer = routes.experts.emplace_back(static_cast<size_t>(p.logits.shape[0]));
  const auto* begins = p.routes.begins.as<const int32_t>();
  const auto* tokens = p.routes.tokens.as<const int32_t>();
  for (int e = 0; e + 1 < p.routes.begins.num_elements(); ++e)
    for (int32_t place = begins[e]; place < begins[e + 1]; ++place)
      of_layer[static_cast<size_t>(tokens[place])].push_back(e);
  return Status::Ok();
}

// The weight of an expert beside those that its token has (ops/experts.h), by the token's logits.
float WeightOf(const ops::RouteParams& p, std::span<const float> logits,
               std::span<const int> chosen, int expert) {
  const auto num_routed = static_cast<int>(logits.size()) - (p.num_shared > 0 ? 1 : 0);
  if (expert >= num_routed) return 1 / (1 + std::exp(-logits.back()));
  std::vector<int> all(static_cast<size_t>(num_routed));
  std::iota(all.begin(), all.end(), 0);
  float sum = 0;
  for (const int e : p.renormalizes ? chosen : std::span<const int>(all))
    if (e < num_routed)
      sum += std::exp(logits[static_cast<size_t>(e)] - logits[static_cast<size_t>(expert)]);
  return 1 / sum;
}

// On a GPU, of the tokens that follow those of the steps before.
Status GiveRoutes(const ops::RouteParams& p, Stream& stream) {
  TextRoutes& routes = TheRoutes();
  const auto num_tokens = static_cast<size_t>(p.logits.shape[0]);
  const auto width = static_cast<size_t>(p.logits.shape[1]);
  std::vector<float> logits(num_tokens * width);
  RETURN_IF_ERROR(stream.Synchronize());
  Device& device = stream.device();
  RETURN_IF_ERROR(device.Copy(logits.data(), p.logits.data, p.logits.num_bytes()));
  const auto num_experts = static_cast<size_t>(p.routes.begins.num_elements()) - 1;
  std::vector<int32_t> begins, tokens, places(static_cast<size_t>(p.chosen.num_elements()));
  std::vector<float> weights;
  for (size_t e = 0; e < num_experts; ++e) {
    begins.push_back(static_cast<int32_t>(tokens.size()));
    for (size_t t = 0; t < num_tokens; ++t) {
      const std::vector<int>& chosen = routes.experts[routes.layer][routes.first_token + t];
      const auto it = std::ranges::find(chosen, static_cast<int>(e));
      if (it == chosen.end()) continue;
      places[t * chosen.size() + static_cast<size_t>(it - chosen.begin())] =
          static_cast<int32_t>(tokens.size());
      tokens.push_back(static_cast<int32_t>(t));
      weights.push_back(
          WeightOf(p, std::span(logits).subspan(t * width, width), chosen, static_cast<int>(e)));
    }
  }
  begins.push_back(static_cast<int32_t>(tokens.size()));
  const ops::ExpertRoutes& to = p.routes;
  RETURN_IF_ERROR(device.Copy(to.begins.data, begins.data(), to.begins.num_bytes()));
  RETURN_IF_ERROR(device.Copy(to.tokens.data, tokens.data(), to.tokens.num_bytes()));
  RETURN_IF_ERROR(device.Copy(to.weights.data, weights.data(), to.weights.num_bytes()));
  RETURN_IF_ERROR(device.Copy(to.places.data, places.data(), to.places.num_bytes()));
  if (++routes.layer == routes.experts.size()) {
    routes.layer = 0;
    routes.first_token += num_tokens;
  }
  return Status::Ok();
}

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

  // Every kept position but for `max_jumps`: all logits within `bound`, and the same best id unless
  // the two best ones are nearer to each other than both may move.
  void ExpectNear(const Expected& expected, const std::vector<std::vector<float>>& logits,
                  const std::string& where, size_t max_jumps) {
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
      if (worst > bound && jumps < max_jumps) {
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
    return engine_->config.experts_per_token < engine_->config.num_experts
               ? std::max<size_t>(n / 8, 2)
               : 0;
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
      const size_t max_jumps = MostJumps(expected.positions.size());
      ExpectNear(expected, AllLogits(table, ids, whole), table.name + ", whole", max_jumps);
      ExpectNear(expected, AllLogits(table, ids, chunks), table.name + ", chunks", max_jumps);
    }
  }
}

class CudaExpertsGoldenTest : public CudaGoldenTest {};

// With the experts that float32 chooses, whose logits golden_test holds to transformers, nothing
// jumps.
TEST_P(CudaExpertsGoldenTest, LogitsOfTheReferencesExpertsStayNearTransformersEverywhere) {
  const std::unique_ptr<Device> cpu = Device::Cpu(2);
  const auto reference = builder::Open(dir_, *cpu, {.dtype = DType::kF32, .limits = std::nullopt});
  ASSERT_TRUE(reference.ok()) << reference.status().ToString();
  const ops::OpTable inner = ops::CpuOpTables(model::KernelShape((*reference)->config)).back();
  ops::OpTable records = inner;
  records.route = RecordRoutes;
  ops::OpTable gives = tables_.front();
  gives.route = GiveRoutes;
  for (const Expected& expected : expected_) {
    const auto ids = expected.Whole();
    const size_t whole[] = {ids.size()};
    const size_t chunks[] = {1, 7, 64, 3, 16, 130};
    TheRoutes() = {.inner = inner, .experts = {}};
    PagedModel of_reference(*reference, records, *cpu, 1, kBlockSize);
    golden::AllLogits(of_reference, ids, whole);
    for (const std::span<const size_t> pieces :
         {std::span<const size_t>(whole), std::span<const size_t>(chunks)}) {
      TheRoutes().layer = TheRoutes().first_token = 0;
      ExpectNear(expected, AllLogits(gives, ids, pieces),
                 "experts given, " + std::to_string(pieces.size()) + " sizes of pieces",
                 /*max_jumps=*/0);
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

const auto kDTypes = testing::Values(DType::kBF16, DType::kF16);

std::string NameOf(const testing::TestParamInfo<CudaGoldenTest::ParamType>& info) {
  return std::string(std::get<0>(info.param)) + "_" +
         std::string(DTypeName(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaGoldenTest,
                         testing::Combine(testing::ValuesIn(kModels), kDTypes), NameOf);
INSTANTIATE_TEST_SUITE_P(Experts, CudaGoldenTest,
                         testing::Combine(testing::ValuesIn(kExpertModels), kDTypes), NameOf);
INSTANTIATE_TEST_SUITE_P(Experts, CudaExpertsGoldenTest,
                         testing::Combine(testing::ValuesIn(kExpertModels), kDTypes), NameOf);

}  // namespace
}  // namespace inflight::golden
