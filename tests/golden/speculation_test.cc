// SPDX-License-Identifier: Apache-2.0
// Speculation changes no answer: what requests are answered with drafts is what they are answered
// without, bit for bit. On a CPU, and in cuda_golden_test on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "artifact/safetensors.h"
#include "artifact/tensor_set.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/eagle_files.h"
#include "constants.h"
#include "even_clock.h"
#include "golden_reference.h"
#include "lora_cases.h"
#include "run_requests.h"
#include "speculation_cases.h"
#ifdef INFLIGHT_GOLDEN_CUDA
#include "tensor/test_gpu.h"
#endif

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;

struct SpeculationTest : testing::Test {
  void SetUp() override {
    DType dtype = DType::kF32;
#ifdef INFLIGHT_GOLDEN_CUDA
    NEED_TEST_GPU();
    device = std::shared_ptr<Device>(TestGpu().value().get(), [](Device*) {});
    dtype = DType::kBF16;
#endif
    auto opened = builder::Open(INFLIGHT_DEMO_MODEL, *device, {.dtype = dtype, .limits = {}});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    engine = *std::move(opened);
    options.block_size = kBlockSize;
    options.max_batch_size = 8;
    options.max_kv_tokens = 4096;
    options.deterministic = true;
  }

  bool has_even_clock = true;  // a machine that is busy makes no draft too dear

  Sinks Run(const ExecutorOptions& with, const std::vector<Request>& requests) {
    EvenClock even_clock;
    const auto executor = MakeExecutor(engine, *device, with, {}, draft,
                                       has_even_clock ? even_clock : Clock::System());
    Sinks sinks = RunAll<RowsSink>(*executor, requests);
    executor->Shutdown(0);
    stats = executor->stats();
    return sinks;
  }

  // All at once, or one after another.
  void ExpectSame(const ExecutorOptions& with, const std::vector<Request>& requests,
                  const Sinks& expected, bool alone = false) {
    Sinks actual;
    int64_t num_drafted = 0;
    int64_t num_accepted = 0;
    if (alone) {
      for (const Request& request : requests) {
        actual.push_back(Run(with, {request})[0]);
        num_drafted += stats.tokens_drafted, num_accepted += stats.drafts_accepted;
      }
    } else {
      actual = Run(with, requests);
      num_drafted = stats.tokens_drafted, num_accepted = stats.drafts_accepted;
    }
    EXPECT_GT(num_accepted, 0);
    EXPECT_GE(num_drafted, num_accepted);  // how many are tried depends on what steps take
    int told_drafted = 0;
    int told_accepted = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
        ExpectEqual(*actual[i], *expected[i], i);
      told_drafted += actual[i]->last.num_draft_tokens;
      told_accepted += actual[i]->last.num_accepted_draft_tokens;
    }
    EXPECT_EQ(told_drafted, num_drafted);
    EXPECT_EQ(told_accepted, num_accepted);
  }

  // What the host draws on a GPU has log-probs of another sum.
  void ExpectSameLogProbs(const RowsSink& actual, const RowsSink& expected) const {
    for (size_t i = 0; i < actual.log_probs.size(); ++i) {
      if (device->kind() == DeviceKind::kCpu)
        EXPECT_EQ(actual.log_probs[i], expected.log_probs[i]);
      else
        EXPECT_NEAR(actual.log_probs[i], expected.log_probs[i], 1e-5);
    }
  }

  // Of those that TwoHundredPromptsAreAnsweredTheSame asks.
  struct Proposer {
    std::string name;
    DraftSource source = DraftSource::kNone;
    executor::DraftWeights draft{};
    std::shared_ptr<const model::Engine> engine = nullptr;  // null: the test's
  };
#ifndef INFLIGHT_GOLDEN_CUDA
  void AddHeads(std::vector<Proposer>* proposers) {
    for (const std::string version : {"v1", "v3"}) {
      const auto head = builder::OpenEagleHead(fs::path(INFLIGHT_EAGLE_GOLDEN_DATA) / version,
                                               engine->config, *device);
      ASSERT_TRUE(head.ok()) << head.status().ToString();
      proposers->push_back(
          {.name = version, .source = DraftSource::kEagle, .draft = {.eagle = *head}});
    }
    auto opened = OpenWithMedusa();
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    proposers->push_back(
        {.name = "Medusa", .source = DraftSource::kMedusa, .engine = *std::move(opened)});
  }

  // The model with heads that were never trained: blocks of zeros before the model's own lm_head,
  // so that each says the next token once more.
  Result<std::shared_ptr<const model::Engine>> OpenWithMedusa() {
    constexpr int kNumHeads = 2;
    const fs::path dir = fs::path(testing::TempDir()) / "speculation_medusa";
    fs::remove_all(dir);
    fs::create_directories(dir / "heads");
    RETURN_IF_ERROR(WriteFile(dir / "heads/config.json", R"({"medusa_num_heads": 2})"));
    ASSIGN_OR_RETURN(const artifact::TensorSet stored,
                     artifact::TensorSet::OpenModel(INFLIGHT_DEMO_MODEL));
    const artifact::StoredTensor& table = *stored.Find("model.embed_tokens.weight");
    const int64_t width = table.shape[1];
    std::vector<artifact::TensorSpec> specs;
    for (int head = 0; head < kNumHeads; ++head) {
      const std::string name = std::to_string(head);
      specs.push_back({name + ".0.linear.weight", table.dtype, {width, width}});
      specs.push_back({name + ".0.linear.bias", table.dtype, {width}});
      specs.push_back({name + ".1.weight", table.dtype, table.shape});
    }
    ASSIGN_OR_RETURN(auto writer, artifact::SafetensorsWriter::Create(
                                      dir / "heads/medusa_lm_head.safetensors", specs));
    const std::vector<std::byte> zeros(BytesOf(table.dtype, width * (width + 1)));
    for (int head = 0; head < kNumHeads; ++head) {
      RETURN_IF_ERROR(writer.Append(zeros));
      RETURN_IF_ERROR(writer.Append(table.data));
    }
    RETURN_IF_ERROR(writer.Finish());
    RETURN_IF_ERROR(builder::Convert({.model_dir = INFLIGHT_DEMO_MODEL,
                                      .output_dir = dir / "checkpoint",
                                      .dtype = "float32",
                                      .medusa = {.dir = dir / "heads"}}));
    auto opened = builder::Open(dir / "checkpoint", *device);
    fs::remove_all(dir);
    return opened;
  }
#endif

  std::shared_ptr<Device> device = Device::Cpu();
  std::shared_ptr<const model::Engine> engine;
  executor::DraftWeights draft;  // what proposes beside the model, if anything does
  ExecutorOptions options;
  ExecutorStats stats;
};

TEST_F(SpeculationTest, EveryKindOfRequestIsAnsweredTheSame) {
  const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  const Sinks expected = Run(options, requests);
  EXPECT_EQ(stats.tokens_drafted, 0);
  options.drafts = DraftSource::kNgram;
  for (const int length : {1, 4, 15}) {
    SCOPED_TRACE("max_draft_len " + std::to_string(length));
    options.max_draft_len = length;
    ExpectSame(options, requests, expected);
  }
  options.max_draft_len = {};
  ExpectSame(options, requests, expected, /*alone=*/true);
}

// The second time all answers are among the outputs that ended.
TEST_F(SpeculationTest, OutputsThatEndedProposeWhatComesAgain) {
  auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  const size_t num_first = requests.size();
  for (size_t i = 0; i < num_first; ++i) requests.push_back(requests[i]);
  options.max_batch_size = 4;
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kSuffix;
  for (const int length : {1, 4, 15}) {
    SCOPED_TRACE("max_draft_len " + std::to_string(length));
    options.max_draft_len = length;
    ExpectSame(options, requests, expected);
  }
  options.max_num_tokens = 24;
  options.max_kv_tokens = 256;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  ExpectSame(options, requests, expected);
  EXPECT_GT(stats.num_pauses, 0);
}

TEST_F(SpeculationTest, AlsoInChunksWithPausesAndWithoutReuse) {
  const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  options.max_num_tokens = 24;
  ExpectSame(options, requests, expected);
  options.max_kv_tokens = 256;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  ExpectSame(options, requests, expected);
  EXPECT_GT(stats.num_pauses, 0);
  options.enable_prefix_reuse = false;
  options.chunking_policy = ChunkingPolicy::kEqualProgress;
  ExpectSame(options, requests, expected);
}

TEST_F(SpeculationTest, BeamSearchesGoBesideIt) {
  auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  requests.resize(6);
  for (const size_t i : {size_t{1}, size_t{4}}) requests[i].sampling = {.beam_width = 3};
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  const Sinks actual = Run(options, requests);
  EXPECT_GT(stats.drafts_accepted, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectEqual(*actual[i], *expected[i], i);
    ASSERT_EQ(actual[i]->last.beams.size(), expected[i]->last.beams.size());
    for (size_t b = 0; b < actual[i]->last.beams.size(); ++b)
      EXPECT_EQ(actual[i]->last.beams[b].output_ids, expected[i]->last.beams[b].output_ids);
  }
}

TEST_F(SpeculationTest, ARequestMayLeaveDraftsOut) {
  auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  for (Request& request : requests) request.sampling.disable_speculation = true;
  options.drafts = DraftSource::kNgram;
  const Sinks sinks = Run(options, requests);
  EXPECT_EQ(stats.tokens_drafted, 0);
  EXPECT_EQ(sinks[0]->last.num_draft_tokens, 0);
}

TEST_F(SpeculationTest, SlidingWindowsHoldNoDraftBack) {
  const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  options.attention_windows = {32};
  options.sink_tokens = 4;
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  ExpectSame(options, requests, expected);
}

// Of few tokens, so that a draft that is taken for another token of the step is found right at
// times.
TEST_F(SpeculationTest, LogitsOfPromptsBesideDraftsChangeNothing) {
  constexpr std::array<TokenId, 4> kTokens = {5, 6, 7, 8};
  auto bias =
      std::make_shared<std::vector<float>>(static_cast<size_t>(engine->config.vocab_size), 0.0F);
  for (const TokenId id : kTokens) (*bias)[static_cast<size_t>(id)] = 30.0F;
  std::mt19937 random(7);
  std::vector<Request> requests;
  for (int i = 0; i < 16; ++i) {
    Request request;
    for (int t = 0; t < 40; ++t) request.input_ids.push_back(kTokens[random() % kTokens.size()]);
    request.max_tokens = 30 + i;
    request.embedding_bias = bias;
    request.sampling = {.temperature = 1.0F, .top_k = 4, .seed = static_cast<uint64_t>(i)};
    request.output.return_context_logits = i % 2 == 1;
    requests.push_back(std::move(request));
  }
  options.max_batch_size = 4;
  options.max_num_tokens = 24;
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  ExpectSame(options, requests, expected);
}

// 200 texts of the model's own, whatever proposes, streamed and not, alone and eight at once.
TEST_F(SpeculationTest, TwoHundredPromptsAreAnsweredTheSame) {
  has_even_clock = false;  // by which even drafts that are dear would be made
  constexpr int kNumPrompts = 200;
  constexpr int kNumWithDrafts = 16;
  Prompts prompts(engine->config.vocab_size);
  std::vector<Request> requests;
  for (int i = 0; i < kNumPrompts; ++i) {
    Request request;
    request.input_ids = {prompts.Any(), prompts.Any()};
    request.max_tokens = 30;
    request.sampling = {.temperature = 0.7F, .top_k = 40, .seed = static_cast<uint64_t>(i)};
    requests.push_back(std::move(request));
  }
  const Sinks texts = Run(options, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].input_ids.insert(requests[i].input_ids.end(), texts[i]->ids.begin(),
                                 texts[i]->ids.end());
    requests[i].max_tokens = 24;
    requests[i].sampling = {};
  }
  const Sinks expected = Run(options, requests);
  auto opened = builder::Open(INFLIGHT_DEMO_MODEL "-draft", *device,
                              {.dtype = engine->config.dtype, .limits = {}});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  std::vector<Proposer> proposers = {
      {.name = "n-grams", .source = DraftSource::kNgram},
      {.name = "a model", .source = DraftSource::kModel, .draft = {.model = *std::move(opened)}},
      {.name = "texts", .source = DraftSource::kSuffix}};
#ifndef INFLIGHT_GOLDEN_CUDA
  AddHeads(&proposers);
#endif
  for (const Proposer& proposer : proposers) {
    SCOPED_TRACE(proposer.name);
    options.drafts = proposer.source;
    draft = proposer.draft;
    if (proposer.engine != nullptr) engine = proposer.engine;
    for (const int batch_size : {1, 8}) {
      options.max_batch_size = batch_size;
      for (Request& request : requests) request.streaming = batch_size > 1;
      const Sinks actual = Run(options, requests);
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(actual[i]->ids, expected[i]->ids) << "prompt " << i;
    }
    // A busy machine may have found each draft too dear above.
    has_even_clock = true;
    Run(options, {requests.begin(), requests.begin() + kNumWithDrafts});
    has_even_clock = false;
    EXPECT_GT(stats.drafts_accepted, 0);
    if (proposer.source == DraftSource::kModel) {
      EXPECT_GT(stats.drafts_accepted, stats.tokens_drafted / 2) << "it was trained for this";
    }
  }
}

// A token and its drafts are of the row's adapter; rows of other adapters, and of none, beside it.
TEST_F(SpeculationTest, RowsWithAdaptersHaveDraftsToo) {
  const DType dtype = engine->config.dtype;
  auto opened = builder::Open(DataDir() / "llama_head64", *device, {.dtype = dtype, .limits = {}});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  engine = *std::move(opened);
  Prompts prompts(engine->config.vocab_size);
  std::vector<Request> requests;
  for (const LoraCase& c : ReadLoraCases()) {
    if (c.model != "llama_head64") continue;
    Request request = RequestOf(c, requests.size());
    request.input_ids = prompts.Periodic(4, 20);
    request.max_tokens = 40;
    request.output = {.return_log_probs = true};
    requests.push_back(std::move(request));
  }
  ASSERT_GT(requests.size(), 4);
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  ExpectSame(options, requests, expected);
  options.drafts = DraftSource::kModel;
  draft.model = engine;
  const Sinks actual = Run(options, requests);
  EXPECT_GT(stats.drafts_accepted, 0);
  for (size_t i = 0; i < requests.size(); ++i) ExpectEqual(*actual[i], *expected[i], i);
}

// The model itself proposes what it then says; one of random weights knows nothing.
TEST_F(SpeculationTest, AModelProposesWhatAnotherJudges) {
  const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  const Sinks expected = Run(options, requests);
  auto random = builder::Random(engine->config, engine->limits, /*seed=*/3, *device, false);
  ASSERT_TRUE(random.ok()) << random.status().ToString();
  options.drafts = DraftSource::kModel;
  for (const bool knows : {true, false}) {
    SCOPED_TRACE(knows ? "the model itself" : "random weights");
    draft.model = knows ? engine : *random;
    for (const int batch_size : {3, 20}) {  // more sequences than the draft model has room for
      options.max_batch_size = batch_size;
      const Sinks actual = Run(options, requests);
      EXPECT_GT(stats.tokens_drafted, 0);
      if (knows) {
        EXPECT_GT(stats.drafts_accepted, stats.tokens_drafted * 3 / 4);
      } else {
        EXPECT_LT(stats.drafts_accepted, stats.tokens_drafted / 4);
      }
      ExpectAllEqual(requests, actual, expected);
    }
  }
  options.max_num_tokens = 24;
  options.max_kv_tokens = 256;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  draft.model = engine;
  const Sinks actual = Run(options, requests);
  EXPECT_GT(stats.num_pauses, 0);
  ExpectAllEqual(requests, actual, expected);
}

TEST_F(SpeculationTest, AModelOfAnotherVocabularyIsRefused) {
  model::ModelConfig config = engine->config;
  config.vocab_size = 1000;
  auto random = builder::Random(config, engine->limits, /*seed=*/3, *device, false);
  ASSERT_TRUE(random.ok()) << random.status().ToString();
  options.drafts = DraftSource::kModel;
  const auto made = executor::CreateLocalBackend(engine, *device, options, {}, {*random});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(
      made.status().message(),
      "draft_model: its vocabulary has 1000 tokens, the model's 2048; both need one tokenizer");
}
// --- drafts that come with the request ---

struct ClientDraftsTest : SpeculationTest {
  void SetUp() override {
    SpeculationTest::SetUp();
    if (IsSkipped()) return;
    options.max_draft_len = 8;
    options.step_time_goal_ms = 0;  // whole prompts in one step
  }

  // What a request of that prompt is answered without drafts.
  Request Plain(bool sampled, int max_tokens) {
    Prompts prompts(engine->config.vocab_size);
    Request request;
    request.input_ids = prompts.Periodic(5, 37);
    request.max_tokens = max_tokens;
    request.output.return_log_probs = true;
    request.output.return_generation_logits = true;
    if (sampled) request.sampling = {.temperature = 1.0F, .top_k = 50, .seed = 5};
    return request;
  }
};

TEST_F(ClientDraftsTest, AreAcceptedAsFarAsTheyAreRight) {
  for (const bool sampled : {false, true}) {
    Request request = Plain(sampled, 9);
    const Sinks plain = Run(options, {request});
    const std::vector<TokenId> right(plain[0]->ids.begin(), plain[0]->ids.begin() + 8);
    for (size_t num_right = 0; num_right <= 8; ++num_right) {
      SCOPED_TRACE(std::to_string(num_right) + " right");
      request.draft_ids = right;
      for (size_t i = num_right; i < 8; ++i) request.draft_ids[i] = right[i] == 7 ? 8 : 7;
      const Sinks sinks = Run(options, {request});
      const std::vector<TokenId> expected(
          plain[0]->ids.begin(), plain[0]->ids.begin() + static_cast<ptrdiff_t>(num_right) + 1);
      EXPECT_EQ(sinks[0]->ids, expected);
      EXPECT_EQ(sinks[0]->last.finish_reason, FinishReason::kLength);
      EXPECT_EQ(sinks[0]->last.num_draft_tokens, 8);
      EXPECT_EQ(sinks[0]->last.num_accepted_draft_tokens, static_cast<int>(num_right));
      EXPECT_EQ(stats.num_steps, 1);
      ExpectSameLogProbs(*sinks[0], *plain[0]);
      EXPECT_EQ(sinks[0]->logits.size(),
                (num_right + 1) * static_cast<size_t>(engine->config.vocab_size));
      EXPECT_TRUE(
          std::equal(sinks[0]->logits.begin(), sinks[0]->logits.end(), plain[0]->logits.begin()));
    }
  }
}

// With the target's own logits every draft that it could draw is as likely as its model had it.
TEST_F(ClientDraftsTest, AreAcceptedByTheirLogits) {
  for (const bool sampled : {false, true}) {
    Request request = Plain(sampled, 9);
    const Sinks plain = Run(options, {request});
    request.draft_ids.assign(plain[0]->ids.begin(), plain[0]->ids.begin() + 8);
    const auto width = static_cast<ptrdiff_t>(engine->config.vocab_size);
    auto logits = std::make_shared<std::vector<float>>(plain[0]->logits.begin(),
                                                       plain[0]->logits.begin() + 8 * width);
    request.draft_logits = logits;
    Sinks sinks = Run(options, {request});
    EXPECT_EQ(sinks[0]->ids, plain[0]->ids);
    ExpectSameLogProbs(*sinks[0], *plain[0]);
    // What the third was drawn from names another token alone: of the target's it is never drawn.
    const TokenId other = request.draft_ids[2] == 7 ? 8 : 7;
    std::fill_n(logits->begin() + 2 * width, width, -100.0F);
    (*logits)[static_cast<size_t>(2 * width + other)] = 100.0F;
    request.draft_ids[2] = other;
    request.draft_acceptance_threshold = 1.0F;
    sinks = Run(options, {request});
    ASSERT_EQ(sinks[0]->ids.size(), 3);
    EXPECT_EQ(sinks[0]->ids[1], plain[0]->ids[1]);
    EXPECT_NE(sinks[0]->ids[2], other);
    EXPECT_EQ(sinks[0]->last.num_accepted_draft_tokens, 2);
  }
}

TEST_F(ClientDraftsTest, EndWhereTheSequenceEnds) {
  Request request = Plain(false, 9);
  const std::vector<TokenId> right = Run(options, {request})[0]->ids;
  request.draft_ids.assign(right.begin(), right.begin() + 8);
  const TokenId end = right[3];
  const auto first = std::find(right.begin(), right.end(), end);
  request.end_ids = {end};
  Sinks sinks = Run(options, {request});
  EXPECT_EQ(sinks[0]->ids, (std::vector<TokenId>(right.begin(), first)))
      << "the end id is left out";
  EXPECT_EQ(sinks[0]->last.finish_reason, FinishReason::kEndId);
  request.end_ids = {};
  request.stop_words = {{end}};
  sinks = Run(options, {request});
  EXPECT_EQ(sinks[0]->ids, (std::vector<TokenId>(right.begin(), first + 1)));
  EXPECT_EQ(sinks[0]->last.finish_reason, FinishReason::kStopWords);
}

TEST_F(ClientDraftsTest, ThoseBeyondTheLengthAreLeftOut) {
  Request request = Plain(false, 9);
  const std::vector<TokenId> right = Run(options, {request})[0]->ids;
  request.draft_ids.assign(right.begin(), right.begin() + 8);
  for (const int max_tokens : {1, 2, 5}) {
    request.max_tokens = max_tokens;
    const Sinks sinks = Run(options, {request});
    EXPECT_EQ(sinks[0]->ids, (std::vector<TokenId>(right.begin(), right.begin() + max_tokens)));
    EXPECT_EQ(sinks[0]->last.num_draft_tokens, max_tokens - 1);
  }
}

// A step that lacks the room leaves some out; the client asks again.
TEST_F(ClientDraftsTest, RoundsInChunksGiveTheWholeAnswer) {
  options.max_num_tokens = 16;
  for (const auto chunking :
       {ChunkingPolicy::kFirstComeFirstServed, ChunkingPolicy::kEqualProgress}) {
    options.chunking_policy = chunking;
    const Request plain = Plain(true, 30);
    const std::vector<TokenId> expected = Run(options, {plain})[0]->ids;
    const auto executor = MakeExecutor(engine, *device, options);
    std::vector<TokenId> ids;
    for (int round = 0; std::ssize(ids) < 30; ++round) {
      ASSERT_LT(round, 30);
      Request request = plain;
      request.input_ids.insert(request.input_ids.end(), ids.begin(), ids.end());
      request.max_tokens = 30 - static_cast<int>(ids.size());
      const auto begin = expected.begin() + std::ssize(ids);
      request.draft_ids.assign(begin, begin + std::min<ptrdiff_t>(6, expected.end() - begin));
      if (round % 3 == 1) request.draft_ids[0] = 7;
      const auto sinks = RunAll<RowsSink>(*executor, {request, request});
      const size_t both = std::min(sinks[0]->ids.size(), sinks[1]->ids.size());
      ASSERT_GT(both, 0);
      EXPECT_TRUE(std::equal(sinks[0]->ids.begin(),
                             sinks[0]->ids.begin() + static_cast<ptrdiff_t>(both),
                             sinks[1]->ids.begin()));
      ids.insert(ids.end(), sinks[0]->ids.begin(), sinks[0]->ids.end());
    }
    EXPECT_EQ(ids, expected);
  }
}

TEST_F(ClientDraftsTest, AreRefusedByName) {
  const auto error = [this](const Request& request) {
    const auto executor = MakeExecutor(engine, *device, options);
    const auto id = executor->Enqueue(request, std::make_shared<CollectingSink>());
    return id.ok() ? "" : id.status().message();
  };
  Request request = Plain(false, 20);
  request.draft_ids.assign(9, 5);
  EXPECT_TRUE(error(request).starts_with(
      "Draft tokens length (9) exceeds maximum draft tokens length (8)."))
      << error(request);
  request.draft_ids = {5, engine->config.vocab_size};
  EXPECT_TRUE(error(request).starts_with("draft_ids[1]: got ")) << error(request);
  request.draft_ids = {};
  request.draft_logits = std::make_shared<std::vector<float>>(3);
  EXPECT_EQ(error(request), "Draft tokens must be specified when draft logits are given.");
  request.draft_ids = {5};
  EXPECT_TRUE(error(request).starts_with("draft_logits: got 3 values, 1 draft tokens of "))
      << error(request);
  request.draft_logits = nullptr;
  request.draft_acceptance_threshold = 1.5F;
  EXPECT_TRUE(error(request).starts_with("draft_acceptance_threshold: got 1.5")) << error(request);
  request.draft_acceptance_threshold = {};
  request.sampling.beam_width = 2;
  EXPECT_TRUE(error(request).starts_with("Can't use speculative decoding with beam search."))
      << error(request);
  request.sampling.beam_width = 1;
  options.enable_prefix_reuse = false;
  EXPECT_TRUE(error(request).starts_with(
      "KV cache block reuse must be enabled for speculative decoding target model"))
      << error(request);
  options.enable_prefix_reuse = true;
  EXPECT_EQ(error(request), "");
}

}  // namespace
}  // namespace inflight::golden
