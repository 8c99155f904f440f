// SPDX-License-Identifier: Apache-2.0
// Heads of EAGLE against PyTorch (make_eagle_golden.py): their logits, the trees that they propose
// and what is accepted of them; and that no answer depends on them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "artifact/tensor_set.h"
#include "builder/builder.h"
#include "builder/eagle_files.h"
#include "builder/test_models.h"
#include "constants.h"
#include "even_clock.h"
#include "executor/eagle_drafts.h"
#include "golden_reference.h"
#include "inflight/prompt_table.h"
#include "lora_cases.h"
#include "model/eagle_decoder.h"
#include "ops/backend.h"
#include "paged_model.h"
#include "run_requests.h"
#include "speculation_cases.h"
#include "tensor/element.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;
using decoding::DraftTree;
using model::EagleHead;
using testing::HasSubstr;

const fs::path kEagleDir = INFLIGHT_EAGLE_GOLDEN_DATA;

fs::path HeadDir(int version) { return kEagleDir / ("v" + std::to_string(version)); }

struct EagleGoldenTest : testing::TestWithParam<int> {
  void SetUp() override {
    Open(DType::kF32);
    auto file = artifact::TensorSet::OpenFile(HeadDir(GetParam()).string() + ".safetensors");
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    reference = *std::move(file);
  }

  void Open(DType dtype) {
    auto opened = builder::Open(INFLIGHT_DEMO_MODEL, *device, {.dtype = dtype, .limits = {}});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    engine = *std::move(opened);
    auto read = builder::OpenEagleHead(HeadDir(GetParam()), engine->config, *device);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    head = *std::move(read);
  }

  ops::OpTable Ops(const model::ModelConfig& config) {
    return *ops::FindOps(*device, model::KernelShape(config), {}, ops::OpChoice::kFixed);
  }

  Result<executor::MemoryPlan> Plan(const ExecutorOptions& options = {.block_size = 64}) {
    return executor::PlanMemory(engine->config, engine->limits, device->kind(),
                                engine->weight_bytes, true, options, device->FreeBytes(),
                                {.eagle = &head->config});
  }

  Sinks Run(const std::vector<Request>& requests, const ExecutorOptions& options) {
    EvenClock clock;
    const bool with = options.drafts != DraftSource::kNone;
    const auto executor = MakeExecutor(
        engine, *device, options, {},
        {.model = nullptr, .eagle = with ? head : std::shared_ptr<const EagleHead>()}, clock);
    Sinks sinks = RunAll<RowsSink>(*executor, requests);
    executor->Shutdown(0);
    stats = executor->stats();
    return sinks;
  }

  // With the head as without, and something of it is accepted.
  void ExpectSame(ExecutorOptions options) {
    const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
    options.deterministic = true;
    options.drafts = DraftSource::kNone;
    const Sinks expected = Run(requests, options);
    EXPECT_EQ(stats.tokens_drafted, 0);
    options.drafts = DraftSource::kAuto;
    const Sinks actual = Run(requests, options);
    EXPECT_GT(stats.drafts_accepted, 40);
    EXPECT_GT(stats.tokens_drafted, stats.drafts_accepted);
    ExpectAllEqual(requests, actual, expected);
  }

  std::shared_ptr<Device> device = Device::Cpu();
  std::shared_ptr<const model::Engine> engine;
  std::shared_ptr<const EagleHead> head;
  artifact::TensorSet reference;
  ExecutorStats stats;
};

TEST_P(EagleGoldenTest, TheFilesSayWhatTheHeadIs) {
  EXPECT_TRUE(builder::IsEagleHead(HeadDir(GetParam())));
  EXPECT_FALSE(builder::IsEagleHead(INFLIGHT_DEMO_MODEL));
  const model::EagleConfig& config = head->config;
  EXPECT_EQ(config.version, GetParam());
  EXPECT_EQ(config.fc_bias, GetParam() == 1);
  EXPECT_EQ(config.draft_vocab_size, GetParam() == 1 ? 2048 : 256);
  // Of a model of 8 layers: 2, n / 2 and n - 3.
  EXPECT_EQ(config.target_layers,
            GetParam() == 1 ? std::vector<int>() : (std::vector<int>{2, 4, 5}));
  EXPECT_EQ(head->weights.token_ids.size(), GetParam() == 1 ? 0 : 256);
}

TEST_P(EagleGoldenTest, LogitsAreThoseOfPyTorch) {
  const std::vector<TokenId> whole = PromptAndGreedy(reference);
  const auto num_pairs = static_cast<int>(whole.size()) - 1;
  const model::EagleConfig& config = head->config;
  PagedModel paged(engine, Ops(engine->config), *device, 1, kBlockSize);
  std::vector<float> kept(static_cast<size_t>(num_pairs) *
                          static_cast<size_t>(config.feature_width()));
  const model::KeptResiduals residuals = {
      .layers = config.target_layers,
      .states = {kept.data(), DType::kF32, {num_pairs, config.feature_width()}}};
  if (GetParam() == 3) paged.Keep(&residuals);
  const Piece piece = {0, std::span(whole).first(static_cast<size_t>(num_pairs))};
  paged.Step(std::span(&piece, 1), /*last_only=*/true);

  const std::vector<int64_t> positions = ValuesOf<int64_t>(reference, "positions");
  const auto num_logits = static_cast<int64_t>(positions.size());
  auto decoder = model::EagleDecoder::Create(head, engine, Ops(config.layer), *device,
                                             engine->limits.max_seq_len, num_pairs,
                                             static_cast<int>(num_logits));
  ASSERT_TRUE(decoder.ok()) << decoder.status().ToString();
  const int num_blocks = kv_cache::BlocksFor(num_pairs, kBlockSize);
  auto kv = executor::KvStorage::Create(
      executor::KvShape(config.layer, kBlockSize, DeviceKind::kCpu), num_blocks, *device);
  ASSERT_TRUE(kv.ok());
  std::vector<int32_t> ids(whole.begin() + 1, whole.end());
  std::vector<int32_t> places(ids.size());
  std::iota(places.begin(), places.end(), 0);
  std::vector<int64_t> slots(places.begin(), places.end());
  std::vector<int32_t> row = {0, num_pairs};
  std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  Stream stream(*device);
  const auto states = (*decoder)->Forward(
      {.ids = {ids.data(), DType::kI32, {num_pairs}},
       .features = GetParam() == 3 ? residuals.states : paged.decoder().States(),
       .rows = {places.data(), DType::kI32, {num_pairs}},
       .paged = {.num_rows = 1,
                 .num_tokens = num_pairs,
                 .cu_seqlens_q = {row.data(), DType::kI32, {2}},
                 .seq_lens_kv = {row.data() + 1, DType::kI32, {1}},
                 .positions = {places.data(), DType::kI32, {num_pairs}},
                 .slot_mapping = {slots.data(), DType::kI64, {num_pairs}},
                 .block_tables = {blocks.data(), DType::kI32, {1, num_blocks}}}},
      kv->view(), stream);
  ASSERT_TRUE(states.ok()) << states.status().ToString();
  std::vector<int32_t> rows(positions.begin(), positions.end());
  const auto logits = (*decoder)->Logits(*states, {rows.data(), DType::kI32, {num_logits}}, stream);
  ASSERT_TRUE(logits.ok()) << logits.status().ToString();
  const artifact::StoredTensor& expected = *reference.Find("logits");
  ASSERT_EQ(expected.shape, (Shape{num_logits, config.draft_vocab_size}));
  for (int64_t i = 0; i < logits->num_elements(); ++i)
    ASSERT_NEAR(logits->as<const float>()[i], LoadFloat(expected.data.data(), DType::kF32, i),
                kTolerance)
        << "token " << i % config.draft_vocab_size << " behind position "
        << positions[static_cast<size_t>(i / config.draft_vocab_size)];
}

// Each step of the golden decoding by itself, in one step of the model, in several, or token by
// token, so that pairs wait: the tree, and how far the walk through it comes.
TEST_P(EagleGoldenTest, TreesAreThoseOfPyTorch) {
  const std::vector<int64_t> parents = ValuesOf<int64_t>(reference, "parents");
  const std::vector<int64_t> choices = ValuesOf<int64_t>(reference, "choices");
  const auto num_nodes = static_cast<int>(parents.size());
  auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->drafts, DraftSource::kEagle) << "where there is a head, unless told";
  EXPECT_EQ(plan->draft_tree->size(), 63);
  auto drafts =
      executor::EagleDrafts::Create(head, engine, *device, *plan, Ops(head->config.layer));
  ASSERT_TRUE(drafts.ok()) << drafts.status().ToString();
  const DraftTree& tree = (*drafts)->tree();
  for (int i = 0; i < num_nodes; ++i) {
    EXPECT_EQ(tree[i].parent, parents[static_cast<size_t>(i)]);
    EXPECT_EQ(tree[i].choice, choices[static_cast<size_t>(i)]);
  }
  const std::vector<TokenId> whole = PromptAndGreedy(reference);
  const std::vector<int64_t> known = ValuesOf<int64_t>(reference, "known");
  const std::vector<int64_t> expected = ValuesOf<int64_t>(reference, "drafts");
  const std::vector<int64_t> accepted = ValuesOf<int64_t>(reference, "accepted");
  const std::vector<int32_t> blocks = {3, 1, 2, 0};
  Stream stream(*device);
  int slot = 0;
  for (size_t s = 0; s < known.size(); ++s) {
    SCOPED_TRACE("step " + std::to_string(s));
    const auto num_known = static_cast<size_t>(known[s]);
    const std::vector<TokenId> tokens(whole.begin(),
                                      whole.begin() + static_cast<ptrdiff_t>(num_known));
    PagedModel paged(engine, Ops(engine->config), *device, 1, kBlockSize);
    paged.Keep((*drafts)->residuals());
    slot = 1 - slot;
    ASSERT_EQ((*drafts)->SetUp(slot, paged.decoder(), stream), Status::Ok());
    const size_t chunk = s % 3 == 0 ? num_known : s % 3 == 1 ? 7 : 1;
    for (size_t first = 0; first + 1 < num_known; first += chunk) {
      const size_t count = std::min(chunk, num_known - 1 - first);
      const Piece piece = {0, std::span(tokens).subspan(first, count)};
      paged.Step(std::span(&piece, 1), /*last_only=*/true);
      const executor::TreeSource::Step step = {.slot = slot,
                                               .first_place = static_cast<int>(first),
                                               .num_known = static_cast<int>(count),
                                               .tokens = &tokens,
                                               .blocks = blocks.data()};
      ASSERT_EQ((*drafts)->Follow(std::span(&step, 1), paged.decoder(), stream), Status::Ok());
    }
    std::vector<TokenId> proposed;
    const executor::TreeSource::Ask ask = {.slot = slot,
                                           .num_nodes = num_nodes,
                                           .tokens = &tokens,
                                           .blocks = blocks.data(),
                                           .drafts = &proposed};
    ASSERT_EQ((*drafts)->Draft(std::span(&ask, 1), paged.decoder(), stream), Status::Ok());
    const auto begin = expected.begin() + static_cast<ptrdiff_t>(s) * num_nodes;
    EXPECT_TRUE(std::equal(proposed.begin(), proposed.end(), begin, begin + num_nodes));
    int num_accepted = 0;
    for (int node = -1;; ++num_accepted) {
      node = tree.Child(node, whole[num_known + static_cast<size_t>(num_accepted)], proposed);
      if (node < 0) break;
    }
    EXPECT_EQ(num_accepted, accepted[s]);
  }
}

// One sequence, token by token, of which trees are asked for at each of those steps, at some, or at
// the last alone: pairs wait for long, more than a ring of them.
TEST_P(EagleGoldenTest, TreesDoNotDependOnHowLongPairsWaited) {
  auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  auto made = executor::EagleDrafts::Create(head, engine, *device, *plan, Ops(head->config.layer));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  executor::EagleDrafts& drafts = **made;
  const std::vector<TokenId> whole = PromptAndGreedy(reference);
  const std::vector<int64_t> known = ValuesOf<int64_t>(reference, "known");
  const std::vector<int64_t> expected = ValuesOf<int64_t>(reference, "drafts");
  const auto num_nodes = static_cast<int>(ValuesOf<int64_t>(reference, "parents").size());
  ASSERT_GT(known.back(), 34) << "more than a ring";
  const std::vector<int32_t> blocks = {3, 1, 2, 0};
  Stream stream(*device);
  for (const size_t every : {size_t{1}, size_t{3}, known.size()}) {
    SCOPED_TRACE(every);
    PagedModel paged(engine, Ops(engine->config), *device, 1, kBlockSize);
    paged.Keep(drafts.residuals());
    ASSERT_EQ(drafts.SetUp(/*slot=*/0, paged.decoder(), stream), Status::Ok());
    std::vector<TokenId> tokens = {whole[0]};
    size_t s = 0;
    while (s < known.size()) {
      const Piece piece = {0, std::span(tokens).last(1)};
      paged.Step(std::span(&piece, 1), /*last_only=*/true);
      tokens.push_back(whole[tokens.size()]);
      const executor::TreeSource::Step step = {.first_place = static_cast<int>(tokens.size()) - 2,
                                               .num_known = 1,
                                               .tokens = &tokens,
                                               .blocks = blocks.data()};
      ASSERT_EQ(drafts.Follow(std::span(&step, 1), paged.decoder(), stream), Status::Ok());
      if (std::cmp_less(tokens.size(), known[s])) continue;
      const size_t at = s++;
      if ((at + 1) % every != 0) continue;
      std::vector<TokenId> proposed;
      const executor::TreeSource::Ask ask = {
          .num_nodes = num_nodes, .tokens = &tokens, .blocks = blocks.data(), .drafts = &proposed};
      ASSERT_EQ(drafts.Draft(std::span(&ask, 1), paged.decoder(), stream), Status::Ok());
      const auto begin = expected.begin() + static_cast<ptrdiff_t>(at) * num_nodes;
      EXPECT_TRUE(std::equal(proposed.begin(), proposed.end(), begin, begin + num_nodes))
          << "of " << tokens.size() << " tokens";
    }
  }
}

TEST_P(EagleGoldenTest, AStateOfOtherTokensGivesNoDrafts) {
  auto plan = Plan();
  auto drafts =
      executor::EagleDrafts::Create(head, engine, *device, *plan, Ops(head->config.layer));
  PagedModel paged(engine, Ops(engine->config), *device, 1, kBlockSize);
  const std::vector<TokenId> tokens = {5, 6};
  std::vector<TokenId> proposed = {1, 2, 3};
  const int32_t block = 0;
  const executor::TreeSource::Ask ask = {
      .num_nodes = 4, .tokens = &tokens, .blocks = &block, .drafts = &proposed};
  Stream stream(*device);
  ASSERT_EQ((*drafts)->Draft(std::span(&ask, 1), paged.decoder(), stream), Status::Ok());
  EXPECT_TRUE(proposed.empty());
}

TEST_P(EagleGoldenTest, NoAnswerDependsOnIt) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    Open(dtype);
    ExpectSame({.max_batch_size = 8, .max_kv_tokens = 4096});
  }
}

TEST_P(EagleGoldenTest, AlsoInChunksWithPausesAndWithoutReuse) {
  ExecutorOptions options = {
      .max_batch_size = 8, .max_num_tokens = 48, .max_kv_tokens = 4096, .block_size = kBlockSize};
  ExpectSame(options);
  options.max_kv_tokens = 256;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  ExpectSame(options);
  EXPECT_GT(stats.num_pauses, 0);
  options.kv_cache_host_bytes = uint64_t{1} << 22;
  ExpectSame(options);
  EXPECT_GT(stats.kv_blocks_offloaded, 0);
  options.enable_prefix_reuse = false;
  options.kv_cache_host_bytes = 0;
  options.chunking_policy = ChunkingPolicy::kEqualProgress;
  ExpectSame(options);
}

TEST_P(EagleGoldenTest, SlidingWindowsHoldNoDraftBack) {
  ExpectSame({.max_batch_size = 8,
              .max_kv_tokens = 4096,
              .block_size = kBlockSize,
              .attention_windows = {32},
              .sink_tokens = 4});
}

// The head takes rows of a prompt's own table for token 0.
TEST_P(EagleGoldenTest, RowsOfAPromptTableHaveDraftsBehindThem) {
  constexpr int kNumRows = 3;
  const int width = engine->config.hidden_size;
  auto table = std::make_shared<PromptTable>();
  *table = {.num_rows = kNumRows, .hidden_size = width, .values = {}};
  for (int i = 0; i < kNumRows * width; ++i)
    table->values.push_back(0.02F * static_cast<float>(i % 7 - 3));
  Request request;
  request.input_ids = PromptAndGreedy(reference);
  request.input_ids.resize(20);
  for (int row = 0; row < kNumRows; ++row)
    request.input_ids[static_cast<size_t>(3 * row)] = engine->config.vocab_size + row;
  request.prompt_table = table;
  request.max_tokens = 40;
  ExecutorOptions options = {.max_batch_size = 1,
                             .max_kv_tokens = 4096,
                             .drafts = DraftSource::kNone,
                             .deterministic = true};
  const Sinks expected = Run({request}, options);
  options.drafts = DraftSource::kAuto;
  const Sinks actual = Run({request}, options);
  ExpectEqual(*actual[0], *expected[0], 0);
  EXPECT_GT(stats.drafts_accepted, 0);
}

// Beams have no drafts, and a client's drafts are judged as they came: both beside rows with trees.
TEST_P(EagleGoldenTest, BeamSearchesAndDraftsOfClientsGoBesideIt) {
  auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  requests.resize(12);
  for (const size_t i : {size_t{1}, size_t{4}, size_t{7}}) requests[i].sampling = {.beam_width = 3};
  ExecutorOptions options = {.max_batch_size = 8,
                             .max_kv_tokens = 4096,
                             .block_size = kBlockSize,
                             .drafts = DraftSource::kNone,
                             .deterministic = true};
  options.max_draft_len = 8;
  const std::vector<TokenId> right = Run({requests[2]}, options)[0]->ids;
  requests[2].draft_ids.assign(right.begin(), right.begin() + 6);
  requests[2].draft_ids[4] = right[4] == 7 ? 8 : 7;
  const Sinks expected = Run(requests, options);
  options.drafts = DraftSource::kAuto;
  const Sinks actual = Run(requests, options);
  EXPECT_GT(stats.drafts_accepted, 40);
  EXPECT_EQ(actual[2]->last.num_accepted_draft_tokens, 4);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectEqual(*actual[i], *expected[i], i);
    ASSERT_EQ(actual[i]->last.beams.size(), expected[i]->last.beams.size());
    for (size_t b = 0; b < actual[i]->last.beams.size(); ++b)
      EXPECT_EQ(actual[i]->last.beams[b].output_ids, expected[i]->last.beams[b].output_ids);
  }
}

// What the head wrote beside reused blocks serves whoever goes on from them: no less of what it
// proposes is accepted.
TEST_P(EagleGoldenTest, ReusedBlocksHaveItsKeys) {
  std::vector<TokenId> whole = PromptAndGreedy(reference);
  Request request;
  request.max_tokens = 24;
  request.input_ids.assign(whole.begin(), whole.begin() + 39);  // two blocks, and some
  ExecutorOptions options = {
      .max_batch_size = 1, .max_kv_tokens = 4096, .block_size = kBlockSize, .deterministic = true};
  const Sinks twice = Run({request, request}, options);
  EXPECT_EQ(stats.prompt_tokens_cached, 32);
  EXPECT_EQ(twice[0]->ids, twice[1]->ids);
  EXPECT_GT(twice[0]->last.num_accepted_draft_tokens, 4);
  EXPECT_GE(twice[1]->last.num_accepted_draft_tokens, twice[0]->last.num_accepted_draft_tokens);
}

// Also where they were written without a draft, as many at once as a ring holds and then those that
// were left.
TEST_P(EagleGoldenTest, AnswersWithoutDraftsHaveItsKeysToo) {
  const std::vector<TokenId> whole = PromptAndGreedy(reference);
  Request plain;
  plain.input_ids.assign(whole.begin(), whole.begin() + 23);
  plain.max_tokens = 40;
  plain.sampling.disable_speculation = true;
  Request next;
  next.input_ids.assign(whole.begin(), whole.begin() + 57);
  next.max_tokens = 24;
  ExecutorOptions options = {
      .max_batch_size = 1, .max_kv_tokens = 4096, .block_size = kBlockSize, .deterministic = true};
  const Sinks reused = Run({plain, next}, options);
  EXPECT_EQ(stats.prompt_tokens_cached, 48);
  EXPECT_EQ(reused[0]->last.num_draft_tokens, 0);
  options.enable_prefix_reuse = false;
  const Sinks computed = Run({plain, next}, options);
  EXPECT_EQ(stats.prompt_tokens_cached, 0);
  EXPECT_EQ(reused[1]->ids, computed[1]->ids);
  EXPECT_GT(computed[1]->last.num_accepted_draft_tokens, 0);
  EXPECT_EQ(reused[1]->last.num_accepted_draft_tokens, computed[1]->last.num_accepted_draft_tokens);
}

INSTANTIATE_TEST_SUITE_P(Versions, EagleGoldenTest, testing::Values(1, 3),
                         [](const auto& info) { return "Version" + std::to_string(info.param); });

// A head that knows nothing, of numbers that are drawn, beside adapters.
TEST(EagleGoldenTestOfAdapters, RowsWithAdaptersHaveDraftsToo) {
  const std::shared_ptr<Device> device = Device::Cpu();
  auto opened = builder::Open(DataDir() / "llama_gqa2", *device);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const std::shared_ptr<const model::Engine> engine = *std::move(opened);
  const std::string layer = "midlayer.";
  const builder::TestModel files = {
      {{"model_type", "llama"},
       {"hidden_size", 64},
       {"intermediate_size", 24},
       {"num_hidden_layers", 1},
       {"num_attention_heads", 2},
       {"num_key_value_heads", 1},
       {"head_dim", 16},
       {"vocab_size", engine->config.vocab_size},
       {"eagle_aux_hidden_state_layer_ids", {0, 1}}},
      {{"fc.weight", DType::kF32, {64, 128}},
       {layer + "hidden_norm.weight", DType::kF32, {64}},
       {layer + "input_layernorm.weight", DType::kF32, {64}},
       {layer + "self_attn.q_proj.weight", DType::kF32, {32, 128}},
       {layer + "self_attn.k_proj.weight", DType::kF32, {16, 128}},
       {layer + "self_attn.v_proj.weight", DType::kF32, {16, 128}},
       {layer + "self_attn.o_proj.weight", DType::kF32, {64, 32}},
       {layer + "post_attention_layernorm.weight", DType::kF32, {64}},
       {layer + "mlp.gate_proj.weight", DType::kF32, {24, 64}},
       {layer + "mlp.up_proj.weight", DType::kF32, {24, 64}},
       {layer + "mlp.down_proj.weight", DType::kF32, {64, 24}},
       {"norm.weight", DType::kF32, {64}},
       {"lm_head.weight", DType::kF32, {engine->config.vocab_size, 64}}},
      /*is_wavy=*/true};
  const fs::path dir = fs::path(testing::TempDir()) / "eagle_beside_adapters";
  files.Write(dir);
  const auto head = builder::OpenEagleHead(dir, engine->config, *device);
  fs::remove_all(dir);
  ASSERT_TRUE(head.ok()) << head.status().ToString();
  EXPECT_EQ((*head)->config.version, 3);
  EXPECT_TRUE((*head)->weights.token_ids.empty()) << "the model's vocabulary";
  std::vector<Request> requests = RequestsOfAllKinds(engine->config.vocab_size);
  uint64_t task_id = 1;
  for (const LoraCase& c : ReadLoraCases())
    if (c.model == "llama_gqa2") requests.push_back(RequestOf(c, task_id++));
  ASSERT_GT(task_id, 2);
  const auto run = [&](const std::shared_ptr<const EagleHead>& with, int64_t* num_drafted) {
    EvenClock clock;
    const auto executor = MakeExecutor(
        engine, *device, {.max_batch_size = 8, .max_kv_tokens = 4096, .deterministic = true}, {},
        {.model = nullptr, .eagle = with}, clock);
    Sinks sinks = RunAll<RowsSink>(*executor, requests);
    executor->Shutdown(0);
    *num_drafted = executor->stats().tokens_drafted;
    return sinks;
  };
  int64_t num_drafted = 0;
  const Sinks expected = run(nullptr, &num_drafted);
  EXPECT_EQ(num_drafted, 0);
  const Sinks actual = run(*head, &num_drafted);
  EXPECT_GT(num_drafted, 100);
  ExpectAllEqual(requests, actual, expected);
}

// --- files that are refused ---

struct EagleFilesTest : testing::Test {
  void SetUp() override {
    dir = fs::path(testing::TempDir()) / "eagle_files";
    auto opened = builder::Open(INFLIGHT_DEMO_MODEL, *device, {.limits = {}});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    engine = *std::move(opened);
  }
  void TearDown() override { fs::remove_all(dir); }

  // Of the head with those fields in its config.json; null takes one out.
  std::string Error(int version, const nlohmann::json& fields) {
    fs::remove_all(dir);
    fs::copy(HeadDir(version), dir);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(dir / "config.json"));
    config.merge_patch(fields);
    std::ofstream(dir / "config.json") << config;
    const auto head = builder::OpenEagleHead(dir, engine->config, *device);
    const auto described = builder::DescribeEagleHead(dir, engine->config);
    if (!described.ok()) {
      EXPECT_EQ(head.status().message(), described.status().message());
    }
    return head.ok() ? "" : std::string(head.status().message());
  }

  std::shared_ptr<Device> device = Device::Cpu();
  std::shared_ptr<const model::Engine> engine;
  fs::path dir;
};

TEST_F(EagleFilesTest, HeadsOfAnotherModelAreRefused) {
  EXPECT_THAT(
      Error(1, {{"hidden_size", 512}}),
      HasSubstr("config.json: hidden_size: got 512, the model's is 256; the head is another "
                "model's"));
  EXPECT_THAT(Error(3, {{"vocab_size", 4096}}),
              HasSubstr("config.json: vocab_size: got 4096, the model's is 2048"));
  EXPECT_THAT(Error(1, {{"num_attention_heads", 8}}),
              HasSubstr("layers.0.self_attn.q_proj.weight: got [128, 256], needed [256, 256]"));
}

TEST_F(EagleFilesTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_THAT(Error(1, {{"architectures", {"MixtralForCausalLM"}}}),
              HasSubstr("architectures: got [\"MixtralForCausalLM\"], heads of EAGLE with a layer "
                        "of Llama are supported"));
  EXPECT_THAT(Error(1, {{"architectures", nullptr}, {"model_type", "qwen2"}}),
              HasSubstr("model_type: got \"qwen2\""));
  EXPECT_THAT(Error(1, {{"num_hidden_layers", 2}}),
              HasSubstr("num_hidden_layers: got 2, heads of one layer are supported"));
  EXPECT_THAT(Error(3, {{"norm_before_residual", true}}),
              HasSubstr("norm_before_residual: got true"));
  EXPECT_THAT(Error(3, {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}),
              HasSubstr("rope_scaling: got dynamic"));
  EXPECT_THAT(Error(3, {{"attention_bias", true}}),
              HasSubstr("midlayer.self_attn.q_proj.bias: is missing"));
  EXPECT_THAT(Error(1, {{"bias", false}}), HasSubstr("bias: fc.bias is there"));
}

TEST_F(EagleFilesTest, LayersThatVersion3ReadsMayBeNamed) {
  EXPECT_EQ(Error(3, {{"eagle_aux_hidden_state_layer_ids", {0, 1, 7}}}), "");
  EXPECT_EQ(builder::DescribeEagleHead(dir, engine->config)->target_layers,
            (std::vector<int>{0, 1, 7}));
  EXPECT_EQ(Error(3, {{"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {1, 2, 3}}}}}), "");
  EXPECT_EQ(builder::DescribeEagleHead(dir, engine->config)->target_layers,
            (std::vector<int>{1, 2, 3}));
  EXPECT_THAT(Error(3, {{"eagle_aux_hidden_state_layer_ids", {1, 2, 8}}}),
              HasSubstr("eagle_aux_hidden_state_layer_ids: got [1,2,8], ascending layers of the "
                        "model's 8 are needed, from 0"));
  EXPECT_THAT(Error(3, {{"eagle_aux_hidden_state_layer_ids", {1, 2}}}),
              HasSubstr("fc.weight: got [256, 768], needed [256, 512]"));
}

TEST_F(EagleFilesTest, TheVocabularyOfVersion3IsPartOfTheModels) {
  EXPECT_THAT(Error(3, {{"draft_vocab_size", 255}}),
              HasSubstr("lm_head.weight: got [256, 256], needed [255, 256]"));
  EXPECT_THAT(Error(3, {{"draft_vocab_size", 4096}}), HasSubstr("draft_vocab_size: got 4096"));
}

}  // namespace
}  // namespace inflight::golden
