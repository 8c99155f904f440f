// SPDX-License-Identifier: Apache-2.0
// Requests through the executor on a GPU: tiny models, judged by the CPU's logits.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "gpu_test.h"
#include "inflight/bad_texts.h"
#include "oracle.h"
#include "requests.h"
#include "tiny_models.h"

namespace inflight::gpu {
namespace {

using ::testing::ElementsAreArray;

class CudaBackendTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) engine_ = RandomEngine(TinyLlama(), TinyLimits(), device());
  }
  void TearDown() override { unsetenv("INFLIGHT_CUDA_GRAPHS"); }

  static ExecutorOptions Options() {
    ExecutorOptions options;
    options.block_size = 16;
    options.max_kv_tokens = 4096;
    return options;
  }

  std::shared_ptr<const model::Engine> engine_;
};

// Prompts of many lengths, around those of blocks.
std::vector<Request> ManyRequests(int count, int vocab_size, int max_tokens = 40) {
  constexpr int kLengths[] = {1, 2, 15, 16, 17, 33, 64, 100, 191, 7};
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i)
    requests.push_back(RandomRequest(kLengths[i % 10], max_tokens - i % 3, vocab_size,
                                     static_cast<unsigned>(100 + i)));
  return requests;
}

void ExpectGreedy(const std::vector<Request>& requests,
                  const std::vector<std::shared_ptr<CollectingSink>>& sinks, Oracle& oracle) {
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    ASSERT_TRUE(sinks[i]->last.status.ok()) << sinks[i]->last.status.ToString();
    EXPECT_EQ(sinks[i]->last.finish_reason, FinishReason::kLength);
    ASSERT_EQ(sinks[i]->ids.size(), static_cast<size_t>(requests[i].max_tokens));
    ASSERT_TRUE(oracle.IsGreedy(requests[i].input_ids, sinks[i]->ids, sinks[i]->log_probs));
    float sum = 0;
    for (const float log_prob : sinks[i]->log_probs) sum += log_prob;
    EXPECT_NEAR(sinks[i]->last.cum_log_prob, sum, 1e-2);
  }
  std::printf(
      "%d tokens, %d near ties, largest deficit of a logit %.3f, error of a log-prob %.3f\n",
      oracle.num_judged(), oracle.num_near_ties(), oracle.largest_deficit(),
      oracle.largest_error());
}

struct ModelCase {
  const char* name;
  model::ModelConfig (*config)();
};

class CudaModelTest : public GpuTest, public testing::WithParamInterface<ModelCase> {};

TEST_P(CudaModelTest, GreedyIdsAreTheCpus) {
  const model::ModelConfig config = GetParam().config();
  Oracle oracle(config);
  const auto engine = RandomEngine(config, TinyLimits(), device());
  ExecutorOptions options;
  options.block_size = 16;
  options.max_kv_tokens = 8192;
  const auto executor = MakeExecutor(engine, device(), options);
  const std::vector<Request> one = ManyRequests(1, config.vocab_size);
  ExpectGreedy(one, RunAll(*executor, one), oracle);
  const std::vector<Request> many = ManyRequests(20, config.vocab_size);
  ExpectGreedy(many, RunAll(*executor, many), oracle);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaModelTest,
                         testing::Values(ModelCase{"Llama", TinyLlama},
                                         ModelCase{"LlamaF16", TinyLlamaF16},
                                         ModelCase{"Gpt2", TinyGpt2}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(CudaBackendTest, WithoutGraphsIdsAreTheCpusToo) {
  setenv("INFLIGHT_CUDA_GRAPHS", "0", 1);
  Oracle oracle(TinyLlama());
  const auto executor = MakeExecutor(engine_, device(), Options());
  const std::vector<Request> requests = ManyRequests(7, 512);
  ExpectGreedy(requests, RunAll(*executor, requests), oracle);
}

TEST_F(CudaBackendTest, ChunkedPromptsYieldTheCpusIds) {
  Oracle oracle(TinyLlama());
  ExecutorOptions options = Options();
  options.max_num_tokens = 48;
  const auto executor = MakeExecutor(engine_, device(), options);
  std::vector<Request> requests = ManyRequests(8, 512);
  requests.push_back(RandomRequest(400, 20, 512, 1));
  ExpectGreedy(requests, RunAll(*executor, requests), oracle);
  EXPECT_GT(executor->stats().num_steps, 45) << "as many prompt tokens as fit in each";
}

// A pool smaller than the longest sequence: blocks that a window has left are others' at once.
TEST_F(CudaBackendTest, SlidingWindowsYieldTheCpusIds) {
  for (const std::vector<int>& windows : {std::vector<int>{40}, {64, 24}, {0, 24}}) {
    SCOPED_TRACE("window " + std::to_string(windows[0]));
    Oracle oracle(TinyLlama(), {.windows = windows, .num_sinks = 4});
    ExecutorOptions options = Options();
    options.attention_windows = windows;
    options.sink_tokens = 4;
    options.max_num_tokens = 48;
    if (windows[0] > 0) options.max_kv_tokens = 448;
    const auto executor = MakeExecutor(engine_, device(), options);
    ASSERT_EQ(executor->limits().max_seq_len, TinyLimits().max_seq_len);
    std::vector<Request> requests = ManyRequests(8, 512);
    requests.push_back(RandomRequest(400, 60, 512, 1));
    requests.push_back(RandomRequest(130, 300, 512, 2));
    ExpectGreedy(requests, RunAll(*executor, requests), oracle);
    ExpectGreedy(requests, RunAll(*executor, requests), oracle);  // over reused prefixes
    executor->Shutdown(0);
    EXPECT_EQ(executor->stats().kv_blocks_used, 0);
  }
}

TEST_F(CudaBackendTest, SharedPrefixesAreReused) {
  Oracle oracle(TinyLlama());
  const auto executor = MakeExecutor(engine_, device(), Options());
  std::vector<Request> requests = {RandomRequest(150, 10, 512, 1)};
  ExpectGreedy(requests, RunAll(*executor, requests), oracle);
  const auto again = RunAll(*executor, requests);
  ExpectGreedy(requests, again, oracle);
  EXPECT_GE(again[0]->last.num_cached_tokens, 128);
}

TEST_F(CudaBackendTest, EndIdsAndStopWordsEndRequestsWhileTheirNextStepIsInFlight) {
  const auto executor = MakeExecutor(engine_, device(), Options());
  std::vector<Request> requests = ManyRequests(12, 512);
  const auto full = RunAll(*executor, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const size_t at = 5 + i;
    if (i % 2 == 0)
      requests[i].end_ids = {full[i]->ids[at]};
    else
      requests[i].stop_words = {{full[i]->ids[at - 1], full[i]->ids[at]}};
  }
  const auto cut = RunAll(*executor, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    EXPECT_EQ(cut[i]->last.finish_reason,
              i % 2 == 0 ? FinishReason::kEndId : FinishReason::kStopWords);
    ASSERT_LE(cut[i]->ids.size(), 6 + i);
    const auto expected = std::span(full[i]->ids).first(cut[i]->ids.size());
    EXPECT_THAT(cut[i]->ids, ElementsAreArray(expected)) << "equal steps until the first ended";
  }
  executor->Shutdown(0);  // waits until no step holds a request
  EXPECT_EQ(executor->stats().kv_blocks_used, 0);
}

// A draw walks down the tokens in the order of their weights: where several are about as likely, an
// error of a logit moves it to another one. Rules that leave few tokens keep that rare.
TEST_F(CudaBackendTest, SampledIdsAreTheCpusDraws) {
  Oracle oracle(TinyLlama());
  const auto executor = MakeExecutor(engine_, device(), Options());
  std::vector<Request> requests = ManyRequests(12, 512);
  const auto bias = std::make_shared<std::vector<float>>(engine_->config.vocab_size);
  for (size_t id = 0; id < bias->size(); ++id) (*bias)[id] = id % 2 == 0 ? 0.5F : -0.5F;
  for (size_t i = 0; i < requests.size(); ++i) {
    SamplingParams& sampling = requests[i].sampling;
    sampling.seed = 1000 + i;
    sampling.temperature = 0.2F + 0.02F * static_cast<float>(i);
    if (i % 3 == 0) sampling.top_k = 5;
    if (i % 3 == 1) sampling.top_p = 0.8F;
    if (i % 3 == 2) sampling.min_p = 0.2F;
    if (i % 4 == 1) sampling.repetition_penalty = 1.3F;
    if (i % 4 == 2) sampling.frequency_penalty = 0.4F;
    if (i % 4 == 3) sampling.presence_penalty = 0.4F;
    if (i % 5 == 0) sampling.no_repeat_ngram_size = 2;
    if (i % 5 == 1) requests[i].bad_words = {{0}, {7, 8}, {30}, {31}, {32}};
    if (i % 5 == 2) requests[i].embedding_bias = bias;
    if (i % 5 == 3) sampling.top_p_decay = 0.9F;
  }
  const auto first = RunAll(*executor, requests);
  const auto second = RunAll(*executor, requests);
  int num_tokens = 0;
  int num_others = 0;
  int num_equal = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(first[i]->last.status.ok()) << first[i]->last.status.ToString();
    num_tokens += static_cast<int>(first[i]->ids.size());
    const int others = oracle.NumOtherDraws(requests[i], first[i]->ids);
    EXPECT_LE(others, 12) << "request " << i << " of " << first[i]->ids.size() << " tokens";
    num_others += others;
    num_equal += first[i]->ids == second[i]->ids ? 1 : 0;
  }
  std::printf("%d of %d draws are not the CPU's; %d of %zu requests gave the same twice\n",
              num_others, num_tokens, num_equal, requests.size());
  EXPECT_LE(num_others, num_tokens / 8);
}

// Two letters a token; a bad text begins in the middle of one that would come and ends in that of
// the next.
TEST_F(CudaBackendTest, BadTextsStandInNoAnswer) {
  std::vector<std::string> texts;
  for (int id = 0; id < 512; ++id)
    texts.push_back({static_cast<char>('a' + id % 26), static_cast<char>('a' + id / 26)});
  const auto tokens = MakeTokenTexts(texts);
  const auto texts_of = [&](const CollectingSink& sink) {
    EXPECT_TRUE(sink.last.status.ok()) << sink.last.status.ToString();
    std::vector<std::string> all;
    const auto add = [&](std::span<const TokenId> ids) {
      all.emplace_back();
      for (const TokenId id : ids) all.back() += tokens->Of(id);
    };
    if (sink.last.beams.empty()) add(sink.ids);
    for (const Beam& beam : sink.last.beams) add(beam.output_ids);
    return all;
  };
  const auto executor = MakeExecutor(engine_, device(), Options());
  std::vector<Request> requests = ManyRequests(12, 512);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 3 == 1) requests[i].sampling = {.temperature = 2.0F, .top_p = 0.9F, .seed = i};
    if (i % 3 == 2) requests[i].sampling.beam_width = 3;
    if (i % 2 == 1) requests[i].sampling.repetition_penalty = 1.1F;
  }
  const auto free = RunAll(*executor, requests);
  std::vector<std::string> bad;
  for (size_t i = 0; i < requests.size(); ++i) {
    bad.push_back(texts_of(*free[i]).at(0).substr(5, 2));
    requests[i].bad_texts = Must(MakeBadTexts(std::span(&bad.back(), 1), tokens));
  }
  const auto banned = RunAll(*executor, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<std::string> answers = texts_of(*banned[i]);
    ASSERT_EQ(answers.size(), i % 3 == 2 ? 3U : 1U) << "request " << i;
    for (const std::string& answer : answers) {
      EXPECT_EQ(answer.find(bad[i]), std::string::npos) << "request " << i << ": " << answer;
      EXPECT_GE(answer.size(), 2U * 38);
    }
  }
}

TEST_F(CudaBackendTest, AllMemoryIsGivenBack) {
  const auto free_bytes = [] {
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<int64_t>(free);
  };
  const auto run = [&] {
    const auto executor = MakeExecutor(engine_, device(), Options());
    RunAll(*executor, ManyRequests(5, 512));
    EXPECT_GT(executor->stats().gpu_memory_bytes, 0);
    EXPECT_GT(executor->stats().pinned_memory_bytes, 0);
  };
  const uint64_t ledger_before = device().ledger().free_bytes();
  run();  // loads code, which stays
  const int64_t before = free_bytes();
  for (int i = 0; i < 3; ++i) run();
  const int64_t after = free_bytes();
  std::printf("free before %lld, after %lld bytes\n", static_cast<long long>(before),
              static_cast<long long>(after));
  EXPECT_GE(after, before - (int64_t{4} << 20))
      << "what graphs leave behind in the runtime's pools";
  EXPECT_EQ(device().ledger().free_bytes(), ledger_before);
}

TEST_F(CudaBackendTest, TwoExecutorsShareTheGpu) {
  Oracle oracle(TinyLlama());
  std::unique_ptr<Executor> first;
  std::unique_ptr<Executor> second;
  for (int i = 0; i < 3; ++i) {  // loaded at the same time, too
    std::thread thread([&] { second = MakeExecutor(engine_, device(), Options()); });
    first = MakeExecutor(engine_, device(), Options());
    thread.join();
  }
  const std::vector<Request> requests = ManyRequests(10, 512);
  std::vector<std::shared_ptr<CollectingSink>> others;
  std::thread thread([&] { others = RunAll(*second, requests); });
  const auto sinks = RunAll(*first, requests);
  thread.join();
  ExpectGreedy(requests, sinks, oracle);
  ExpectGreedy(requests, others, oracle);
}

}  // namespace
}  // namespace inflight::gpu
