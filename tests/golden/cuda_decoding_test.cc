// SPDX-License-Identifier: Apache-2.0
// What requests ask for beside a token after another, through the executor on a GPU: logits, the
// likeliest tokens, beam search and the host pool. Judged by transformers and, where rounding leads
// elsewhere, by the same tokens' logits in float32 on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>

#include "beam_cases.h"
#include "builder/builder.h"
#include "constants.h"
#include "decoding/sampler.h"
#include "golden_reference.h"
#include "paged_model.h"
#include "run_requests.h"
#include "tensor/test_gpu.h"
#include "worse.h"

namespace inflight::golden {
namespace {

constexpr char kModel[] = "llama_head64";  // whose heads the kernels have, and beams were searched
// Between log-probs that the device and the CPU make of the same logits.
constexpr double kSameLogits = 1e-4;

struct Answer : CollectingSink {
  void OnResponse(Response response) override {
    const auto append = [](const auto& from, auto* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    append(response.context_logits.values, &context);
    append(response.generation_logits.values, &generation);
    append(response.top_log_probs, &top);
    CollectingSink::OnResponse(std::move(response));
  }

  std::vector<float> context, generation;
  std::vector<TopLogProb> top;
};

double LogProb(std::span<const float> logits, TokenId id) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  return static_cast<double>(logits[static_cast<size_t>(id)]) - max - std::log(sum);
}

class CudaDecodingTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    device_ = TestGpu().value().get();
    expected_ = ReadReference(DataDir() / kModel);
    engine_ = Open(*device_, GetParam());
    vocab_size_ = static_cast<size_t>(engine_->config.vocab_size);
    for (const Expected& expected : expected_)
      bound_ = std::max(bound_, RoundingBound(GetParam(), expected));
  }

  static std::shared_ptr<const model::Engine> Open(Device& device, DType dtype) {
    auto engine = builder::Open(DataDir() / kModel, device, {.dtype = dtype, .limits = {}});
    CHECK(engine.ok());
    return *std::move(engine);
  }

  void Start(ExecutorOptions options) {
    executor_.reset();
    options.block_size = kBlockSize;
    executor_ = MakeExecutor(engine_, *device_, options);
  }

  // Of all requests at once.
  std::vector<std::shared_ptr<Answer>> Run(const std::vector<Request>& requests) {
    const auto answers = RunAll<Answer>(*executor_, requests);
    for (const auto& answer : answers)
      EXPECT_TRUE(answer->last.status.ok()) << answer->last.status.ToString();
    return answers;
  }
  std::shared_ptr<Answer> Run(const Request& request) { return Run(std::vector{request}).front(); }

  // By the CPU in float32: row t decides what follows tokens [0, t].
  std::vector<std::vector<float>> CpuLogits(std::span<const TokenId> prompt,
                                            std::span<const TokenId> ids) {
    if (cpu_engine_ == nullptr) cpu_engine_ = Open(*cpu_, DType::kF32);
    const auto ops = ops::FindOps(*cpu_, model::KernelShape(cpu_engine_->config));
    CHECK(ops.ok());
    PagedModel model(cpu_engine_, *ops, *cpu_, /*num_sequences=*/1, kBlockSize);
    std::vector<TokenId> tokens(prompt.begin(), prompt.end());
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    const std::array pieces = {Piece{.sequence = 0, .tokens = tokens}};
    return model.Step(pieces, /*last_only=*/false);
  }

  std::span<const float> Row(const std::vector<float>& rows, size_t i) const {
    return std::span(rows).subspan(i * vocab_size_, vocab_size_);
  }

  // Rows of positions [first, ...) beside those that transformers has; how many were compared.
  int ExpectNear(const Expected& expected, size_t first, const std::vector<float>& rows,
                 size_t num_rows) const {
    int num_compared = 0;
    for (size_t i = 0; i < expected.positions.size(); ++i) {
      const auto position = static_cast<size_t>(expected.positions[i]);
      if (position < first || position >= first + num_rows) continue;
      ++num_compared;
      const auto got = Row(rows, position - first);
      float worst = 0;
      for (size_t v = 0; v < vocab_size_; ++v) {
        const float difference = std::abs(got[v] - expected.logits[i * vocab_size_ + v]);
        worst = Worse(worst, difference);
      }
      EXPECT_LE(worst, RoundingBound(GetParam(), expected)) << "position " << position;
    }
    return num_compared;
  }

  void ExpectTruthful(const BeamCase& c, const Beam& beam);
  ExecutorStats ExpectBeams(const ExecutorOptions& options);

  Device* device_ = nullptr;
  std::unique_ptr<Device> cpu_ = Device::Cpu(2);
  std::shared_ptr<const model::Engine> engine_, cpu_engine_;
  size_t vocab_size_ = 0;
  float bound_ = 0;  // of a logit
  std::vector<Expected> expected_;
  std::unique_ptr<Executor> executor_;
};

Request MakeRequest(const std::vector<TokenId>& prompt, int max_tokens) {
  Request request;
  request.input_ids = prompt;
  request.max_tokens = max_tokens;
  return request;
}

TEST_P(CudaDecodingTest, LogitsOfPromptsInChunksStayNearTransformers) {
  Start({.max_batch_size = 4, .max_num_tokens = 32, .max_kv_tokens = 4096});
  std::vector<Request> requests;
  for (const Expected& expected : expected_) {
    requests.push_back(MakeRequest(expected.Whole(), 1));
    requests.back().output.return_context_logits = true;
  }
  const auto answers = Run(requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    const size_t num_rows = requests[i].input_ids.size();
    ASSERT_EQ(answers[i]->context.size(), num_rows * vocab_size_);
    EXPECT_TRUE(answers[i]->generation.empty());
    EXPECT_EQ(ExpectNear(expected_[i], 0, answers[i]->context, num_rows),
              static_cast<int>(expected_[i].positions.size()));
  }
  requests[0].output.return_context_logits = false;
  EXPECT_TRUE(Run(requests[0])->context.empty());
}

// Streamed and not, one alone and several at once, beside a prompt's.
TEST_P(CudaDecodingTest, LogitsOfGeneratedTokensAreThoseOfTheirTokens) {
  Start({.max_batch_size = 8, .max_num_tokens = 64, .max_kv_tokens = 4096});
  std::vector<Request> requests;
  for (size_t i = 0; i < 5; ++i) {
    requests.push_back(MakeRequest(expected_[i % expected_.size()].prompt, 30));
    Request& request = requests.back();
    request.output = {.return_log_probs = true,
                      .return_context_logits = i % 2 == 0,
                      .return_generation_logits = i != 3};
    request.streaming = i > 1;
  }
  for (const bool at_once : {false, true}) {
    const auto answers = at_once ? Run(requests) : std::vector{Run(requests[0]), Run(requests[1])};
    int num_compared = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      const Answer& answer = *answers[i];
      const Expected& expected = expected_[i % expected_.size()];
      const size_t num_tokens = answer.ids.size();
      ASSERT_EQ(num_tokens, 30U);
      EXPECT_EQ(answer.context.size(), i % 2 == 0 ? expected.prompt.size() * vocab_size_ : 0);
      ASSERT_EQ(answer.generation.size(), i == 3 ? 0 : num_tokens * vocab_size_);
      if (i == 3) continue;
      const auto cpu = CpuLogits(expected.prompt, answer.ids);
      size_t num_same = 0;  // tokens that transformers has too
      while (num_same < num_tokens && answer.ids[num_same] == expected.greedy[num_same]) ++num_same;
      for (size_t t = 0; t < num_tokens; ++t) {
        const auto row = Row(answer.generation, t);
        EXPECT_EQ(std::ranges::max_element(row) - row.begin(), answer.ids[t]) << "token " << t;
        EXPECT_NEAR(LogProb(row, answer.ids[t]), answer.log_probs[t], kSameLogits) << t;
        const auto& same = cpu[expected.prompt.size() - 1 + t];
        float worst = 0;
        for (size_t v = 0; v < vocab_size_; ++v) worst = Worse(worst, std::abs(row[v] - same[v]));
        EXPECT_LE(worst, bound_) << "token " << t;
      }
      num_compared += ExpectNear(expected, expected.prompt.size() - 1, answer.generation, num_same);
    }
    EXPECT_GT(num_compared, 0);
  }
}

// Tokens are drawn on the device and likeliest ones found on the host, both from the logits that
// are returned.
TEST_P(CudaDecodingTest, DrawsAndTheLikeliestTokensAreThoseOfTheLogits) {
  constexpr size_t kCount = 4;
  Start({.max_batch_size = 8, .max_num_tokens = 64, .max_kv_tokens = 4096});
  const auto bias = std::make_shared<std::vector<float>>(vocab_size_);
  for (size_t id = 0; id < vocab_size_; ++id) (*bias)[id] = id % 2 == 0 ? 1.0F : -1.0F;
  std::vector<Request> requests;
  for (size_t i = 0; i < 8; ++i) {
    requests.push_back(MakeRequest(expected_[i % expected_.size()].prompt, 25));
    Request& request = requests.back();
    request.output = {.return_log_probs = true, .return_generation_logits = true};
    request.output.num_top_log_probs = i == 5 ? 0 : static_cast<int>(kCount);
    request.streaming = i % 2 == 1;
    SamplingParams& sampling = request.sampling;
    if (i == 0) continue;  // greedy
    sampling = {.temperature = 0.8F, .seed = 50 + i};
    if (i % 3 == 0) sampling.top_k = 12;
    if (i % 3 == 1) sampling.top_p = 0.9F;
    if (i % 2 == 0) sampling.repetition_penalty = 1.4F;
    if (i == 3) sampling.presence_penalty = 0.5F;
    if (i == 5) sampling.no_repeat_ngram_size = 2;
    if (i == 6) request.embedding_bias = bias;
    if (i == 7) request.bad_words = {{5}, {9}, {1, 2}};
  }
  const auto answers = Run(requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    const Answer& answer = *answers[i];
    const Request& request = requests[i];
    const size_t num_tokens = answer.ids.size();
    ASSERT_EQ(answer.generation.size(), num_tokens * vocab_size_);
    const bool has_top = request.output.num_top_log_probs > 0;
    ASSERT_EQ(answer.top.size(), has_top ? num_tokens * kCount : 0);
    decoding::Sampler sampler(1, static_cast<int>(vocab_size_), 1);
    sampler.Setup(0,
                  decoding::MakeSamplingRule(request, request.sampling.seed.value_or(0),
                                             static_cast<int>(request.input_ids.size())),
                  request.input_ids, 512);
    std::vector<TokenId> tokens = request.input_ids;
    for (size_t t = 0; t < num_tokens; ++t) {
      const auto row = Row(answer.generation, t);
      std::vector<float> logits(row.begin(), row.end());
      const auto drawn = sampler.Sample(0, tokens, logits.data());
      ASSERT_EQ(drawn.id, answer.ids[t]) << "token " << t;
      EXPECT_NEAR(drawn.log_prob, answer.log_probs[t], kSameLogits) << "token " << t;
      sampler.Append(0, drawn.id);
      tokens.push_back(drawn.id);
      if (!has_top) continue;
      std::vector<float> sorted = logits;
      std::sort(sorted.rbegin(), sorted.rend());
      for (size_t k = 0; k < kCount; ++k) {
        const TopLogProb& top = answer.top[t * kCount + k];
        EXPECT_EQ(logits[static_cast<size_t>(top.id)], sorted[k]) << "token " << t;
        EXPECT_NEAR(LogProb(logits, top.id), top.log_prob, kSameLogits) << "token " << t;
      }
    }
  }
}

// Its log-probs are those of its rows of logits, and these the model's.
void CudaDecodingTest::ExpectTruthful(const BeamCase& c, const Beam& beam) {
  const size_t num_tokens = beam.output_ids.size();
  ASSERT_EQ(beam.output_log_probs.size(), num_tokens);
  ASSERT_EQ(beam.generation_logits.values.size(), num_tokens * vocab_size_);
  ASSERT_EQ(beam.top_log_probs.size(), num_tokens);
  const auto cpu = CpuLogits(c.request.input_ids, beam.output_ids);
  double sum = 0;
  for (size_t t = 0; t < num_tokens; ++t) {
    const auto row = Row(beam.generation_logits.values, t);
    const double log_prob = LogProb(row, beam.output_ids[t]);
    EXPECT_NEAR(log_prob, beam.output_log_probs[t], kSameLogits) << "token " << t;
    sum += beam.output_log_probs[t];
    const auto best = std::ranges::max_element(row) - row.begin();
    EXPECT_EQ(beam.top_log_probs[t].id, best) << "token " << t;
    const auto& same = cpu[c.request.input_ids.size() - 1 + t];
    float worst = 0;
    for (size_t v = 0; v < vocab_size_; ++v) worst = Worse(worst, std::abs(row[v] - same[v]));
    EXPECT_LE(worst, bound_) << "token " << t;
  }
  if (beam.finish_reason == FinishReason::kEndId) {
    EXPECT_LT(beam.cum_log_prob, sum) << "the end's own is in the sum alone";
  } else {
    EXPECT_NEAR(beam.cum_log_prob, sum, kSameLogits * static_cast<double>(num_tokens));
  }
  const auto len =
      static_cast<float>(num_tokens) + (beam.finish_reason == FinishReason::kEndId ? 1.0F : 0.0F);
  EXPECT_NEAR(beam.score, beam.cum_log_prob / len, 1e-5);
}

// All cases at once, with greedy and sampled requests between. Rounding may choose between beams
// that are nearly as good: what is found then is nearly as good, too.
ExecutorStats CudaDecodingTest::ExpectBeams(const ExecutorOptions& options) {
  Start(options);
  const std::vector<BeamCase> cases = ReadBeamCases(kModel);
  EXPECT_GE(cases.size(), 30U);
  std::vector<Request> requests;
  for (const BeamCase& c : cases) {
    requests.push_back(c.request);
    requests.back().output.return_generation_logits = true;
    requests.back().output.num_top_log_probs = 1;
  }
  for (int i = 0; i < 12; ++i) {
    requests.push_back(MakeRequest(expected_[0].prompt, 40));
    if (i % 2 == 1) requests.back().sampling = {.temperature = 0.9F, .top_k = 20, .seed = 5};
  }
  const auto answers = Run(requests);
  int num_equal = 0;
  int num_beams = 0;
  int num_near = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const BeamCase& c = cases[i];
    const std::vector<Beam>& beams = answers[i]->last.beams;
    if (beams.size() != c.sequences.size()) {
      ADD_FAILURE() << beams.size() << " beams";
      continue;
    }
    std::set<std::vector<TokenId>> found;
    for (size_t b = 0; b < beams.size(); ++b) {
      SCOPED_TRACE("beam " + std::to_string(b));
      ExpectTruthful(c, beams[b]);
      EXPECT_TRUE(b == 0 || beams[b].score <= beams[b - 1].score);
      const bool has_end = beams[b].finish_reason == FinishReason::kEndId;
      EXPECT_EQ(has_end, std::ssize(beams[b].output_ids) < c.request.max_tokens);
      EXPECT_TRUE(found.insert(beams[b].output_ids).second) << "found twice";
      ++num_beams;
      num_near += std::abs(beams[b].score - c.scores[b]) <= 2 * bound_ ? 1 : 0;
    }
    num_equal += found == std::set(c.sequences.begin(), c.sequences.end()) ? 1 : 0;
  }
  std::printf("%d of %zu searches found what transformers did; %d of %d scores are near\n",
              num_equal, cases.size(), num_near, num_beams);
  EXPECT_GE(num_near, num_beams * 9 / 10);
  if (GetParam() == DType::kF16) {
    EXPECT_GE(num_equal, std::ssize(cases) / 2);
  } else if (GetParam() == DType::kF32) {
    EXPECT_EQ(num_equal, std::ssize(cases));
  }
  for (size_t i = cases.size(); i < answers.size(); ++i)
    EXPECT_EQ(answers[i]->ids.size(), 40U) << "a neighbour";
  executor_->Shutdown(0);
  return executor_->stats();
}

TEST_P(CudaDecodingTest, BeamsAreTruthfulAndAsGoodAsThoseOfTransformers) {
  const ExecutorStats stats = ExpectBeams({.max_batch_size = 48, .max_kv_tokens = 16384});
  EXPECT_EQ(stats.num_pauses, 0);
  EXPECT_EQ(stats.kv_blocks_used, 0);
}

TEST_P(CudaDecodingTest, PausedSearchesBeginAgain) {
  const ExecutorStats stats = ExpectBeams({.max_batch_size = 48,
                                           .max_kv_tokens = 1024,
                                           .scheduler_policy = SchedulerPolicy::kMaxUtilization});
  EXPECT_GT(stats.num_pauses, 0);
  EXPECT_EQ(stats.kv_blocks_used, 0);
}

TEST_P(CudaDecodingTest, PenaltiesAndBansActOnEachBeam) {
  Start({.max_batch_size = 8, .max_kv_tokens = 4096});
  Request request = MakeRequest(expected_[0].prompt, 20);
  request.sampling = {.beam_width = 4, .repetition_penalty = 1.3F, .no_repeat_ngram_size = 1};
  const auto answer = Run(request);
  ASSERT_EQ(answer->last.beams.size(), 4U);
  for (const Beam& beam : answer->last.beams) {
    const std::set<TokenId> distinct(beam.output_ids.begin(), beam.output_ids.end());
    EXPECT_EQ(distinct.size(), beam.output_ids.size()) << "a token came twice";
    for (const TokenId id : request.input_ids) EXPECT_FALSE(distinct.contains(id));
  }
}

// Searches with every rule that changes logits, and one with more candidates than a device finds.
std::vector<Request> SearchesWithRules(const std::vector<TokenId>& prompt, size_t vocab_size) {
  const auto bias = std::make_shared<std::vector<float>>(vocab_size);
  for (size_t id = 0; id < vocab_size; ++id) (*bias)[id] = id % 3 == 0 ? 1.5F : -0.5F;
  std::vector<Request> requests(9);
  for (Request& request : requests) {
    request = MakeRequest(prompt, 24);
    request.sampling.beam_width = 4;
    request.sampling.length_penalty = 1.0F;
    request.output.return_log_probs = true;
  }
  requests[0].sampling.repetition_penalty = 1.3F;
  requests[0].sampling.temperature = 0.7F;
  requests[1].sampling.presence_penalty = 0.8F;
  requests[1].sampling.frequency_penalty = 0.4F;
  requests[1].sampling.prompt_ignore_length = 4;
  requests[2].sampling.no_repeat_ngram_size = 2;
  requests[3].bad_words = {{5}, {9, 11}, {1, 2}, {prompt.back(), 3}};
  requests[4].end_ids = {3, 7, 11, 12};
  requests[4].sampling.min_tokens = 6;
  requests[4].sampling.early_stopping = 0;
  requests[5].embedding_bias = bias;
  requests[6].sampling.beam_search_diversity_rate = 0.7F;
  requests[6].stop_words = {{4, 5}, {6}};
  requests[7].sampling = {.beam_width = 3, .repetition_penalty = 1.1F, .no_repeat_ngram_size = 3};
  requests[7].embedding_bias = bias;
  for (TokenId id = 0; id < 70; ++id) requests[8].end_ids.push_back(id);
  return requests;
}

// One search at a time, so that the logits are the same when the host reads whole rows, which it
// does where they are returned.
TEST_P(CudaDecodingTest, WhatTheDeviceChoosesTheHostChooses) {
  Start({.max_batch_size = 16, .max_kv_tokens = 4096, .enable_prefix_reuse = false});
  std::vector<Request> requests = SearchesWithRules(expected_[0].prompt, vocab_size_);
  for (const BeamCase& c : ReadBeamCases(kModel)) requests.push_back(c.request);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    const std::vector<Beam> device = Run(requests[i])->last.beams;
    requests[i].output.return_generation_logits = true;
    const std::vector<Beam> host = Run(requests[i])->last.beams;
    ASSERT_EQ(device.size(), host.size());
    for (size_t b = 0; b < device.size(); ++b) {
      SCOPED_TRACE("beam " + std::to_string(b));
      ASSERT_EQ(device[b].output_ids, host[b].output_ids);
      EXPECT_EQ(device[b].finish_reason, host[b].finish_reason);
      EXPECT_NEAR(device[b].score, host[b].score, 1e-5);
      EXPECT_NEAR(device[b].cum_log_prob, host[b].cum_log_prob, 1e-5);
      ASSERT_EQ(device[b].output_log_probs.size(), host[b].output_log_probs.size());
      for (size_t t = 0; t < device[b].output_log_probs.size(); ++t)
        EXPECT_NEAR(device[b].output_log_probs[t], host[b].output_log_probs[t], 1e-5);
      EXPECT_TRUE(device[b].generation_logits.values.empty());
    }
  }
}

// Prompts in turn, of which the cache holds one or two.
TEST_P(CudaDecodingTest, BlocksOfTheHostPoolHoldWhatTheyHeld) {
  const auto request_of = [&](TokenId first) {
    Request request = MakeRequest(expected_[0].Whole(), 6);
    request.input_ids.resize(75);
    request.input_ids[0] = first;
    request.output = {.return_log_probs = true, .return_generation_logits = true};
    return request;
  };
  const auto ask_twice = [&](TokenId first) {  // the second time with the device's own blocks
    Run(request_of(first));
    return Run(request_of(first));
  };
  Start({.max_kv_tokens = 4096});
  std::vector<std::shared_ptr<Answer>> expected;
  for (TokenId first = 0; first < 5; ++first) expected.push_back(ask_twice(first));
  Start({.max_kv_tokens = 10 * kBlockSize, .kv_cache_host_bytes = 64 << 20});
  const ExecutorStats before = executor_->stats();
  EXPECT_GT(before.kv_host_blocks_max, 100);
  EXPECT_GE(before.pinned_memory_bytes, int64_t{60} << 20);
  for (int round = 0; round < 3; ++round) {
    for (TokenId first = 0; first < 5; ++first) {
      const auto answer = Run(request_of(first));
      EXPECT_EQ(answer->last.num_cached_tokens, round == 0 ? 0 : 64);
      if (round == 0) continue;
      SCOPED_TRACE("round " + std::to_string(round) + ", prompt " + std::to_string(first));
      const Answer& same = *expected[static_cast<size_t>(first)];
      EXPECT_EQ(same.last.num_cached_tokens, 64);
      EXPECT_EQ(answer->ids, same.ids);
      EXPECT_EQ(answer->log_probs, same.log_probs);
      EXPECT_EQ(answer->generation, same.generation);
    }
  }
  const ExecutorStats stats = executor_->stats();
  EXPECT_GT(stats.kv_blocks_onboarded, 20);
  EXPECT_GE(stats.kv_blocks_offloaded, stats.kv_blocks_onboarded);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaDecodingTest,
                         testing::Values(DType::kBF16, DType::kF16, DType::kF32),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::golden
