// SPDX-License-Identifier: Apache-2.0
// The demo model with integer weights, with all layers of a step in one kernel (--ops cuda/layers)
// beside an operator at a time: what it was trained to answer is answered alike. Roundings between
// operators differ, so that an answer may leave the other's where two tokens are as likely.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "builder/builder.h"
#include "inflight/tokenizer.h"
#include "run_requests.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

constexpr int kNumTexts = 40;

class CudaLayersTest : public testing::TestWithParam<model::QuantAlgo> {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    const std::filesystem::path dir = INFLIGHT_DEMO_MODEL;
    auto engine = builder::Open(
        dir, device(), {.dtype = DType::kBF16, .quant_algo = GetParam(), .limits = std::nullopt});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *engine;
    const auto tokenizer = Tokenizer::Load(dir);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    std::ifstream file(dir / "heldout.jsonl");
    for (std::string line; std::getline(file, line) && requests_.size() < kNumTexts;) {
      Request& request = requests_.emplace_back();
      request.input_ids =
          (*tokenizer)
              ->Encode(nlohmann::json::parse(line).at("text_input").get<std::string>(),
                       /*add_special_tokens=*/true)
              .value();
      request.max_tokens = 24;
    }
    ASSERT_EQ(requests_.size(), kNumTexts);
  }

  static Device& device() { return *TestGpu().value(); }

  // One, two and three at a time, by graphs of as many rows.
  std::vector<std::vector<TokenId>> Answers(const std::string& ops) {
    std::vector<std::vector<TokenId>> answers;
    const auto executor =
        MakeExecutor(engine_, device(), {.max_batch_size = 4, .max_kv_tokens = 4096}, ops);
    size_t at_once = 1;
    for (size_t i = 0; i < requests_.size(); i += at_once) {
      at_once = std::min(i % 3 + 1, requests_.size() - i);
      const std::vector some(requests_.begin() + static_cast<ptrdiff_t>(i),
                             requests_.begin() + static_cast<ptrdiff_t>(i + at_once));
      for (const auto& sink : RunAll(*executor, some)) {
        EXPECT_TRUE(sink->last.status.ok()) << sink->last.status.ToString();
        answers.push_back(sink->ids);
      }
    }
    return answers;
  }

  std::shared_ptr<const model::Engine> engine_;
  std::vector<Request> requests_;
};

TEST_P(CudaLayersTest, AnswersAreThoseOfOneOperatorAtATime) {
  const auto expected = Answers("cuda");
  const auto answers = Answers("cuda/layers");
  int num_equal = 0;
  for (size_t i = 0; i < answers.size(); ++i) num_equal += answers[i] == expected[i] ? 1 : 0;
  EXPECT_GE(num_equal, kNumTexts * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(Forms, CudaLayersTest,
                         testing::Values(model::QuantAlgo::kW8A16, model::QuantAlgo::kW4A16),
                         [](const auto& info) { return std::string(QuantAlgoName(info.param)); });

}  // namespace
}  // namespace inflight::golden
