// SPDX-License-Identifier: Apache-2.0
// Prompt tables through the executor of a GPU against transformers with inputs_embeds
// (make_prompt_table_golden.py): logits within what rounding may change, and answers among others
// that are those alone.
#include <gtest/gtest.h>

#include "constants.h"
#include "golden_reference.h"
#include "prompt_table_cases.h"
#include "run_requests.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

struct GpuTableAnswer : CollectingSink {
  void OnResponse(Response response) override {
    for (const LogitsRows* rows : {&response.context_logits, &response.generation_logits})
      logits.insert(logits.end(), rows->values.begin(), rows->values.end());
    CollectingSink::OnResponse(std::move(response));
  }
  std::vector<float> logits;
};

class CudaPromptTableTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { NEED_TEST_GPU(); }

  std::unique_ptr<Executor> Start(const PromptTableCase& c, ExecutorOptions options) {
    Device& device = *TestGpu().value();
    const auto engine =
        builder::Open(DataDir() / c.model, device, {.dtype = GetParam(), .limits = std::nullopt});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    options.max_kv_tokens = 4096;
    options.max_batch_size = 8;
    return MakeExecutor(*engine, device, options);
  }
};

TEST_P(CudaPromptTableTest, LogitsStayNearTransformers) {
  int num_cases = 0;
  for (const PromptTableCase& c : ReadPromptTableCases()) {
    // Without a bound of rounding.
    if (c.noise_gain == 0 && GetParam() != DType::kF32) continue;
    ++num_cases;
    const float bound = RoundingBound(GetParam(), {.noise_gain = c.noise_gain});
    for (const int chunk : {0, 16}) {
      ExecutorOptions options;
      if (chunk > 0) options.max_num_tokens = chunk;
      const auto executor = Start(c, options);
      Request request = c.GreedyRequest();
      // The golden ids as a prompt: near ties may be decided otherwise in half precision.
      request.input_ids.insert(request.input_ids.end(), c.greedy.begin(), c.greedy.end() - 1);
      request.max_tokens = 1;
      request.output.return_context_logits = true;
      const auto answer = RunAll<GpuTableAnswer>(*executor, {request}).front();
      ASSERT_TRUE(answer->last.status.ok()) << answer->last.status.ToString();
      const size_t vocab_size = c.logits[0].size();
      // As WorstLogit expects them: the row of the prompt's last token twice.
      const auto end =
          answer->logits.begin() + static_cast<std::ptrdiff_t>(c.prompt.size() * vocab_size);
      std::vector<float> logits(answer->logits.begin(), end);
      logits.insert(logits.end(), end - static_cast<std::ptrdiff_t>(vocab_size),
                    answer->logits.end());
      EXPECT_LE(WorstLogit(c, logits), bound) << c.model << " in chunks of " << chunk;
    }
  }
  EXPECT_GE(num_cases, 2);
}

TEST_P(CudaPromptTableTest, TablesOfOneBatchDoNotMix) {
  for (const PromptTableCase& c : ReadPromptTableCases()) {
    if (c.noise_gain == 0 && GetParam() != DType::kF32) continue;
    auto negated = std::make_shared<PromptTable>(*c.table);
    for (float& value : negated->values) value = -value;
    const auto executor = Start(c, {.deterministic = true});
    std::vector<Request> requests;
    for (int i = 0; i < 12; ++i) {
      Request request = c.GreedyRequest();
      request.streaming = i % 2 == 0;
      request.output.return_log_probs = true;
      if (i % 3 == 1) request.prompt_table = negated;
      if (i % 3 == 2) request.prompt_table = nullptr;
      if (i % 3 == 2)
        for (TokenId& id : request.input_ids) id %= executor->limits().vocab_size;
      requests.push_back(std::move(request));
    }
    const auto together = RunAll<GpuTableAnswer>(*executor, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto alone = RunAll<GpuTableAnswer>(*executor, {requests[i]}).front();
      EXPECT_EQ(together[i]->ids, alone->ids) << i;
      EXPECT_EQ(together[i]->log_probs, alone->log_probs) << i;
    }
    EXPECT_NE(together[0]->ids, together[1]->ids);
    EXPECT_NE(together[0]->ids, together[2]->ids);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaPromptTableTest,
                         testing::Values(DType::kBF16, DType::kF16, DType::kF32),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::golden
