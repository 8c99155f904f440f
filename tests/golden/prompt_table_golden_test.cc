// SPDX-License-Identifier: Apache-2.0
// Prompt tables through the executor against transformers with inputs_embeds
// (make_prompt_table_golden.py): in chunks, in one batch with others, under reuse of blocks, pauses
// and beam search.
#include <gtest/gtest.h>

#include <algorithm>

#include "builder/builder.h"
#include "constants.h"
#include "golden_reference.h"
#include "prompt_table_cases.h"
#include "run_requests.h"

namespace inflight::golden {
namespace {

struct TableAnswer : LogitsSink {
  void OnResponse(Response response) override {
    num_cached_tokens = std::max(num_cached_tokens, response.num_cached_tokens);
    LogitsSink::OnResponse(std::move(response));
  }
  int num_cached_tokens = 0;
};

class PromptTableGoldenTest : public testing::Test {
 protected:
  // Where a model proposes drafts, it is the model itself.
  std::unique_ptr<Executor> Start(const std::string& model, ExecutorOptions options = {},
                                  DType dtype = DType::kF32) {
    auto engine = builder::Open(DataDir() / model, *device_, {.dtype = dtype, .limits = {}});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    const bool has_draft = options.drafts == DraftSource::kModel;
    options.block_size = kBlockSize;
    options.max_batch_size = options.max_batch_size.value_or(8);
    if (!options.max_kv_tokens) options.max_kv_tokens = 4096;
    return MakeExecutor(*engine, *device_, options, {}, {.model = has_draft ? *engine : nullptr});
  }
  static std::shared_ptr<TableAnswer> Run(Executor& executor, const Request& request) {
    return RunAll<TableAnswer>(executor, {request}).front();
  }

  const std::vector<PromptTableCase> cases_ = ReadPromptTableCases();
  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

TEST_F(PromptTableGoldenTest, EqualsTransformers) {
  for (const PromptTableCase& c : cases_)
    for (const int chunk : {0, kBlockSize}) {
      SCOPED_TRACE(c.model + " in chunks of " + std::to_string(chunk));
      ExecutorOptions options;
      if (chunk > 0) options.max_num_tokens = chunk;
      const auto executor = Start(c.model, options);
      EXPECT_EQ(executor->limits().max_prompt_embedding_table_size, 8192);
      Request request = c.GreedyRequest();
      request.output = {.return_context_logits = true, .return_generation_logits = true};
      const auto answer = Run(*executor, request);
      ASSERT_TRUE(answer->last.status.ok()) << answer->last.status.ToString();
      EXPECT_EQ(answer->ids, c.greedy);
      EXPECT_LE(WorstLogit(c, answer->logits), kTolerance);
    }
}

// What a table's request answers among requests with other tables and without any.
TEST_F(PromptTableGoldenTest, TablesOfOneBatchDoNotMix) {
  const PromptTableCase& c = cases_[0];
  auto negated = std::make_shared<PromptTable>(*c.table);
  for (float& value : negated->values) value = -value;
  const auto executor = Start(c.model);
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    Request request = c.GreedyRequest();
    request.streaming = i % 2 == 0;
    request.output.return_log_probs = true;
    if (i % 4 == 1) request.prompt_table = negated;
    if (i % 4 == 2) request.prompt_table = nullptr;
    if (i % 4 == 2)
      for (TokenId& id : request.input_ids) id %= executor->limits().vocab_size;
    requests.push_back(std::move(request));
  }
  const auto together = RunAll<TableAnswer>(*executor, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = Run(*executor, requests[i]);
    EXPECT_EQ(together[i]->ids, alone->ids) << i;
    EXPECT_EQ(together[i]->log_probs, alone->log_probs) << i;
    EXPECT_EQ(together[i]->ids == c.greedy, i % 4 == 0 || i % 4 == 3) << i;
  }
}

TEST_F(PromptTableGoldenTest, BlocksAreSharedWhereTheSaltCoversTheTable) {
  const PromptTableCase& c = cases_[1];
  auto other = std::make_shared<PromptTable>(*c.table);
  std::ranges::reverse(other->values);
  const auto executor = Start(c.model);
  Request request = c.GreedyRequest();
  for (int round = 0; round < 2; ++round) {
    const auto answer = Run(*executor, request);
    EXPECT_EQ(answer->ids, c.greedy);
    EXPECT_EQ(answer->num_cached_tokens, 0) << "nothing says that the tables are equal";
  }
  request.salt_covers_prompt_table = true;
  request.cache_salt = 5;
  for (const int cached : {0, 2 * kBlockSize}) {
    const auto answer = Run(*executor, request);
    EXPECT_EQ(answer->ids, c.greedy);
    EXPECT_EQ(answer->num_cached_tokens, cached);
  }
  request.cache_salt = 6;  // that of another table
  request.prompt_table = other;
  const auto answer = Run(*executor, request);
  EXPECT_EQ(answer->num_cached_tokens, 0);
  EXPECT_NE(answer->ids, c.greedy);
}

TEST_F(PromptTableGoldenTest, PausedRequestsResumeWithTheirTables) {
  const PromptTableCase& c = cases_[0];
  ExecutorOptions options;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  options.max_kv_tokens = 12 * kBlockSize;
  options.enable_prefix_reuse = false;
  const auto executor = Start(c.model, options);
  const auto answers = RunAll<TableAnswer>(*executor, std::vector<Request>(6, c.GreedyRequest()));
  for (const auto& answer : answers) EXPECT_EQ(answer->ids, c.greedy);
  EXPECT_GT(executor->stats().num_pauses, 0);
}

TEST_F(PromptTableGoldenTest, BeamsEqualTransformers) {
  for (const PromptTableCase& c : cases_) {
    const auto executor = Start(c.model);
    Request request = c.GreedyRequest();
    request.sampling.beam_width = static_cast<int>(c.beams.size());
    request.sampling.length_penalty = 1.0F;
    request.max_tokens = static_cast<int>(c.beams[0].size());
    const auto answer = Run(*executor, request);
    ASSERT_EQ(answer->last.beams.size(), c.beams.size()) << c.model;
    for (size_t i = 0; i < c.beams.size(); ++i)
      EXPECT_EQ(answer->last.beams[i].output_ids, c.beams[i]) << c.model << " beam " << i;
  }
}

// Penalties of a prompt of rows alone are those of what was generated alone.
TEST_F(PromptTableGoldenTest, RowsCountForNoPenalty) {
  const PromptTableCase& c = cases_[3];
  ASSERT_TRUE(std::ranges::all_of(
      c.prompt, [&](TokenId id) { return id >= static_cast<TokenId>(c.logits[0].size()); }));
  const auto executor = Start(c.model);
  Request request = c.GreedyRequest();
  request.output.return_log_probs = true;
  request.sampling.repetition_penalty = 1.7F;
  request.sampling.presence_penalty = 0.4F;
  request.sampling.frequency_penalty = 0.3F;
  const auto with_prompt = Run(*executor, request);
  request.sampling.prompt_ignore_length = static_cast<int>(c.prompt.size());
  const auto without = Run(*executor, request);
  EXPECT_EQ(with_prompt->ids, without->ids);
  EXPECT_EQ(with_prompt->log_probs, without->log_probs);
  EXPECT_NE(with_prompt->ids, c.greedy);
}

// Text that repeats what stood before rows: they are no drafts.
TEST_F(PromptTableGoldenTest, NoRowIsADraft) {
  const PromptTableCase& c = cases_[0];
  const auto executor = Start(c.model, {.drafts = DraftSource::kNgram, .max_draft_len = 4});
  const TokenId often = 7;
  Request request = c.GreedyRequest();
  request.input_ids.insert(request.input_ids.begin(), {often, often, often});
  auto bias = std::make_shared<std::vector<float>>(
      static_cast<size_t>(executor->limits().vocab_size), 0.0F);
  (*bias)[often] = 1000;
  request.embedding_bias = bias;
  const auto answer = Run(*executor, request);
  ASSERT_TRUE(answer->last.status.ok()) << answer->last.status.ToString();
  EXPECT_EQ(answer->ids, std::vector<TokenId>(c.greedy.size(), often));
}

// Requests with tables, greedy and sampled, and others beside them: whoever proposes, to the bit
// what they are answered without drafts. Texts propose for all of them; a draft model knows no
// table, and proposes for the others alone.
TEST_F(PromptTableGoldenTest, DraftsChangeNoAnswer) {
  int num_drafted_by_texts = 0;
  for (const std::string model : {"gpt2_tied", "llama_gqa2"}) {
    const auto c = std::ranges::find(cases_, model, &PromptTableCase::model);
    ASSERT_NE(c, cases_.end()) << model;
    const ExecutorOptions plain = {.deterministic = true};
    const auto without = Start(model, plain);
    std::vector<Request> requests;
    for (int i = 0; i < 8; ++i) {
      Request request = c->GreedyRequest();
      request.max_tokens = 120;
      request.output.return_log_probs = true;
      request.streaming = i % 2 == 0;
      if (i % 4 == 3) request.sampling = {.temperature = 0.3F, .top_k = 20, .seed = 5};
      if (i < 4) {
        request.prompt_table = nullptr;
        for (TokenId& id : request.input_ids) id %= without->limits().vocab_size;
      }
      requests.push_back(std::move(request));
    }
    const auto expected = RunAll<TableAnswer>(*without, requests);
    for (const DraftSource source :
         {DraftSource::kNgram, DraftSource::kSuffix, DraftSource::kModel}) {
      SCOPED_TRACE(model + " by source " + std::to_string(static_cast<int>(source)));
      ExecutorOptions options = plain;
      options.drafts = source;
      const auto executor = Start(model, options);
      int num_drafted = 0;
      int num_accepted = 0;
      for (int round = 0; round < 2; ++round) {  // the second has the first one's outputs
        const auto actual = RunAll<TableAnswer>(*executor, requests);
        for (size_t i = 0; i < requests.size(); ++i) {
          ASSERT_TRUE(actual[i]->last.status.ok()) << actual[i]->last.status.ToString();
          EXPECT_EQ(actual[i]->ids, expected[i]->ids) << i;
          EXPECT_EQ(actual[i]->log_probs, expected[i]->log_probs) << i;
          num_accepted += actual[i]->last.num_accepted_draft_tokens;
          if (i >= 4) num_drafted += actual[i]->last.num_draft_tokens;
        }
      }
      EXPECT_GT(num_accepted, 0);
      if (source == DraftSource::kModel)
        EXPECT_EQ(num_drafted, 0) << "of requests with tables";
      else
        num_drafted_by_texts += num_drafted;
    }
  }
  EXPECT_GT(num_drafted_by_texts, 0);
}

// Rows are rounded to the model's dtype: what float32 says, rounded before, is said again.
TEST_F(PromptTableGoldenTest, RowsHaveTheModelsDType) {
  const PromptTableCase& c = cases_[5];
  auto rounded = std::make_shared<PromptTable>(*c.table);
  for (float& value : rounded->values) value = BFloat16::FromFloat(value).ToFloat();
  ASSERT_NE(rounded->values, c.table->values);
  const auto executor = Start(c.model, {}, DType::kBF16);
  Request request = c.GreedyRequest();
  request.output.return_context_logits = true;
  const auto given = Run(*executor, request);
  request.prompt_table = rounded;
  EXPECT_EQ(Run(*executor, request)->logits, given->logits);
}

TEST_F(PromptTableGoldenTest, AnEngineWithoutTablesRefusesThem) {
  const PromptTableCase& c = cases_[0];
  auto engine = builder::Open(DataDir() / c.model, *device_,
                              {.dtype = DType::kF32, .limits = model::EngineLimits{}});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  const auto executor = MakeExecutor(*engine, *device_, {.max_kv_tokens = 4096});
  const Status status =
      executor->Enqueue(c.GreedyRequest(), std::make_shared<CollectingSink>()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.field(), "prompt_embedding_table");
}

}  // namespace
}  // namespace inflight::golden
