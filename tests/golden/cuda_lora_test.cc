// SPDX-License-Identifier: Apache-2.0
// Adapters on a GPU in bfloat16 and float16 against weights that have them merged, in float64
// (make_lora_golden.py): each alone and eight of them, and none, in the same steps.
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "builder/builder.h"
#include "constants.h"
#include "golden_reference.h"
#include "lora_cases.h"
#include "run_requests.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

using Answer = std::shared_ptr<LogitsSink>;

class CudaLoraTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { NEED_TEST_GPU(); }

  static std::unique_ptr<Executor> Start(const std::string& model, ExecutorOptions options = {}) {
    Device& device = *TestGpu().value();
    auto engine =
        builder::Open(DataDir() / model, device, {.dtype = GetParam(), .limits = std::nullopt});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    options.block_size = kBlockSize;
    options.max_batch_size = 16;
    options.max_kv_tokens = 8192;
    options.deterministic = true;
    return MakeExecutor(*engine, device, options);
  }

  static std::vector<LoraCase> CasesOf(const std::string& model) {
    std::vector<LoraCase> cases = ReadLoraCases();
    std::erase_if(cases, [&](const LoraCase& c) { return c.model != model; });
    return cases;
  }

  // RoundingBound's k is of weights and activations, each rounded: noise of variance u^2 2 / 3. A
  // and B are rounded too, which is noise of at most that much again on what they add, and so is
  // the product before it is added to, u^2 / 3: (5 / 3) / (2 / 3) = 1.58^2.
  static void ExpectNear(const LoraCase& c, const LogitsSink& answer) {
    ASSERT_TRUE(answer.last.status.ok()) << answer.last.status.ToString();
    const float bound = 1.58F * RoundingBound(GetParam(), {.noise_gain = c.noise_gain});
    EXPECT_LE(WorstLogit(c, LogitsOfWhole(c, answer.logits)), bound) << c.Name();
  }

  // With what shows rounding: log-probs, of `num_tokens` tokens.
  static Request ShortOf(const LoraCase& c, uint64_t id, int num_tokens) {
    Request request = RequestOf(c, id);
    request.output = {.return_log_probs = true};
    request.max_tokens = num_tokens;
    return request;
  }

  static void ExpectSame(const Answer& one, const Answer& other, const std::string& name) {
    EXPECT_TRUE(one->last.status.ok()) << name << one->last.status.ToString();
    EXPECT_EQ(one->ids, other->ids) << name;
    EXPECT_EQ(one->log_probs, other->log_probs) << name;
    EXPECT_EQ(one->logits, other->logits) << name;
  }
};

TEST_P(CudaLoraTest, LogitsStayNearMergedWeights) {
  for (const std::string model : {"llama_head64", "gpt2_head64"}) {
    const auto executor = Start(model);
    const std::vector<LoraCase> cases = CasesOf(model);
    ASSERT_GE(cases.size(), model == "llama_head64" ? 10U : 4U);
    std::vector<Request> requests;
    for (size_t i = 0; i < cases.size(); ++i) {
      requests.push_back(WholeOf(cases[i], i));
      ExpectNear(cases[i], *RunAll<LogitsSink>(*executor, {requests[i]}).front());
    }
    const auto together = RunAll<LogitsSink>(*executor, requests);
    for (size_t i = 0; i < cases.size(); ++i) ExpectNear(cases[i], *together[i]);
  }
}

// Decode steps two deep, whose graphs are replayed with one mixture of adapters after the other.
TEST_P(CudaLoraTest, AMixedBatchSaysWhatEachSaysAlone) {
  for (const std::string model : {"llama_head64", "gpt2_head64"}) {
    const auto executor = Start(model);
    const std::vector<LoraCase> cases = CasesOf(model);
    std::vector<Request> requests;
    for (size_t i = 0; i < 24; ++i) {
      const size_t c = i * 7 % cases.size();
      requests.push_back(ShortOf(cases[c], c, 10 + static_cast<int>(i)));
      requests.back().streaming = i % 2 == 0;
      if (i % 5 == 0) requests.back().sampling.top_k = 20;
    }
    std::vector<Answer> alone;
    for (const Request& request : requests)
      alone.push_back(RunAll<LogitsSink>(*executor, {request}).front());
    const auto together = RunAll<LogitsSink>(*executor, requests);
    for (size_t i = 0; i < requests.size(); ++i)
      ExpectSame(together[i], alone[i], model + " " + std::to_string(i));
  }
}

// Of a model that activates what adapters add to, too.
TEST_P(CudaLoraTest, ARequestWithoutAnAdapterHasTheBitsThatItHasWithoutAny) {
  for (const std::string model : {"llama_head64", "gpt2_head64"}) {
    const std::vector<LoraCase> cases = CasesOf(model);
    ASSERT_TRUE(cases[0].adapter.empty());
    const auto alone = RunAll<LogitsSink>(*Start(model), {RequestOf(cases[0], 0)}).front();
    std::vector<Request> requests;
    for (size_t i = 0; i < cases.size(); ++i) requests.push_back(RequestOf(cases[i], i));
    const auto together = RunAll<LogitsSink>(*Start(model), requests);
    ExpectSame(together.front(), alone, model);
    EXPECT_NE(together[1]->ids, alone->ids);
  }
}

TEST_P(CudaLoraTest, BeamsHaveTheAdapterToo) {
  const LoraCase c = CasesOf("llama_head64")[1];
  const auto executor = Start("llama_head64");
  Request request = ShortOf(c, 1, 8);
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
    EXPECT_NEAR(beam.cum_log_prob, sum,
                8 * RoundingBound(GetParam(), {.noise_gain = c.noise_gain}));
  }
}

TEST_P(CudaLoraTest, PrefixReuseDoesNotMixAdapters) {
  const std::vector<LoraCase> cases = CasesOf("llama_head64");
  const auto executor = Start("llama_head64");
  ExecutorOptions options;
  options.enable_prefix_reuse = false;
  const auto without = Start("llama_head64", options);
  for (int round = 0; round < 2; ++round)
    for (size_t i = 0; i < cases.size(); ++i) {
      Request request = ShortOf(cases[i], i, 12);
      request.input_ids = cases[0].prompt;
      const auto alone = RunAll<LogitsSink>(*without, {request}).front();
      if (request.lora && round == 1) request.lora->tensors = nullptr;
      const auto shared = RunAll<LogitsSink>(*executor, {request}).front();
      EXPECT_EQ(shared->last.num_cached_tokens, round == 0 ? 0 : kBlockSize) << cases[i].Name();
      ExpectSame(shared, alone, cases[i].Name());
    }
}

// Those with biases are among the cases above.
TEST_P(CudaLoraTest, BiasesThatTheModelHasNotAreRefused) {
  const LoraCase c = CasesOf("llama_head64")[1];
  LoraTensors tensors = *ReadAdapter(c);
  constexpr int kQ = 1;
  constexpr size_t kQueries = 128;
  tensors.biases.push_back({.module = kQ, .replaces = true, .values = std::vector(kQueries, 1.0F)});
  Request request = RequestOf(c, 1);
  request.lora->tensors = std::make_shared<const LoraTensors>(std::move(tensors));
  const auto executor = Start("llama_head64");
  const Status status = executor->Enqueue(request, std::make_shared<LogitsSink>()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "lora_config: bias 0: replaces the model's bias of attn_q, which has none");
}

// More ids than there are places: adapters come while steps of others run, and old ones go. What
// clients brought is kept in host memory, or is not.
TEST_P(CudaLoraTest, AdaptersComeAndGoWhileOthersRun) {
  const std::vector<LoraCase> cases = CasesOf("llama_head64");
  for (const bool keeps_brought : {true, false}) {
    ExecutorOptions options;
    if (!keeps_brought) options.adapter_host_bytes = 0;
    const auto executor = Start("llama_head64", options);
    const size_t num_adapters = cases.size() - 1;
    std::vector<Answer> alone;
    std::vector<Request> bases;
    for (size_t i = 0; i < num_adapters; ++i) {
      bases.push_back(ShortOf(cases[i + 1], i, 12));
      alone.push_back(RunAll<LogitsSink>(*executor, {bases[i]}).front());
    }
    constexpr size_t kAtOnce = 150;
    for (uint64_t round = 1; round <= 3; ++round) {
      std::vector<Request> requests;
      for (size_t i = 0; i < kAtOnce; ++i) {
        requests.push_back(bases[(i + round) % num_adapters]);
        requests.back().lora->id = 1000 * round + i;
      }
      const auto answers = RunAll<LogitsSink>(*executor, requests);
      for (size_t i = 0; i < kAtOnce; ++i)
        ExpectSame(answers[i], alone[(i + round) % num_adapters], std::to_string(i));
    }
    bases[0].lora->tensors = nullptr;
    if (keeps_brought) {
      ExpectSame(RunAll<LogitsSink>(*executor, {bases[0]}).front(), alone[0], "made again");
      continue;
    }
    const auto gone = executor->Enqueue(bases[0], std::make_shared<LogitsSink>());
    EXPECT_EQ(gone.status().code(), StatusCode::kNotFound) << gone.status().ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaLoraTest,
                         testing::Values(DType::kBF16, DType::kF16, DType::kF32),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::golden
