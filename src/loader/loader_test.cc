// SPDX-License-Identifier: Apache-2.0
#include "loader/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "builder/test_models.h"
#include "loader/devices.h"
#include "loader/draft_model.h"

namespace inflight::loader {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kRoomy = uint64_t{256} << 20;
// 64 tokens, keys and values of one head of 8 floats in one layer.
constexpr uint64_t kBlockBytes = uint64_t{64} * 2 * 8 * sizeof(float);

OpenOptions OnCpuOf(uint64_t capacity_bytes, const ExecutorOptions& executor = {}) {
  return {.devices = Devices::Only(Device::CpuWithCapacity(1, capacity_bytes)),
          .executor = executor};
}

class LoaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("inflight_loader_" + std::to_string(::getpid()));
    builder::TinyLlama().Write(hf());
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path hf() const { return root_ / "hf"; }
  fs::path engine() const { return root_ / "engine"; }
  void BuildEngine(const model::EngineLimits& limits) {
    const Status built =
        builder::Build({.checkpoint_dir = hf(), .output_dir = engine(), .limits = limits});
    ASSERT_TRUE(built.ok()) << built.ToString();
  }

  fs::path root_;
};

std::string Text(const ModelInfo& info) {
  const ExecutorLimits& l = info.limits;
  std::string text = info.directory.string() + " " + info.tokenizer_dir.string() + " " +
                     info.architecture + " " + info.dtype + " " + info.quant_algo + " " +
                     info.device;
  for (const int64_t n :
       {int64_t{l.vocab_size}, int64_t{l.max_batch_size}, int64_t{l.max_num_tokens},
        int64_t{l.max_seq_len}, int64_t{l.max_input_len}, int64_t{l.max_beam_width},
        int64_t{l.returns_logits}, int64_t{l.block_size}, l.num_blocks,
        static_cast<int64_t>(info.memory.weight_bytes),
        static_cast<int64_t>(info.memory.kv_cache_bytes),
        static_cast<int64_t>(info.memory.total_bytes)})
    text += " " + std::to_string(n);
  return text;
}

// Inspect, then Open on a device of the same memory.
void ExpectTheSame(const fs::path& dir, uint64_t capacity_bytes, const ExecutorOptions& executor) {
  const auto inspected = Inspect(dir, OnCpuOf(capacity_bytes, executor));
  ASSERT_TRUE(inspected.ok()) << inspected.status().ToString();
  const auto opened = Open(dir, OnCpuOf(capacity_bytes, executor));
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ(Text(*inspected), Text(opened->info));
  EXPECT_EQ(opened->info.limits.num_blocks, opened->executor->limits().num_blocks);
  EXPECT_EQ(opened->executor->stats().cpu_memory_bytes,
            static_cast<int64_t>(inspected->memory.total_bytes));
}

TEST_F(LoaderTest, InspectSaysWhatOpenGives) {
  BuildEngine({.max_batch_size = 8, .max_num_tokens = 64, .max_beam_width = 4});
  for (const fs::path& dir : {hf(), engine()}) {
    ExpectTheSame(dir, kRoomy, {});
    ExpectTheSame(dir, kRoomy, {.max_batch_size = 2, .max_num_tokens = 16, .max_kv_tokens = 64});
    ExpectTheSame(dir, kRoomy, {.block_size = 16, .enable_chunked_prefill = false});
  }
}

// Where memory bounds the KV cache, every byte that one of the two counts otherwise shows.
TEST_F(LoaderTest, InspectSaysWhatOpenGivesWhereMemoryIsShort) {
  BuildEngine({.max_batch_size = 8, .max_num_tokens = 64, .max_beam_width = 4});
  for (const fs::path& dir : {hf(), engine()}) {
    const auto roomy = Inspect(dir, OnCpuOf(kRoomy));
    ASSERT_TRUE(roomy.ok()) << roomy.status().ToString();
    const uint64_t others = roomy->memory.total_bytes - roomy->memory.kv_cache_bytes;
    const ExecutorOptions half{.kv_cache_free_memory_fraction = 0.5};
    const auto inspected = Inspect(dir, OnCpuOf(others + 8 * kBlockBytes, half));
    ASSERT_TRUE(inspected.ok()) << inspected.status().ToString();
    EXPECT_EQ(inspected->limits.num_blocks, 4);
    ExpectTheSame(dir, others + 8 * kBlockBytes, half);
    ExpectTheSame(dir, others + 2 * kBlockBytes, {.block_size = 16});
  }
}

// Each rank has its share, the leader what a draft model works in too.
TEST_F(LoaderTest, InspectSaysWhatOpenGivesOnRanks) {
  for (const bool has_draft : {false, true}) {
    const auto on_ranks = [&] {
      OpenOptions options = OnCpuOf(kRoomy, {.max_batch_size = 4, .max_num_tokens = 64});
      options.tensor_parallel_size = 2;
      if (has_draft) options.draft_model = hf();
      return options;
    };
    const auto inspected = Inspect(hf(), on_ranks());
    ASSERT_TRUE(inspected.ok()) << inspected.status().ToString();
    const auto opened = Open(hf(), on_ranks());
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    EXPECT_EQ(Text(*inspected), Text(opened->info)) << has_draft;
    EXPECT_EQ(opened->executor->stats().cpu_memory_bytes,
              static_cast<int64_t>(inspected->memory.total_bytes));
  }
}

// Of version 1, for the tiny model.
builder::TestModel TinyEagle() {
  const std::string layer = "layers.0.";
  return {{{"architectures", {"LlamaForCausalLM"}},
           {"hidden_size", 16},
           {"intermediate_size", 8},
           {"num_hidden_layers", 1},
           {"num_attention_heads", 2},
           {"head_dim", 8},
           {"vocab_size", 10}},
          {{"fc.weight", DType::kF32, {16, 32}},
           {layer + "self_attn.q_proj.weight", DType::kF32, {16, 16}},
           {layer + "self_attn.k_proj.weight", DType::kF32, {16, 16}},
           {layer + "self_attn.v_proj.weight", DType::kF32, {16, 16}},
           {layer + "self_attn.o_proj.weight", DType::kF32, {16, 16}},
           {layer + "post_attention_layernorm.weight", DType::kF32, {16}},
           {layer + "mlp.gate_proj.weight", DType::kF32, {8, 16}},
           {layer + "mlp.up_proj.weight", DType::kF32, {8, 16}},
           {layer + "mlp.down_proj.weight", DType::kF32, {16, 8}}}};
}

// Its weights, workspace, keys and values.
TEST_F(LoaderTest, AHeadOfEagleIsPlannedAsItIsOpened) {
  const fs::path dir = root_ / "head";
  TinyEagle().Write(dir);
  OpenOptions options = OnCpuOf(kRoomy, {.max_batch_size = 4, .max_num_tokens = 64});
  const auto plain = Inspect(hf(), options);
  options.draft_model = dir;
  const auto inspected = Inspect(hf(), options);
  ASSERT_TRUE(inspected.ok()) << inspected.status().ToString();
  EXPECT_EQ(inspected->drafts, DraftSource::kEagle);
  // Keys and values of one layer of two heads beside those of one head.
  EXPECT_EQ(inspected->memory.kv_cache_bytes, 3 * plain->memory.kv_cache_bytes);
  OpenOptions fresh = OnCpuOf(kRoomy, {.max_batch_size = 4, .max_num_tokens = 64});
  fresh.draft_model = dir;
  const auto opened = Open(hf(), fresh);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ(Text(*inspected), Text(opened->info));
  const auto device = DeviceFor(hf(), fresh);
  uint64_t taken = 0;
  uint64_t of_weights = 0;
  for (const MemoryLedger::Entry& entry : (*device)->ledger().entries()) {
    taken += entry.bytes;
    if (entry.name.find("EAGLE head's weights") != std::string::npos) of_weights = entry.bytes;
  }
  EXPECT_GT(of_weights, 0);
  EXPECT_EQ(taken, inspected->memory.total_bytes + of_weights);

  options.executor.drafts = DraftSource::kSuffix;
  EXPECT_THAT(std::string(Inspect(hf(), options).status().message()),
              HasSubstr("draft_model: texts propose tokens already"));
  options.executor.drafts = DraftSource::kEagle;
  options.draft_model = hf();
  EXPECT_THAT(std::string(Inspect(hf(), options).status().message()),
              HasSubstr("which is no head of EAGLE"));
  options.draft_model = dir;
  const auto in_float32 =
      PlanDrafts({.dtype = DType::kF32}, {}, {.target = DeviceKind::kCuda}, options);
  EXPECT_EQ(in_float32.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(in_float32.status().message()),
              HasSubstr("draft_model: got a head of EAGLE beside dtype float32"));
  options.draft_model.clear();
  EXPECT_THAT(std::string(Inspect(hf(), options).status().message()),
              HasSubstr("speculation: got eagle, there is no head of EAGLE"));
}

// On the last one, which has neither the model's table nor what enters other stages' layers.
TEST_F(LoaderTest, AHeadOfEagleBesideStagesOnGpusHasATableOfItsOwn) {
  const fs::path dir = root_ / "head";
  builder::TestModel head = TinyEagle();
  head.Write(dir);
  OpenOptions options;
  options.draft_model = dir;
  const auto model = builder::Describe(hf(), {.dtype = DType::kBF16});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto on_stages = [&] {
    return PlanDrafts(model->config, model->limits,
                      {.target = DeviceKind::kCuda, .ranks = {.pp_size = 2}}, options);
  };
  EXPECT_EQ(on_stages().status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(on_stages().status().message()),
      HasSubstr(
          "embed_tokens.weight: is missing; beside stages on GPUs a head has a table of its own"));
  const uint64_t without_table =
      PlanDrafts(model->config, model->limits, {.target = DeviceKind::kCuda}, options)
          ->weight_bytes;
  head.tensors.push_back({"embed_tokens.weight", DType::kF32, {10, 16}});
  head.Write(dir);
  const auto planned = on_stages();
  ASSERT_TRUE(planned.ok()) << planned.status().ToString();
  EXPECT_TRUE(planned->eagle->has_table);
  EXPECT_GE(planned->weight_bytes, without_table + 10 * 16 * 2);
  EXPECT_FALSE(planned->IsOn({.pp_rank = 0, .pp_size = 2}));
  EXPECT_TRUE(planned->IsOn({.pp_rank = 1, .pp_size = 2}));
  head.tensors.push_back({"layers.0.hidden_norm.weight", DType::kF32, {16}});  // version 3
  head.config["eagle_aux_hidden_state_layer_ids"] = {0};
  head.Write(dir);
  EXPECT_EQ(on_stages().status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(
      std::string(on_stages().status().message()),
      HasSubstr("got a head of EAGLE-3 beside stages on GPUs, where it reads of layers that "
                "other stages have"));
}

TEST_F(LoaderTest, InspectRefusesWhatOpenCannotRun) {
  OpenOptions options = OnCpuOf(kRoomy);
  options.fp8_kv_cache = true;
  const auto opened = Open(hf(), options);
  EXPECT_EQ(opened.status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Inspect(hf(), options).status(), opened.status());
}

TEST_F(LoaderTest, InspectRefusesAnEngineForAnotherDevice) {
  const Status built =
      builder::Build({.checkpoint_dir = hf(), .output_dir = engine(), .target = DeviceKind::kCuda});
  ASSERT_TRUE(built.ok()) << built.ToString();
  const auto opened = Open(engine(), OnCpuOf(kRoomy));
  EXPECT_EQ(opened.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Inspect(engine(), OnCpuOf(kRoomy)).status(), opened.status());
}

TEST_F(LoaderTest, InspectTakesNothing) {
  const OpenOptions options = OnCpuOf(kRoomy);
  ASSERT_TRUE(Inspect(hf(), options).ok());
  const auto device = DeviceFor(hf(), options);
  EXPECT_EQ((*device)->ledger().free_bytes(), kRoomy);
}

// A device is a fact of the plan: no GPU is needed to say what one would allow.
TEST_F(LoaderTest, BeamsAreBoundedByTheSameFunctionOnEveryDevice) {
  model::ModelConfig config;
  config.vocab_size = 100;
  config.hidden_size = 64;
  config.num_layers = 2;
  config.num_heads = 2;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.intermediate_size = 128;
  config.max_position_embeddings = 4096;
  const model::EngineLimits limits{.max_batch_size = 8,
                                   .max_num_tokens = 256,
                                   .max_seq_len = 1024,
                                   .max_input_len = 1000,
                                   .max_beam_width = 4};
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const auto width = [&](const ExecutorOptions& options) {
      const auto memory =
          executor::PlanMemory(config, limits, device, /*weight_bytes=*/1000,
                               /*weights_are_taken=*/false, options, uint64_t{1} << 34);
      EXPECT_TRUE(memory.ok()) << memory.status().ToString();
      const auto found = LimitsOf(*memory, config, limits, options);
      EXPECT_TRUE(found.ok()) << found.status().ToString();
      return found->max_beam_width;
    };
    EXPECT_EQ(width({}), 4);
    EXPECT_EQ(width({.max_batch_size = 3}), 3) << "each beam has a row";
  }
}

TEST_F(LoaderTest, TheExecutorHoldsWhatItRunsOn) {
  const OpenOptions options = OnCpuOf(kRoomy, {.max_kv_tokens = 64});
  const auto device = DeviceFor(hf(), options);
  ASSERT_TRUE(device.ok());
  std::shared_ptr<Executor> executor;
  {
    auto opened = Open(hf(), options);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    EXPECT_THAT(opened->info.end_ids, ElementsAre(2));
    EXPECT_EQ(opened->tokenizer, nullptr) << "the directory has none";
    executor = opened->executor;
  }
  EXPECT_LT((*device)->ledger().free_bytes(), kRoomy);
  EXPECT_TRUE(executor->healthy());
  executor = nullptr;
  EXPECT_EQ((*device)->ledger().free_bytes(), kRoomy);
}

TEST_F(LoaderTest, ModelsThatShareDevicesShareTheirMemory) {
  OpenOptions options = OnCpuOf(kRoomy, {.max_kv_tokens = 64});
  options.owner = "first";
  const auto first = Open(hf(), options);
  options.owner = "second";
  const auto second = Open(hf(), options);
  ASSERT_TRUE(first.ok() && second.ok());
  const auto device = DeviceFor(hf(), options);
  EXPECT_EQ(kRoomy - (*device)->ledger().free_bytes(),
            first->info.memory.total_bytes + second->info.memory.total_bytes);
  for (const MemoryLedger::Entry& entry : (*device)->ledger().entries())
    EXPECT_TRUE(entry.name.starts_with("first: ") || entry.name.starts_with("second: "))
        << entry.name;
}

TEST_F(LoaderTest, RefusesByField) {
  const auto message = [&](const OpenOptions& options) {
    const auto opened = Open(hf(), options);
    EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Inspect(hf(), options).status(), opened.status());
    return opened.status().message();
  };
  EXPECT_THAT(message({.device = "tpu"}), HasSubstr("'tpu'"));
  EXPECT_THAT(message({.device = "cpu", .dtype = "int8"}), HasSubstr("dtype: got 'int8'"));
  EXPECT_THAT(message({.device = "cpu", .quant_algo = "int8"}),
              HasSubstr("quant_algo: got 'int8'"));
  EXPECT_THAT(message({.device = "cpu", .executor = {.block_size = 7}}),
              HasSubstr("block_size: got 7"));
  EXPECT_THAT(message({.device = "cpu", .executor = {.gpu_weights = {.fraction = 50}}}),
              HasSubstr("gpu_weights_percent: got 50, must be in [0, 1]"));
  EXPECT_EQ(Open(root_ / "nothing").status().code(), StatusCode::kNotFound);
}

// All of its weights are in host memory, where it computes.
TEST_F(LoaderTest, ACpuStreamsNoWeights) {
  for (const GpuWeights& asked : {GpuWeights{.fraction = 0.5}, {.as_many_as_fit = true}}) {
    const OpenOptions options = OnCpuOf(kRoomy, {.gpu_weights = asked});
    const auto opened = Open(hf(), options);
    EXPECT_EQ(opened.status().code(), StatusCode::kUnimplemented);
    EXPECT_EQ(opened.status().field(), "gpu_weights_percent");
    EXPECT_EQ(Inspect(hf(), options).status(), opened.status());
  }
}

}  // namespace
}  // namespace inflight::loader
