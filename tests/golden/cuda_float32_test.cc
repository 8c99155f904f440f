// SPDX-License-Identifier: Apache-2.0
// The tiny models of make_golden.py on a GPU in float32, held to transformers as golden_test holds
// the CPU: logits within kTolerance and greedy ids that are equal, whatever steps are made of.
#include <gtest/gtest.h>

#include "builder/hf_config.h"
#include "constants.h"
#include "float32_checks.h"
#include "run_requests.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

using EnginePtr = std::shared_ptr<const model::Engine>;

// Those of the models whose heads and widths the kernels have (docs/cuda.md).
std::vector<std::string> Float32Models() {
  std::vector<std::string> names = ModelNames();
  std::erase_if(names, [](const std::string& name) {
    const auto hf = builder::ReadHfConfig(DataDir() / name);
    CHECK(hf.ok());
    const model::ModelConfig& config = hf->config;
    return config.head_dim % 8 != 0 || config.hidden_size % 4 != 0 ||
           config.intermediate_size % 4 != 0;
  });
  return names;
}

class CudaFloat32Test : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    expected_ = ReadReference(dir());
    model::EngineLimits limits = model::ServedAsItIs();
    limits.max_seq_len = MaxSeqLenOf(dir());
    // What is packed is widened: transformers' numbers are of plain weights.
    auto engine = builder::Open(
        dir(), device(),
        {.dtype = DType::kF32, .quant_algo = model::QuantAlgo::kNone, .limits = limits});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
    ASSERT_EQ(engine_->config.dtype, DType::kF32);
    tables_ = ops::CudaOpTables(model::KernelShape(engine_->config), device());
    ASSERT_FALSE(tables_.empty());
  }

  static Device& device() { return *TestGpu().value(); }
  static std::filesystem::path dir() { return DataDir() / GetParam(); }

  std::vector<std::vector<float>> LogitsIn(const Expected& expected,
                                           std::span<const size_t> chunks) {
    PagedModel model(engine_, tables_.front(), device(), 1, kBlockSize);
    return AllLogits(model, expected.Whole(), chunks);
  }

  std::vector<Expected> expected_;
  EnginePtr engine_;
  std::vector<ops::OpTable> tables_;
};

TEST_P(CudaFloat32Test, LogitsEqualTransformersInOneStepAndInChunks) {
  for (const Expected& expected : expected_) {
    const size_t whole[] = {expected.Whole().size()};
    const size_t chunks[] = {1, 7, 64, 3, 16, 130};
    const auto logits = LogitsIn(expected, whole);
    const Difference d = Compare(expected, logits);
    EXPECT_LE(d.worst, kTolerance) << Describe(d);
    EXPECT_EQ(LogitsIn(expected, chunks), logits);
  }
}

TEST_P(CudaFloat32Test, GreedyIdsEqualTransformersOver256Steps) {
  for (const ops::OpTable& table : tables_) {
    const auto ids = Greedy(engine_, table, device(), expected_);
    for (size_t s = 0; s < ids.size(); ++s) {
      EXPECT_EQ(ids[s].size(), 256U);
      EXPECT_EQ(ids[s], expected_[s].greedy) << table.name << ", prompt " << s;
    }
  }
}

// Through the executor: prompts in chunks, steps that are graphs, and a second time from blocks
// that are there already.
class CudaFloat32RequestsTest : public CudaFloat32Test {};

TEST_P(CudaFloat32RequestsTest, GreedyAnswersEqualTransformersWithReuseAndInChunks) {
  const auto executor = MakeExecutor(
      engine_, device(),
      {.max_batch_size = 4, .max_num_tokens = 32, .max_kv_tokens = 8192, .block_size = kBlockSize});
  std::vector<Request> requests;
  for (const Expected& expected : expected_) {
    Request& request = requests.emplace_back();
    request.input_ids = expected.prompt;
    request.max_tokens = static_cast<int>(expected.greedy.size());
  }
  for (const bool is_again : {false, true}) {
    const auto answers = RunAll(*executor, requests);
    int num_cached = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_TRUE(answers[i]->last.status.ok()) << answers[i]->last.status.ToString();
      EXPECT_EQ(answers[i]->ids, expected_[i].greedy) << "prompt " << i;
      num_cached += answers[i]->last.num_cached_tokens;
    }
    if (is_again && engine_->config.sliding_window == 0) {
      EXPECT_GE(num_cached, kBlockSize);
    }
  }
}

// What is drafted out of texts, or by the model itself, changes no answer.
class CudaFloat32DraftsTest : public CudaFloat32Test {};

TEST_P(CudaFloat32DraftsTest, GreedyAnswersEqualTransformersWithDrafts) {
  std::vector<Request> requests;
  for (const Expected& expected : expected_) {
    Request& request = requests.emplace_back();
    request.input_ids = expected.prompt;
    request.max_tokens = static_cast<int>(expected.greedy.size());
  }
  for (const DraftSource source : {DraftSource::kNgram, DraftSource::kModel}) {
    const bool is_model = source == DraftSource::kModel;
    const auto executor = MakeExecutor(
        engine_, device(),
        {.max_batch_size = 4, .max_kv_tokens = 8192, .block_size = kBlockSize, .drafts = source},
        /*force_ops=*/{}, {.model = is_model ? engine_ : nullptr});
    const auto answers = RunAll(*executor, requests);
    for (size_t i = 0; i < answers.size(); ++i)
      EXPECT_EQ(answers[i]->ids, expected_[i].greedy) << "prompt " << i;
    if (is_model) {
      EXPECT_GT(executor->stats().drafts_accepted, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaFloat32DraftsTest,
                         testing::Values("gpt2_untied", "llama_gqa8"),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Models, CudaFloat32Test, testing::ValuesIn(Float32Models()),
                         [](const auto& info) { return info.param; });
// One of each family.
INSTANTIATE_TEST_SUITE_P(Models, CudaFloat32RequestsTest,
                         testing::Values("falcon_grouped", "gemma2_caps", "gemma3_rope",
                                         "gemma_old", "gpt2_untied", "gpt_neox_parallel",
                                         "gpt_oss_sinks", "gptj_rotary", "granite_factors",
                                         "granitemoe_factors", "llama_gqa8", "mistral_window",
                                         "mixtral_window", "olmo2_wide_norms", "olmoe_wide_norms",
                                         "opt_tied", "phi3_part", "qwen2_tied", "qwen2_moe_shared",
                                         "qwen3_gqa2", "qwen3_moe_mixed", "smollm3_layers",
                                         "starcoder2_window"),
                         [](const auto& info) { return info.param; });
// INFLIGHT_GOLDEN_MODELS may name none of them.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaFloat32Test);

}  // namespace
}  // namespace inflight::golden
