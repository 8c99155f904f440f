// SPDX-License-Identifier: Apache-2.0
// Engines whose layers are streamed from pinned host memory: every output has the bits that it has
// where all weights are in the GPU's memory.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "builder/builder.h"
#include "executor/weight_plan.h"
#include "gpu_test.h"
#include "model/weight_stream.h"
#include "requests.h"
#include "tensor/copy_speed.h"
#include "tensor/element.h"
#include "tiny_models.h"

namespace inflight::gpu {
namespace {

using EnginePtr = std::shared_ptr<const model::Engine>;
using model::QuantAlgo;

constexpr int kNumLayers = 10;
constexpr uint64_t kSeed = 5;

model::ModelConfig DeepLlama(QuantAlgo algo = QuantAlgo::kNone) {
  model::ModelConfig config = TinyLlama();
  config.num_layers = kNumLayers;
  config.quant_algo = algo;
  return config;
}

std::vector<int> StreamedLayers(const model::ModelConfig& config, double fraction) {
  ExecutorOptions options;
  options.gpu_weights.fraction = fraction;
  const executor::WeightSizes sizes = {
      .num_layers = config.num_layers,
      .total_bytes = builder::EngineBytes(config, DeviceKind::kCuda),
      .layer_bytes = builder::LayerBytes(config, DeviceKind::kCuda)};
  return Must(executor::PlanWeights(config, TinyLimits(), DeviceKind::kCuda, sizes, options, 0))
      .streamed;
}

// Prompts of many lengths; some requests are sampled, some search, some have logits returned.
std::vector<Request> MixedRequests() {
  std::vector<Request> requests;
  for (int i = 0; i < 14; ++i) {
    Request request = RandomRequest(1 + i * 23, 24 - i % 3, 512, static_cast<unsigned>(i));
    if (i % 4 == 1) {
      request.sampling.top_p = 0.9F;
      request.sampling.seed = static_cast<uint64_t>(i);
    }
    if (i % 5 == 2) request.sampling.beam_width = 3;
    if (i % 6 == 3) request.output.return_generation_logits = true;
    if (i == 8) request.output.return_context_logits = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

class CudaStreamingTest : public GpuTest {
 protected:
  void TearDown() override { unsetenv("INFLIGHT_CUDA_GRAPHS"); }

  static EnginePtr Engine(const model::ModelConfig& config, double fraction) {
    return Must(builder::Random(config, TinyLimits(), kSeed, device(), /*tune=*/false,
                                StreamedLayers(config, fraction)));
  }

  // What steps are made of depends on their times; by --deterministic no result does.
  static std::unique_ptr<Executor> Start(const EnginePtr& engine, bool deterministic = true,
                                         DraftSource drafts = DraftSource::kNone) {
    ExecutorOptions options;
    options.drafts = drafts;
    options.block_size = 16;
    options.max_kv_tokens = 8192;
    options.max_num_tokens = 128;
    options.deterministic = deterministic;
    options.step_time_goal_ms = 0;
    return MakeExecutor(engine, device(), options);
  }

  static void ExpectEqual(const std::vector<std::shared_ptr<LogitsSink>>& got,
                          const std::vector<std::shared_ptr<LogitsSink>>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      ASSERT_TRUE(got[i]->last.status.ok()) << got[i]->last.status.ToString();
      EXPECT_EQ(got[i]->ids, want[i]->ids);
      EXPECT_EQ(got[i]->log_probs, want[i]->log_probs);
      EXPECT_EQ(got[i]->last.cum_log_prob, want[i]->last.cum_log_prob);
      EXPECT_EQ(got[i]->logits, want[i]->logits);
      ASSERT_EQ(got[i]->last.beams.size(), want[i]->last.beams.size());
      for (size_t b = 0; b < got[i]->last.beams.size(); ++b) {
        EXPECT_EQ(got[i]->last.beams[b].output_ids, want[i]->last.beams[b].output_ids);
        EXPECT_EQ(got[i]->last.beams[b].score, want[i]->last.beams[b].score);
      }
    }
  }
};

TEST_F(CudaStreamingTest, OutputsHaveTheSameBitsWhateverPartStays) {
  const std::vector<Request> requests = MixedRequests();
  for (const QuantAlgo algo : {QuantAlgo::kNone, QuantAlgo::kW8A16, QuantAlgo::kW4A16,
                               QuantAlgo::kFp8PerChannelPerToken}) {
    SCOPED_TRACE(model::QuantAlgoName(algo));
    const model::ModelConfig config = DeepLlama(algo);
    const auto want = RunAll<LogitsSink>(*Start(Engine(config, 1)), requests);
    EXPECT_FALSE(want[0]->ids.empty());
    for (const double fraction : {0.7, 0.5, 0.3, 0.0}) {  // 3, 5, 7 and 10 streamed layers
      SCOPED_TRACE("fraction " + std::to_string(fraction));
      for (const char* graphs : {"1", "0", "all"}) {
        SCOPED_TRACE(std::string("graphs ") + graphs);
        if (algo != QuantAlgo::kNone && graphs != std::string("1")) continue;
        setenv("INFLIGHT_CUDA_GRAPHS", graphs, 1);
        const EnginePtr engine = Engine(config, fraction);
        EXPECT_EQ(static_cast<double>(engine->host_layers.size()),
                  std::ceil((1 - fraction) * kNumLayers - 1e-9));
        const auto executor = Start(engine);
        for (int i = 0; i < 2; ++i) ExpectEqual(RunAll<LogitsSink>(*executor, requests), want);
      }
    }
  }
}

// One request at a time: steps of the same rows on both sides, of the kernels that are fastest.
TEST_F(CudaStreamingTest, SoTheyHaveWithTheFastestKernels) {
  const model::ModelConfig config = DeepLlama();
  const auto plain = Start(Engine(config, 1), /*deterministic=*/false);
  const auto streamed = Start(Engine(config, 0.3), /*deterministic=*/false);
  for (const Request& request : MixedRequests())
    ExpectEqual(RunAll<LogitsSink>(*streamed, {request}), RunAll<LogitsSink>(*plain, {request}));
}

TEST_F(CudaStreamingTest, ModelsWithBiasesAndNormsOfTwoPartsAreStreamedTooAlsoInFloat32) {
  model::ModelConfig config = TinyGpt2();
  config.num_layers = 5;
  const std::vector<Request> requests = MixedRequests();
  for (const DType dtype : {config.dtype, DType::kF32}) {
    config.dtype = dtype;
    ExpectEqual(RunAll<LogitsSink>(*Start(Engine(config, 0)), requests),
                RunAll<LogitsSink>(*Start(Engine(config, 1)), requests));
  }
}

// Of the queries of every layer, rank 4: A of ones, B of 2^-9.
std::shared_ptr<const LoraTensors> QueryAdapter(const model::ModelConfig& config) {
  constexpr int kRank = 4;
  const int64_t a_size = int64_t{kRank} * config.hidden_size;
  const int64_t width = a_size + int64_t{kRank} * config.num_heads * config.head_dim;
  auto adapter = std::make_shared<LoraTensors>();
  adapter->dtype = LoraDType::kBFloat16;
  adapter->width = width;
  std::vector<BFloat16> row(static_cast<size_t>(width), BFloat16::FromFloat(1.0F / 512));
  std::fill_n(row.begin(), a_size, BFloat16::FromFloat(1.0F));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    adapter->rows.push_back({.module = 1, .layer = layer, .rank = kRank});
    const auto bytes = std::as_bytes(std::span(row));
    adapter->weights.insert(adapter->weights.end(), bytes.begin(), bytes.end());
  }
  return adapter;
}

TEST_F(CudaStreamingTest, AdaptersAndDraftsGoWithIt) {
  const model::ModelConfig config = DeepLlama();
  std::vector<Request> requests = MixedRequests();
  std::erase_if(requests, [](const Request& r) { return r.sampling.beam_width > 1; });
  const auto adapter = QueryAdapter(config);
  for (size_t i = 0; i < requests.size(); i += 2)
    requests[i].lora = LoraUse{.id = 7, .tensors = adapter};
  for (Request& request : requests) {  // what follows repeats what was
    std::vector<TokenId>& ids = request.input_ids;
    const std::vector<TokenId> first(ids.begin(),
                                     ids.begin() + std::min<int64_t>(9, std::ssize(ids)));
    for (int n = 0; n < 4; ++n) ids.insert(ids.end(), first.begin(), first.end());
  }
  for (const DraftSource drafts : {DraftSource::kNone, DraftSource::kNgram}) {
    const auto plain = Start(Engine(config, 1), /*deterministic=*/true, drafts);
    const auto streamed = Start(Engine(config, 0.3), /*deterministic=*/true, drafts);
    ExpectEqual(RunAll<LogitsSink>(*streamed, requests), RunAll<LogitsSink>(*plain, requests));
    EXPECT_EQ(streamed->stats().tokens_drafted > 0, drafts == DraftSource::kNgram);
  }
}

// Each has a ring of its own; they share the link.
TEST_F(CudaStreamingTest, TwoExecutorsStreamAtOnce) {
  const std::vector<Request> requests = MixedRequests();
  const auto want = RunAll<LogitsSink>(*Start(Engine(DeepLlama(), 1)), requests);
  const EnginePtr half = Engine(DeepLlama(), 0.5);
  const std::unique_ptr<Executor> executors[] = {Start(half), Start(half),
                                                 Start(Engine(DeepLlama(), 0))};
  std::vector<std::vector<std::shared_ptr<LogitsSink>>> got;
  for (int i = 0; i < 3; ++i)
    for (const auto& executor : executors)
      got.push_back(EnqueueAll<LogitsSink>(*executor, requests));
  for (const auto& sinks : got) {
    for (const auto& sink : sinks) sink->Wait();
    ExpectEqual(sinks, want);
  }
}

// The copies of a layer take a hundred times as long as computing it, other than those above.
TEST_F(CudaStreamingTest, LargeLayersHaveThemToo) {
  if (device().FreeBytes() < uint64_t{24} << 30 || AvailableHostBytes() < uint64_t{12} << 30)
    GTEST_SKIP() << "its model of 16 GB needs 24 GiB of the GPU and 12 GiB of the host; here are "
                 << (device().FreeBytes() >> 30) << " and " << (AvailableHostBytes() >> 30)
                 << ". The tests above show the same of small layers on any GPU";
  model::ModelConfig config = DeepLlama();  // Llama 3 8B
  config.vocab_size = 128256;
  config.hidden_size = 4096;
  config.num_layers = 32;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.intermediate_size = 14336;
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i)
    requests.push_back(RandomRequest(10 + 90 * i, 12, config.vocab_size, static_cast<unsigned>(i)));
  const auto want = RunAll<LogitsSink>(*Start(Engine(config, 1)), requests);
  ExpectEqual(RunAll<LogitsSink>(*Start(Engine(config, 0.5)), requests), want);
}

// Layers come straight from the file; what does not stay takes none of the GPU's memory.
TEST_F(CudaStreamingTest, EngineFilesAreReadToWhereTheirLayersLie) {
  const auto dir =
      std::filesystem::path(testing::TempDir()) / ("streamed_engine_" + std::to_string(getpid()));
  const model::ModelConfig config = DeepLlama();
  Must(builder::BuildRandom(
      config,
      {.output_dir = dir, .limits = TinyLimits(), .target = DeviceKind::kCuda, .tune = false},
      kSeed));
  const std::vector<Request> requests = MixedRequests();
  const auto want = RunAll<LogitsSink>(*Start(Engine(config, 1)), requests);
  for (const double fraction : {0.0, 0.5}) {
    const uint64_t free_before = device().ledger().free_bytes();
    const EnginePtr engine =
        Must(builder::Open(dir, device(), {.streamed_layers = StreamedLayers(config, fraction)}));
    const uint64_t layer_bytes = builder::LayerBytes(config, DeviceKind::kCuda);
    EXPECT_EQ(engine->host_weight_bytes(), engine->host_layers.size() * layer_bytes);
    EXPECT_EQ(free_before - device().ledger().free_bytes(),
              engine->weight_bytes - engine->host_weight_bytes());
    const auto executor = Start(engine);
    EXPECT_GE(executor->stats().pinned_memory_bytes,
              static_cast<int64_t>(engine->host_weight_bytes()));
    ExpectEqual(RunAll<LogitsSink>(*executor, requests), want);
  }
  std::filesystem::remove_all(dir);
}

TEST_F(CudaStreamingTest, TheLinkIsMeasured) {
  const uint64_t free_before = device().ledger().free_bytes();
  const CopySpeed speed = Must(MeasureCopySpeed(device()));
  EXPECT_GT(speed.upload_bytes_per_s, 1e9);
  EXPECT_GT(speed.memory_bytes_per_s, speed.upload_bytes_per_s);
  EXPECT_EQ(device().ledger().free_bytes(), free_before);
}

}  // namespace
}  // namespace inflight::gpu
