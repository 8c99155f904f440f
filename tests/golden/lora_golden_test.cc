// SPDX-License-Identifier: Apache-2.0
// Adapters through the executor against weights that have them merged, in float64
// (make_lora_golden.py): each alone, all of a model in one batch, and in requests that follow each
// other out of one prefix cache.
#include <gtest/gtest.h>

#include "builder/builder.h"
#include "constants.h"
#include "golden_reference.h"
#include "lora_cases.h"
#include "run_requests.h"

namespace inflight::golden {
namespace {

class LoraGoldenTest : public testing::Test {
 protected:
  std::unique_ptr<Executor> Start(const std::string& model, const std::string& ops = {},
                                  ExecutorOptions options = {}) {
    auto engine = builder::Open(DataDir() / model, *device_, {.dtype = DType::kF32, .limits = {}});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    options.block_size = kBlockSize;
    options.max_batch_size = 16;
    if (!options.max_kv_tokens) options.max_kv_tokens = 4096;
    return MakeExecutor(*engine, *device_, options, ops);
  }

  static void ExpectAnswer(const LoraCase& c, const LogitsSink& answer) {
    SCOPED_TRACE(c.Name());
    ASSERT_TRUE(answer.last.status.ok()) << answer.last.status.ToString();
    EXPECT_EQ(answer.ids, c.greedy);
    EXPECT_LE(WorstLogit(c, answer.logits), kTolerance);
  }

  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

std::vector<LoraCase> CasesOf(const std::string& model) {
  std::vector<LoraCase> cases = ReadLoraCases();
  std::erase_if(cases, [&](const LoraCase& c) { return c.model != model; });
  return cases;
}

TEST_F(LoraGoldenTest, EachAdapterEqualsMergedWeights) {
  for (const std::string ops : {"", "reference"})
    for (const LoraCase& c : ReadLoraCases()) {
      if (ops == "reference" && c.model == "llama_head64") continue;  // takes long
      const auto executor = Start(c.model, ops);
      ExpectAnswer(c, *RunAll<LogitsSink>(*executor, {RequestOf(c, 7)}).front());
    }
}

// Eight adapters of several ranks and modules, and requests without, in the same steps.
TEST_F(LoraGoldenTest, AMixedBatchEqualsMergedWeights) {
  for (const std::string model : {"llama_gqa2", "gpt2_tied", "llama_bias"}) {
    const std::vector<LoraCase> cases = CasesOf(model);
    std::vector<Request> requests;
    for (size_t i = 0; i < cases.size(); ++i) requests.push_back(RequestOf(cases[i], i));
    const auto executor = Start(model);
    const auto answers = RunAll<LogitsSink>(*executor, requests);
    for (size_t i = 0; i < cases.size(); ++i) ExpectAnswer(cases[i], *answers[i]);
  }
}

// A request without an adapter has the same bits beside others that have some.
TEST_F(LoraGoldenTest, ARequestWithoutAnAdapterHasTheBitsThatItHasAlone) {
  for (const std::string model : {"llama_gqa2", "llama_bias"}) {
    const std::vector<LoraCase> cases = CasesOf(model);
    const LoraCase& plain = cases.front();
    ASSERT_TRUE(plain.adapter.empty());
    const auto alone = RunAll<LogitsSink>(*Start(model), {RequestOf(plain, 0)}).front();
    std::vector<Request> requests;
    for (size_t i = 0; i < cases.size(); ++i) requests.push_back(RequestOf(cases[i], i));
    const auto together = RunAll<LogitsSink>(*Start(model), requests).front();
    EXPECT_EQ(alone->logits, together->logits) << model;
  }
}

// The biases of training stand in place of the model's: of a model that has none, in place of what?
TEST_F(LoraGoldenTest, BiasesThatTheModelHasNotAreRefused) {
  const auto executor = Start("llama_bias");
  LoraCase c = CasesOf("llama_bias")[1];
  auto tensors = *ReadAdapter(c);
  ASSERT_FALSE(tensors.biases.empty());
  Request request = RequestOf(c, 1);
  tensors.biases[0].module = 2;  // k, of another length than q
  request.lora->tensors = std::make_shared<const LoraTensors>(tensors);
  EXPECT_EQ(executor->Enqueue(request, std::make_shared<LogitsSink>()).status().message(),
            "lora_config: bias 0: got 64 values, attn_k has 32 outputs");
  tensors.biases[0].module = 1;
  tensors.biases.resize(1);
  const auto other = Start("llama_mha");
  request.input_ids = {1, 2};
  request.lora->tensors = std::make_shared<const LoraTensors>(tensors);
  const Status status = other->Enqueue(request, std::make_shared<LogitsSink>()).status();
  EXPECT_EQ(status.message(),
            "lora_config: bias 0: replaces the model's bias of attn_q, which has none");
}

// One prompt, one adapter after the other, and again: blocks are found by who has the same adapter
// alone, and weights that come again under a known id are ignored.
TEST_F(LoraGoldenTest, PrefixReuseDoesNotMixAdapters) {
  const std::vector<LoraCase> cases = CasesOf("llama_gqa2");
  const auto executor = Start("llama_gqa2");
  for (int round = 0; round < 2; ++round)
    for (size_t i = 0; i < cases.size(); ++i) {
      Request request = RequestOf(cases[i], i);
      request.input_ids = cases[0].prompt;
      request.output = {.return_log_probs = true};
      if (request.lora && round == 1) request.lora->tensors = nullptr;
      const auto shared = RunAll<LogitsSink>(*executor, {request}).front();
      EXPECT_EQ(shared->last.num_cached_tokens, round == 0 ? 0 : kBlockSize) << cases[i].Name();
      request.lora = RequestOf(cases[i], i).lora;
      const auto alone = RunAll<LogitsSink>(*Start("llama_gqa2"), {request}).front();
      EXPECT_EQ(shared->ids, alone->ids) << cases[i].Name();
      EXPECT_EQ(shared->log_probs, alone->log_probs) << cases[i].Name();
    }
}

TEST_F(LoraGoldenTest, BeamsAndStreamsHaveTheAdapterToo) {
  const LoraCase c = CasesOf("llama_gqa2")[1];
  const auto executor = Start("llama_gqa2");
  Request request = RequestOf(c, 1);
  request.output = {.return_log_probs = true};
  request.streaming = true;
  const auto stream = RunAll<LogitsSink>(*executor, {request}).front();
  EXPECT_EQ(stream->ids, c.greedy);
  EXPECT_GT(stream->num_responses, 10);
  request.streaming = false;
  request.sampling.beam_width = 3;
  const auto beams = RunAll<LogitsSink>(*executor, {request}).front();
  ASSERT_EQ(beams->last.beams.size(), 3U);
  // The tokens of a beam as a prompt with the adapter: the sum of their log-probs is the beam's.
  for (const Beam& beam : beams->last.beams) {
    Request forced = RequestOf(c, 1);
    forced.input_ids.insert(forced.input_ids.end(), beam.output_ids.begin(), beam.output_ids.end());
    forced.max_tokens = 1;
    const auto rows = RunAll<LogitsSink>(*executor, {forced}).front();
    const double sum =
        LogProbOf(beam.output_ids, c.prompt.size(), rows->logits, c.logits[0].size());
    EXPECT_NEAR(beam.cum_log_prob, sum, 1e-3);
  }
}

TEST_F(LoraGoldenTest, APausedRequestResumesWithItsAdapter) {
  const std::vector<LoraCase> cases = CasesOf("llama_gqa2");
  const auto executor = [&] {
    ExecutorOptions options;
    options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
    options.max_kv_tokens = 512;  // of 16 sequences of up to 61
    return Start("llama_gqa2", {}, options);
  }();
  std::vector<Request> requests;
  for (int round = 0; round < 8; ++round)
    for (size_t i = 0; i < cases.size(); ++i) {
      requests.push_back(RequestOf(cases[i], i));
      requests.back().output = {};
    }
  const auto answers = RunAll<LogitsSink>(*executor, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(answers[i]->ids, cases[i % cases.size()].greedy) << i;
  EXPECT_GT(executor->stats().num_pauses, 0);
}

}  // namespace
}  // namespace inflight::golden
