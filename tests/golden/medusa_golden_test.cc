// SPDX-License-Identifier: Apache-2.0
// Medusa's heads against transformers (make_medusa_golden.py): their logits, the trees that they
// propose and what is accepted of them; and that no answer depends on them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <vector>

#include "artifact/tensor_set.h"
#include "builder/builder.h"
#include "constants.h"
#include "even_clock.h"
#include "executor/medusa_drafts.h"
#include "golden_reference.h"
#include "lora_cases.h"
#include "model/medusa_heads.h"
#include "ops/backend.h"
#include "paged_model.h"
#include "run_requests.h"
#include "speculation_cases.h"
#include "tensor/element.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;
using decoding::DraftTree;

const fs::path kMedusaDir = INFLIGHT_MEDUSA_GOLDEN_DATA;

struct MedusaGoldenTest : testing::Test {
  void SetUp() override {
    dir = fs::path(testing::TempDir()) /
          ("medusa_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir);
    const Status converted = builder::Convert({.model_dir = DataDir() / "llama_gqa2",
                                               .output_dir = dir / "checkpoint",
                                               .dtype = "float32",
                                               .medusa = {.dir = kMedusaDir / "heads"}});
    ASSERT_TRUE(converted.ok()) << converted.ToString();
    auto file = artifact::TensorSet::OpenFile(kMedusaDir / "reference.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    reference = *std::move(file);
    engine = Open(dir / "checkpoint");
  }
  void TearDown() override { fs::remove_all(dir); }

  std::shared_ptr<const model::Engine> Open(const fs::path& from) {
    auto opened = builder::Open(from, *device);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return opened.ok() ? *opened : nullptr;
  }

  // Logits of the heads at the golden positions.
  void ExpectLogits(const std::shared_ptr<const model::Engine>& of) {
    ASSERT_EQ(of->config.num_medusa_heads, 3);
    ASSERT_EQ(of->config.num_medusa_layers, 2);
    const ops::OpTable ops = *ops::FindOps(*device, model::KernelShape(of->config));
    PagedModel paged(of, ops, *device, 1, kBlockSize);
    const std::vector<TokenId> ids = PromptAndGreedy(reference);
    const Piece piece = {0, ids};
    paged.Step(std::span(&piece, 1), /*last_only=*/true);
    const std::vector<int64_t> positions = ValuesOf<int64_t>(reference, "positions");
    std::vector<int32_t> rows(positions.begin(), positions.end());
    const auto num_rows = static_cast<int64_t>(rows.size());
    auto heads = model::MedusaHeads::Create(of, ops, *device, static_cast<int>(num_rows));
    ASSERT_TRUE(heads.ok()) << heads.status().ToString();
    Stream stream(*device);
    const artifact::StoredTensor& expected = *reference.Find("logits");
    const int64_t vocab = of->config.vocab_size;
    for (int head = 0; head < 3; ++head) {
      const auto logits = (*heads)->Logits(head, paged.decoder().States(),
                                           {rows.data(), DType::kI32, {num_rows}}, stream);
      ASSERT_TRUE(logits.ok()) << logits.status().ToString();
      for (int64_t r = 0; r < num_rows; ++r)
        for (int64_t v = 0; v < vocab; ++v)
          ASSERT_NEAR(logits->as<const float>()[r * vocab + v],
                      LoadFloat(expected.data.data(), DType::kF32, (r * 3 + head) * vocab + v),
                      kTolerance)
              << "head " << head << " position " << positions[static_cast<size_t>(r)];
    }
  }

  std::shared_ptr<Device> device = Device::Cpu();
  fs::path dir;
  artifact::TensorSet reference;
  std::shared_ptr<const model::Engine> engine;
};

TEST_F(MedusaGoldenTest, LogitsOfTheHeadsAreThoseOfTransformers) {
  ExpectLogits(engine);
  const Status built = builder::Build(
      {.checkpoint_dir = dir / "checkpoint", .output_dir = dir / "engine", .limits = {}});
  ASSERT_TRUE(built.ok()) << built.ToString();
  ExpectLogits(Open(dir / "engine"));
}

TEST_F(MedusaGoldenTest, ShardsOfRanksAreMergedAgain) {
  const Status converted = builder::Convert({.model_dir = DataDir() / "llama_gqa2",
                                             .output_dir = dir / "ranks",
                                             .dtype = "float32",
                                             .tp_size = 2,
                                             .medusa = {.dir = kMedusaDir / "heads"}});
  ASSERT_TRUE(converted.ok()) << converted.ToString();
  const auto rank = artifact::TensorSet::OpenFile(dir / "ranks" / "rank1.safetensors");
  ASSERT_TRUE(rank.ok());
  EXPECT_EQ(rank->Find("medusa_heads.2.medusa_layers.1.linear.weight")->shape, (Shape{32, 64}));
  EXPECT_EQ(rank->Find("medusa_heads.2.medusa_layers.1.linear.bias")->shape, (Shape{32}));
  EXPECT_EQ(rank->Find("medusa_heads.0.lm_head.weight")->shape, (Shape{106, 64}));
  ExpectLogits(Open(dir / "ranks"));
}

// Each step of the golden decoding by itself: the tree, and how far the walk through it comes.
TEST_F(MedusaGoldenTest, TreesAreThoseOfTransformers) {
  auto plan = executor::PlanMemory(engine->config, engine->limits, device->kind(),
                                   engine->weight_bytes, true, {}, device->FreeBytes());
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->drafts, DraftSource::kMedusa) << "of a model that has heads, unless told";
  ASSERT_EQ(plan->draft_tree->size(), 61);
  const ops::OpTable ops = *ops::FindOps(*device, model::KernelShape(engine->config));
  auto drafts = executor::MedusaDrafts::Create(engine, *device, *plan, ops);
  ASSERT_TRUE(drafts.ok()) << drafts.status().ToString();
  const DraftTree& tree = (*drafts)->tree();
  const std::vector<TokenId> whole = PromptAndGreedy(reference);
  const std::vector<int64_t> known = ValuesOf<int64_t>(reference, "known");
  const std::vector<int64_t> expected = ValuesOf<int64_t>(reference, "drafts");
  const std::vector<int64_t> accepted = ValuesOf<int64_t>(reference, "accepted");
  Stream stream(*device);
  for (size_t s = 0; s < known.size(); ++s) {
    SCOPED_TRACE("step " + std::to_string(s));
    const auto num_known = static_cast<size_t>(known[s]);
    const std::vector<TokenId> tokens(whole.begin(),
                                      whole.begin() + static_cast<ptrdiff_t>(num_known));
    PagedModel paged(engine, ops, *device, 1, kBlockSize);
    const Piece piece = {0, tokens};
    paged.Step(std::span(&piece, 1), /*last_only=*/true);
    std::vector<TokenId> proposed;
    const executor::TreeSource::Ask ask = {.num_nodes = tree.size(),
                                           .tokens = &tokens,
                                           .state = static_cast<int>(num_known) - 2,
                                           .drafts = &proposed};
    ASSERT_EQ((*drafts)->Draft(std::span(&ask, 1), paged.decoder(), stream), Status::Ok());
    const auto begin = expected.begin() + static_cast<ptrdiff_t>(s) * tree.size();
    EXPECT_TRUE(std::equal(proposed.begin(), proposed.end(), begin, begin + tree.size()));
    int num_accepted = 0;
    for (int node = -1;; ++num_accepted) {
      node = tree.Child(node, whole[num_known + static_cast<size_t>(num_accepted)], proposed);
      if (node < 0) break;
    }
    EXPECT_EQ(num_accepted, accepted[s]);
  }
}

TEST_F(MedusaGoldenTest, WithoutAStateThereAreNoDrafts) {
  auto plan = executor::PlanMemory(engine->config, engine->limits, device->kind(),
                                   engine->weight_bytes, true, {}, device->FreeBytes());
  const ops::OpTable ops = *ops::FindOps(*device, model::KernelShape(engine->config));
  auto drafts = executor::MedusaDrafts::Create(engine, *device, *plan, ops);
  PagedModel paged(engine, ops, *device, 1, kBlockSize);
  const std::vector<TokenId> tokens = {5, 6};
  std::vector<TokenId> proposed = {1, 2, 3};
  const executor::TreeSource::Ask ask = {
      .num_nodes = 4, .tokens = &tokens, .state = -1, .drafts = &proposed};
  Stream stream(*device);
  ASSERT_EQ((*drafts)->Draft(std::span(&ask, 1), paged.decoder(), stream), Status::Ok());
  EXPECT_TRUE(proposed.empty());
}

TEST_F(MedusaGoldenTest, NoAnswerDependsOnThem) {
  std::vector<Request> requests = RequestsOfAllKinds(engine->config.vocab_size);
  uint64_t task_id = 1;
  for (const LoraCase& c : ReadLoraCases())  // adapters in the same steps
    if (c.model == "llama_gqa2") requests.push_back(RequestOf(c, task_id++));
  ExecutorOptions options = {.max_batch_size = 8,
                             .max_kv_tokens = 4096,
                             .drafts = DraftSource::kNone,
                             .deterministic = true};
  const auto run = [&](int64_t* num_accepted) {
    EvenClock clock;
    const auto executor = MakeExecutor(engine, *device, options, {}, {}, clock);
    auto sinks = RunAll<RowsSink>(*executor, requests);
    executor->Shutdown(0);
    *num_accepted = executor->stats().drafts_accepted;
    EXPECT_LE(*num_accepted, executor->stats().tokens_drafted);
    return sinks;
  };
  int64_t num_accepted = 0;
  const auto expected = run(&num_accepted);
  EXPECT_EQ(num_accepted, 0);
  options.drafts = DraftSource::kAuto;
  const std::vector<std::vector<int>> own = {{0}, {0, 1}, {0, 0}, {1}, {0, 0, 2}};
  for (const auto& choices : {std::vector<std::vector<int>>{}, own}) {
    options.medusa_choices = choices;
    const auto actual = run(&num_accepted);
    EXPECT_GT(num_accepted, 20);
    ExpectAllEqual(requests, actual, expected);
  }
}

TEST_F(MedusaGoldenTest, HeadsOfAnotherModelAreRefused) {
  const auto error = [&](builder::ConvertOptions options) {
    options.output_dir = dir / "refused";
    const Status status = builder::Convert(options);
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  const fs::path heads = kMedusaDir / "heads";
  EXPECT_EQ(error({.model_dir = DataDir() / "llama_mha", .medusa = {.dir = heads}}).substr(0, 33),
            "medusa_model_dir: got heads [211,");
  EXPECT_THAT(error({.model_dir = DataDir() / "qwen2_tied", .medusa = {.dir = heads}}),
              testing::HasSubstr("heads of LlamaForCausalLM are supported"));
  EXPECT_THAT(error({.model_dir = DataDir() / "llama_gqa2",
                     .medusa = {.dir = heads, .fixed_num_heads = 4}}),
              testing::HasSubstr("medusa_lm_head: 3.0.linear.weight"));
  EXPECT_THAT(error({.model_dir = DataDir() / "llama_gqa2", .medusa = {.dir = kMedusaDir}}),
              testing::HasSubstr("medusa_lm_head.safetensors or medusa_lm_head.pt is needed"));
}

}  // namespace
}  // namespace inflight::golden
