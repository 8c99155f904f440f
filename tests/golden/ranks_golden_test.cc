// SPDX-License-Identifier: Apache-2.0
// Models split over ranks: transformers' ids and logits for each number of ranks that a model
// divides by, and on the demo model every kind of request as on one rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "builder/builder.h"
#include "builder/sharding.h"
#include "constants.h"
#include "executor/ranked_backend.h"
#include "golden_reference.h"
#include "lora_cases.h"
#include "prompt_table_cases.h"
#include "run_requests.h"
#include "speculation_cases.h"
#include "window_cases.h"
#include "worse.h"

namespace inflight::golden {
namespace {

using artifact::RankMapping;
using Engines = std::vector<std::shared_ptr<const model::Engine>>;

constexpr RankMapping kOfEngines[] = {{2, 1}, {1, 2}, {2, 2}};
constexpr RankMapping kOfModels[] = {{4, 1}, {4, 2}};
// Ranks that hold different experts, all of them or each two, whole ones or halves.
constexpr RankMapping kOfExperts[] = {{2, 1, 2}, {4, 1, 4}, {4, 1, 2}, {2, 2, 2}};

Engines OpenRanks(const std::filesystem::path& dir, Device& device, const RankMapping& ranks,
                  const builder::OpenOptions& options = {.dtype = DType::kF32}) {
  builder::OpenOptions with = options;
  with.ranks = ranks;
  Engines engines;
  for (with.rank = 0; with.rank < ranks.num_ranks(); ++with.rank) {
    auto engine = builder::Open(dir, device, with);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    CHECK(engine.ok());
    engines.push_back(*std::move(engine));
  }
  return engines;
}

// Through an engine directory with a file for each rank.
Engines BuildRanks(const std::filesystem::path& dir, Device& device, const RankMapping& ranks,
                   std::optional<model::QuantAlgo> algo = {}, int max_seq_len = 0,
                   std::optional<int> group_size = {}) {
  const std::filesystem::path engine =
      std::filesystem::path(testing::TempDir()) / ("engine_of_ranks_" + std::to_string(getpid()));
  const Status built = builder::Build({.checkpoint_dir = dir,
                                       .output_dir = engine,
                                       .dtype = DType::kF32,
                                       .quant_algo = algo,
                                       .group_size = group_size,
                                       .limits = {.max_seq_len = max_seq_len},
                                       .tp_size = ranks.tp_size,
                                       .pp_size = ranks.pp_size,
                                       .moe_ep_size = ranks.moe_ep_size});
  EXPECT_TRUE(built.ok()) << built.ToString();
  CHECK(built.ok());
  Engines engines = OpenRanks(engine, device, ranks);
  std::filesystem::remove_all(engine);  // what is mapped stays
  return engines;
}

std::unique_ptr<Executor> MakeRanked(const Engines& engines, Device& device,
                                     const ExecutorOptions& options,
                                     const executor::DraftWeights& draft = {}) {
  auto backend = executor::CreateRankedBackend(engines, device, options, {}, draft);
  EXPECT_TRUE(backend.ok()) << backend.status().ToString();
  CHECK(backend.ok());
  auto executor = executor::CreateExecutor(std::move(backend->backend), options);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  CHECK(executor.ok());
  return std::move(*executor);
}

bool Divides(const std::filesystem::path& dir, const RankMapping& ranks) {
  const auto whole = builder::Describe(dir, {.dtype = DType::kF32});
  CHECK(whole.ok());
  model::ModelConfig config = whole->config;
  if (ranks.pp_size > 1) config.tied_embeddings = false;
  return builder::CheckSharding(config, {.ranks = ranks, .use_parallel_embedding = true}).ok();
}

std::string NameOf(const RankMapping& ranks) {
  return "tp " + std::to_string(ranks.tp_size) + ", pp " + std::to_string(ranks.pp_size) + ", ep " +
         std::to_string(ranks.moe_ep_size);
}

// What more than two ranks generate: they do nothing at a later step that they do not at an earlier
// one, and where there are fewer cores than ranks each step waits for the slowest.
constexpr int kFewTokens = 48;

class RanksGoldenTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, RanksGoldenTest, testing::ValuesIn(ModelNames()),
                         [](const auto& info) { return info.param; });

TEST_P(RanksGoldenTest, IdsAndLogitsAreThoseOfTransformers) {
  const auto device = Device::Cpu(2);
  const std::filesystem::path dir = DataDir() / GetParam();
  const std::vector<Expected> expected = ReadReference(dir);
  const auto whole = builder::Describe(dir, {.dtype = DType::kF32});
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  int num_tried = 0;
  builder::OpenOptions open = {.dtype = DType::kF32, .limits = model::ServedAsItIs()};
  open.limits->max_seq_len = MaxSeqLenOf(dir);
  const auto expect_reference = [&](const Engines& engines) {
    ++num_tried;
    ExecutorOptions options;
    options.block_size = kBlockSize;
    options.max_batch_size = 4;
    options.max_num_tokens = 24;  // prompts come in chunks
    const auto executor = MakeRanked(engines, *device, options);
    std::vector<Request> requests(expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto whole_text = static_cast<int>(expected[i].greedy.size());
      requests[i].input_ids = expected[i].prompt;
      requests[i].max_tokens = engines.size() > 2 ? kFewTokens : whole_text;
      requests[i].output.return_context_logits = true;
      requests[i].output.return_generation_logits = true;
    }
    const auto sinks = RunAll<LogitsSink>(*executor, requests);
    const auto vocab = static_cast<size_t>(whole->config.vocab_size);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto num_generated = static_cast<size_t>(requests[i].max_tokens);
      const size_t num_rows = expected[i].prompt.size() + num_generated;
      std::vector<TokenId> greedy = expected[i].greedy;
      greedy.resize(num_generated);
      EXPECT_EQ(sinks[i]->ids, greedy);
      ASSERT_EQ(sinks[i]->logits.size(), num_rows * vocab);
      float worst = 0;
      for (size_t p = 0; p < expected[i].positions.size(); ++p) {
        // Rows of the prompt, of which the last gives the first token, whose row comes again.
        auto row = static_cast<size_t>(expected[i].positions[p]);
        if (row >= expected[i].prompt.size()) ++row;
        if (row >= num_rows) continue;
        for (size_t v = 0; v < vocab; ++v)
          worst = Worse(worst, std::fabs(sinks[i]->logits[row * vocab + v] -
                                         expected[i].logits[p * vocab + v]));
      }
      EXPECT_LE(worst, kTolerance);
    }
  };
  for (const RankMapping& ranks : kOfModels) {
    SCOPED_TRACE(NameOf(ranks));
    if (Divides(dir, ranks)) expect_reference(OpenRanks(dir, *device, ranks, open));
  }
  for (const RankMapping& ranks : kOfEngines) {
    SCOPED_TRACE("an engine, " + NameOf(ranks));
    if (Divides(dir, ranks))
      expect_reference(BuildRanks(dir, *device, ranks, {}, open.limits->max_seq_len));
  }
  for (const RankMapping& ranks : kOfExperts) {
    if (!Divides(dir, ranks)) continue;
    SCOPED_TRACE(NameOf(ranks));
    expect_reference(OpenRanks(dir, *device, ranks, open));
    SCOPED_TRACE("an engine");
    expect_reference(BuildRanks(dir, *device, ranks, {}, open.limits->max_seq_len));
  }
  EXPECT_GT(num_tried, 0);
}

// Which numbers of ranks models take, of those whose experts two and four ranks divide.
TEST(RanksOfExpertsTest, ModelsOfEachFamilyAreDivided) {
  for (const char* model : {"mixtral_experts", "qwen2_moe_experts", "gpt_oss_experts",
                            "gpt_oss_sinks", "granitemoe_factors"})
    for (const RankMapping& ranks : kOfExperts)
      EXPECT_TRUE(ranks.pp_size > 1 || Divides(DataDir() / model, ranks))
          << model << ", " << NameOf(ranks);
  for (const RankMapping& ranks : {RankMapping{2, 1, 2}, {4, 1, 4}, {2, 2, 2}})
    EXPECT_TRUE(Divides(DataDir() / "qwen3_moe_experts", ranks)) << NameOf(ranks);
}

struct RanksDemoTest : testing::TestWithParam<RankMapping> {
  void SetUp() override {
    engines = OpenRanks(INFLIGHT_DEMO_MODEL, *device, GetParam());
    options.block_size = kBlockSize;
    options.max_batch_size = 8;
    options.max_kv_tokens = 4096;
    options.deterministic = true;
  }
  Sinks Run(const ExecutorOptions& with, const std::vector<Request>& requests) {
    const auto executor = MakeRanked(engines, *device, with, draft);
    Sinks sinks = RunAll<RowsSink>(*executor, requests);
    executor->Shutdown(0);
    stats = executor->stats();
    return sinks;
  }

  std::shared_ptr<Device> device = Device::Cpu(2);
  Engines engines;
  executor::DraftWeights draft;
  ExecutorOptions options;
  ExecutorStats stats;
};
INSTANTIATE_TEST_SUITE_P(Ranks, RanksDemoTest,
                         testing::Values(RankMapping{2, 1}, RankMapping{1, 2}, RankMapping{2, 2}),
                         [](const auto& info) {
                           return "tp" + std::to_string(info.param.tp_size) + "pp" +
                                  std::to_string(info.param.pp_size);
                         });

float WorstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  float worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = Worse(worst, a[i] == b[i] ? 0.0F : std::fabs(a[i] - b[i]));
  return worst;
}

// Each rank has the pools of the model, a stage also those that it has no layer of.
TEST_P(RanksDemoTest, LayersOfDifferentWindowsAnswerOutOfTheirPools) {
  const auto whole = builder::Open(INFLIGHT_DEMO_MODEL, *device, {.dtype = DType::kF32});
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  auto requests = RequestsOfAllKinds((*whole)->config.vocab_size);
  requests.push_back(requests[3]);
  requests.back().sampling = {.beam_width = 3};
  options.attention_windows = {0, 32, 24, 24};
  options.sink_tokens = 4;
  options.enable_chunked_prefill = false;  // all layers have one pool
  const Sinks expected = RunAll<RowsSink>(*MakeExecutor(*whole, *device, options), requests);
  options.enable_chunked_prefill = true;
  options.max_num_tokens = 48;
  const auto local = executor::CreateRankedBackend(engines, *device, options);
  ASSERT_TRUE(local.ok()) << local.status().ToString();
  for (const executor::MemoryPlan& plan : local->plans) {
    ASSERT_EQ(plan.num_groups(), 3);
    for (int g = 0; g < 3; ++g)
      EXPECT_EQ(plan.group(g).num_blocks, local->plans.front().group(g).num_blocks);
  }
  const Sinks actual = Run(options, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(actual[i]->last.status.ok()) << actual[i]->last.status.ToString();
    if (requests[i].sampling.num_return_sequences.value_or(1) == 1) {
      EXPECT_EQ(actual[i]->ids, expected[i]->ids) << i;
    }
  }
  for (size_t b = 0; b < actual.back()->last.beams.size(); ++b)
    EXPECT_EQ(actual.back()->last.beams[b].output_ids, expected.back()->last.beams[b].output_ids);
}

TEST_P(RanksDemoTest, EveryKindOfRequestIsAnsweredAsOnOneRank) {
  const auto whole = builder::Open(INFLIGHT_DEMO_MODEL, *device, {.dtype = DType::kF32});
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  auto requests = RequestsOfAllKinds((*whole)->config.vocab_size);
  const size_t num_others = requests.size();
  for (const size_t i : {size_t{0}, size_t{3}, size_t{5}}) {
    requests.push_back(requests[i]);
    requests.back().sampling = {.beam_width = 3};
  }
  const auto one = MakeExecutor(*whole, *device, options);
  const Sinks expected = RunAll<RowsSink>(*one, requests);
  const Sinks actual = Run(options, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    // Sequences of one request come in the order of steps, which may be others.
    if (requests[i].sampling.num_return_sequences.value_or(1) > 1) continue;
    EXPECT_EQ(actual[i]->ids, expected[i]->ids);
    EXPECT_EQ(actual[i]->last.finish_reason, expected[i]->last.finish_reason);
    EXPECT_LE(WorstDifference(actual[i]->log_probs, expected[i]->log_probs), kTolerance);
    EXPECT_LE(WorstDifference(actual[i]->logits, expected[i]->logits), kTolerance);
    EXPECT_LE(WorstDifference(actual[i]->context, expected[i]->context), kTolerance);
    if (i < num_others) continue;
    ASSERT_EQ(actual[i]->last.beams.size(), 3U);
    for (size_t b = 0; b < 3; ++b)
      EXPECT_EQ(actual[i]->last.beams[b].output_ids, expected[i]->last.beams[b].output_ids);
  }
}

// What a request is answered does not depend on what else is computed, on ranks as on one.
TEST_P(RanksDemoTest, DraftsChunksPausesAndReuseChangeNoBit) {
  const auto requests = RequestsOfAllKinds(engines[0]->config.vocab_size);
  const Sinks expected = Run(options, requests);
  const auto expect_same = [&] {
    const Sinks actual = Run(options, requests);
    ExpectAllEqual(requests, actual, expected);
  };
  options.max_num_tokens = 24;
  options.max_kv_tokens = 256;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  expect_same();
  EXPECT_GT(stats.num_pauses, 0);
  const auto whole = builder::Open(INFLIGHT_DEMO_MODEL, *device, {.dtype = DType::kF32});
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  for (const DraftSource source :
       {DraftSource::kNgram, DraftSource::kSuffix, DraftSource::kModel}) {
    options.drafts = source;
    draft.model = source == DraftSource::kModel ? *whole : nullptr;
    expect_same();
    EXPECT_GT(stats.drafts_accepted, 0);
  }
}

// A rank quantises the rows that it has, in a file and in memory alike: logits have the same bits.
TEST_P(RanksDemoTest, QuantisedEnginesComputeWhatTheModelDoes) {
  auto requests = RequestsOfAllKinds(engines[0]->config.vocab_size);
  std::erase_if(requests, [](const Request& request) {
    return !request.output.return_generation_logits && !request.output.return_context_logits &&
           request.output.num_top_log_probs == 0;
  });
  ASSERT_FALSE(requests.empty());
  using enum model::QuantAlgo;
  for (const auto algo : {kW8A16, kW4A16, kW4A16Gptq}) {
    SCOPED_TRACE(model::QuantAlgoName(algo));
    const auto group_size = HasGroups(algo) ? std::optional(64) : std::nullopt;
    engines = OpenRanks(INFLIGHT_DEMO_MODEL, *device, GetParam(),
                        {.dtype = DType::kF32, .quant_algo = algo, .group_size = group_size});
    const Sinks expected = Run(options, requests);
    engines = BuildRanks(INFLIGHT_DEMO_MODEL, *device, GetParam(), algo, 0, group_size);
    ExpectAllEqual(requests, Run(options, requests), expected);
  }
}

// Weights in act-order, of which ranks hold columns of every group: near transformers on the
// widened weights as one rank is, whose groups are the coarser ones that activations are rounded
// in.
class RanksOfOrdersTest : public testing::TestWithParam<const char*> {
 protected:
  static ExecutorOptions Options() {
    ExecutorOptions options;
    options.block_size = kBlockSize;
    options.max_num_tokens = 24;  // prompts come in chunks
    return options;
  }
  std::vector<float> LogitsOf(Executor& executor) const {
    Request request;
    request.input_ids = expected_.Whole();
    request.max_tokens = 1;
    request.output.return_context_logits = true;
    return RunAll<LogitsSink>(executor, {request})[0]->logits;
  }
  std::vector<float> LogitsOf(const Engines& engines) {
    return LogitsOf(*MakeRanked(engines, *device_, Options()));
  }
  // From what transformers gives.
  float WorstOf(const std::vector<float>& logits) const {
    const size_t vocab = expected_.logits.size() / expected_.positions.size();
    float worst = 0;
    for (size_t p = 0; p < expected_.positions.size(); ++p) {
      const auto row = static_cast<size_t>(expected_.positions[p]) * vocab;
      for (size_t v = 0; v < vocab; ++v)
        worst = Worse(worst, std::fabs(logits.at(row + v) - expected_.logits[p * vocab + v]));
    }
    return worst;
  }

  const std::filesystem::path dir_ =
      std::filesystem::path(INFLIGHT_QUANTIZED_GOLDEN_DATA) / GetParam();
  const Expected expected_ = ReadReference(dir_).at(0);
  std::unique_ptr<Device> device_ = Device::Cpu(2);
};
INSTANTIATE_TEST_SUITE_P(Models, RanksOfOrdersTest,
                         testing::Values("gptq_act_order", "packed_zeros_order"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(RanksOfOrdersTest, LogitsAreAsNearTransformersAsThoseOfOneRank) {
  const auto whole = builder::Open(dir_, *device_, {.dtype = DType::kF32});
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  const float of_one = WorstOf(LogitsOf(*MakeExecutor(*whole, *device_, Options())));
  EXPECT_GT(of_one, 0);
  constexpr RankMapping kTwo = {2, 1};
  const Engines engines = OpenRanks(dir_, *device_, kTwo);
  for (const auto& engine : engines) {
    const model::LayerWeights& layer = engine->weights.layers[0];
    EXPECT_TRUE(HasColumnOrder(engine->config));
    EXPECT_EQ(layer.proj.dtype, DType::kI4);
    EXPECT_EQ(layer.proj.x_features(), engine->config.intermediate_size);
    EXPECT_GT(layer.dense.in_features, layer.dense.x_features());
  }
  const std::vector<float> logits = LogitsOf(engines);
  EXPECT_LE(WorstOf(logits), 2 * of_one);
  EXPECT_EQ(LogitsOf(BuildRanks(dir_, *device_, kTwo)), logits) << "an engine";
  const Status refused = builder::Convert(
      {.model_dir = dir_,
       .output_dir = std::filesystem::path(testing::TempDir()) / "checkpoint_of_orders",
       .tp_size = 2});
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented) << refused.ToString();
}

class RanksLoraTest : public testing::TestWithParam<RankMapping> {
 protected:
  std::unique_ptr<Executor> Start(const std::string& model, ExecutorOptions options = {}) {
    options.block_size = kBlockSize;
    options.max_batch_size = 16;
    options.max_kv_tokens = 4096;
    return MakeRanked(OpenRanks(DataDir() / model, *device_, GetParam()), *device_, options);
  }
  static std::vector<LoraCase> CasesOf(const std::string& model) {
    std::vector<LoraCase> cases = ReadLoraCases();
    std::erase_if(cases, [&](const LoraCase& c) { return c.model != model; });
    return cases;
  }

  std::unique_ptr<Device> device_ = Device::Cpu(2);
};
INSTANTIATE_TEST_SUITE_P(Ranks, RanksLoraTest,
                         testing::Values(RankMapping{2, 1}, RankMapping{1, 2}, RankMapping{2, 2}),
                         [](const auto& info) { return "of" + std::to_string(info.index); });

// lora_golden_test.cc on ranks.
TEST_P(RanksLoraTest, AMixedBatchEqualsMergedWeights) {
  int num_biased = 0;
  for (const std::string model : {"llama_gqa2", "llama_bias", "llama_odd_width", "gpt2_tied"}) {
    SCOPED_TRACE(model);
    if (!Divides(DataDir() / model, GetParam())) continue;
    const std::vector<LoraCase> cases = CasesOf(model);
    for (const LoraCase& c : cases)
      num_biased += !c.adapter.empty() && !ReadAdapter(c)->biases.empty() ? 1 : 0;
    ASSERT_GT(cases.size(), 1U);
    std::vector<Request> requests;
    for (size_t i = 0; i < cases.size(); ++i) requests.push_back(RequestOf(cases[i], i));
    const auto executor = Start(model);
    for (int time = 0; time < 2; ++time) {
      const auto answers = RunAll<LogitsSink>(*executor, requests);
      for (size_t i = 0; i < cases.size(); ++i) {
        SCOPED_TRACE(cases[i].Name());
        EXPECT_EQ(answers[i]->ids, cases[i].greedy);
        EXPECT_LE(WorstLogit(cases[i], answers[i]->logits), kTolerance);
        if (requests[i].lora) requests[i].lora->tensors = nullptr;  // the id alone, then
      }
    }
  }
  EXPECT_GT(num_biased, 0);
}

// With room for few, each comes again under another serial, and the others forget it.
TEST_P(RanksLoraTest, AdaptersThatWereGivenUpComeAgain) {
  const std::vector<LoraCase> cases = CasesOf("llama_gqa2");
  ExecutorOptions options;
  options.adapter_host_bytes = uint64_t{128} << 10;
  const auto executor = Start("llama_gqa2", options);
  for (int time = 0; time < 3; ++time)
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(cases[i].Name());
      Request request = RequestOf(cases[i], i);
      if (request.lora) request.lora->is_own = true;  // so that adapter_stats has its id
      const auto answer = RunAll<LogitsSink>(*executor, {request}).front();
      ASSERT_TRUE(answer->last.status.ok()) << answer->last.status.ToString();
      EXPECT_EQ(answer->ids, cases[i].greedy);
    }
  EXPECT_LT(executor->adapter_stats().own_ids.size(), cases.size() - 1);
  EXPECT_TRUE(executor->healthy());
}

TEST_P(RanksLoraTest, WhatIsWrongOnAnyRankIsTheRequestsError) {
  const std::vector<LoraCase> cases = CasesOf("llama_gqa2");
  const auto executor = Start("llama_gqa2");
  Request request = RequestOf(cases.back(), 1);
  ASSERT_NE(request.lora, std::nullopt);
  for (const size_t row : {size_t{0}, request.lora->tensors->rows.size() - 1}) {
    LoraTensors bad = *request.lora->tensors;
    const size_t row_bytes = bad.weights.size() / bad.rows.size();
    for (size_t i = 0; i < 4; ++i) bad.weights[row * row_bytes + i] = std::byte{0xff};  // NaN
    request.lora->tensors = std::make_shared<const LoraTensors>(std::move(bad));
    const auto id = executor->Enqueue(request, std::make_shared<CollectingSink>());
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
    request = RequestOf(cases.back(), 1);
  }
  // Of the last layer, which another stage may have: one that is too short, one that is no number,
  // and one that replaces what the model has not.
  const auto whole = builder::Describe(DataDir() / "llama_gqa2", {.dtype = DType::kF32});
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  const int last = whole->config.num_layers - 1;
  const auto width = static_cast<size_t>(whole->config.num_heads * whole->config.head_dim);
  using Values = std::vector<float>;
  for (const LoraTensors::Bias& bias :
       {LoraTensors::Bias{.module = 1, .layer = last, .values = {1}},
        LoraTensors::Bias{.module = 1, .layer = last, .values = Values(width, NAN)},
        LoraTensors::Bias{
            .module = 1, .layer = last, .replaces = true, .values = Values(width, 1)}}) {
    LoraTensors biased = *RequestOf(cases.back(), 1).lora->tensors;
    biased.biases.push_back(bias);
    request.lora->tensors = std::make_shared<const LoraTensors>(std::move(biased));
    const auto id = executor->Enqueue(request, std::make_shared<CollectingSink>());
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument) << id.status().ToString();
  }
  EXPECT_EQ(RunAll(*executor, {RequestOf(cases.back(), 2)}).front()->ids, cases.back().greedy);
}

struct RanksCasesTest : RanksLoraTest {};
INSTANTIATE_TEST_SUITE_P(Ranks, RanksCasesTest,
                         testing::Values(RankMapping{2, 1}, RankMapping{1, 2}, RankMapping{2, 2}),
                         [](const auto& info) { return "of" + std::to_string(info.index); });

template <typename Case>
void ExpectAnswer(Executor& executor, Request request, const Case& c) {
  request.output = {.return_context_logits = true, .return_generation_logits = true};
  const auto answer = RunAll<LogitsSink>(executor, {request}).front();
  ASSERT_TRUE(answer->last.status.ok()) << answer->last.status.ToString();
  EXPECT_EQ(answer->ids, c.greedy);
  EXPECT_LE(WorstLogit(c, answer->logits), kTolerance);
}

// Which layers have which window is counted over all stages.
TEST_P(RanksCasesTest, WindowsEqualMaskedFullAttention) {
  int num_tried = 0;
  for (const WindowCase& c : ReadWindowCases()) {
    if (!Divides(DataDir() / c.model, GetParam())) continue;
    ++num_tried;
    SCOPED_TRACE(c.Name());
    Request request;
    request.input_ids = c.prompt;
    request.max_tokens = static_cast<int>(c.greedy.size());
    ExpectAnswer(*Start(c.model, c.options), request, c);
  }
  EXPECT_GT(num_tried, 0);
}

TEST_P(RanksCasesTest, PromptTablesEqualTransformers) {
  int num_tried = 0;
  for (const PromptTableCase& c : ReadPromptTableCases()) {
    if (!Divides(DataDir() / c.model, GetParam())) continue;
    ++num_tried;
    SCOPED_TRACE(c.model);
    ExpectAnswer(*Start(c.model), c.GreedyRequest(), c);
  }
  EXPECT_GT(num_tried, 0);
}

}  // namespace
}  // namespace inflight::golden
