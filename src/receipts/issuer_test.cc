// SPDX-License-Identifier: Apache-2.0
// From responses of an executor to a receipt, and back: what it says, and what a comparison finds.
// Of the executor the tests say what it answers.
#include "receipts/issuer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "receipts/hashes.h"
#include "receipts/verify.h"

namespace inflight::receipts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const ExecutorLimits kLimits = {.vocab_size = 300, .max_seq_len = 64, .max_input_len = 32};

EngineRecord Here() {
  return {
      .weights = "aa",
      .architecture = "LlamaForCausalLM",
      .quant_algo = "none",
      .kernels = {.table = "cpu/avx2", .device = "cpu", .dtype = "float32", .program = "0.1.0"}};
}

Request Asked() {
  Request request{.input_ids = {5, 6}, .max_tokens = 100, .end_ids = {2, -1}};
  request.sampling.seed = 7;
  return request;
}

Response Part(std::vector<TokenId> ids, int sequence = 0,
              FinishReason reason = FinishReason::kNotFinished, bool is_final = false) {
  return {.is_final = is_final,
          .sequence_index = sequence,
          .is_sequence_final = reason != FinishReason::kNotFinished,
          .output_ids = std::move(ids),
          .finish_reason = reason};
}

const auto kNeverStops = [](int) { return false; };

Receipt Finished(const Draft& draft, const std::function<bool(int)>& has_stopped = kNeverStops) {
  const auto receipt = ParseReceipt(draft.Finish(has_stopped));
  EXPECT_TRUE(receipt.ok()) << receipt.status().ToString();
  return receipt.ok() ? *receipt : Receipt();
}

std::string NotCoveredOf(const Request& request) {
  const Status status =
      ParseReceipt(Issuer(Here(), {}).Begin(request, kLimits).Finish(kNeverStops)).status();
  return status.ok() ? "" : status.message();
}

Receipt Streamed() {
  Draft draft = Issuer(Here(), {}).Begin(Asked(), kLimits);
  draft.Add(Part({10, 11}), true);
  draft.Add(Part({12}, 0, FinishReason::kEndId, true), true);
  return Finished(draft);
}

TEST(IssuerTest, PutsTheResponsesOfAStreamTogether) {
  const Receipt receipt = Streamed();
  ASSERT_EQ(receipt.outputs.size(), 1U);
  EXPECT_THAT(receipt.outputs.front().ids, ElementsAre(10, 11, 12));
  EXPECT_EQ(receipt.outputs.front().end, "end_id");
  EXPECT_EQ(receipt.outputs.front().log_probs, "");
  EXPECT_EQ(receipt.prompt, HashOfIds(std::vector<TokenId>{5, 6}));
  EXPECT_THAT(receipt.request.input_ids, ElementsAre(5, 6));
  EXPECT_EQ(receipt.request.max_tokens, 62);  // what 64 leave behind the prompt
  EXPECT_THAT(receipt.request.end_ids, ElementsAre(2));
  EXPECT_EQ(receipt.engine.weights, "aa");
}

TEST(IssuerTest, KeepsSequencesApart) {
  Request request = Asked();
  request.sampling.num_return_sequences = 3;
  request.output.return_log_probs = true;
  Draft draft = Issuer(Here(), {}).Begin(request, kLimits);
  Response part = Part({20}, 1);
  part.output_log_probs = {-0.5F};
  draft.Add(part, true);
  part = Part({21}, 1, FinishReason::kLength);
  part.output_log_probs = {-1.25F};
  draft.Add(part, true);
  draft.Add(Part({30}, 2, FinishReason::kStopWords), true);
  draft.Add(Part({}, 0, FinishReason::kEndId, true), true);
  const Receipt receipt = Finished(draft);
  ASSERT_EQ(receipt.outputs.size(), 3U);
  EXPECT_EQ(receipt.outputs[0].end, "end_id");
  EXPECT_THAT(receipt.outputs[1].ids, ElementsAre(20, 21));
  EXPECT_EQ(receipt.outputs[1].log_probs, HashOfNumbers(std::vector<float>{-0.5F, -1.25F}));
  EXPECT_EQ(receipt.outputs[2].end, "stop_words");
}

TEST(IssuerTest, TokensBehindAStopTextAreNotOfTheAnswer) {
  Draft draft = Issuer(Here(), {}).Begin(Asked(), kLimits);
  draft.Add(Part({10, 11}), true);
  draft.Add(Part({12}), false);
  draft.Add(Part({}, 0, FinishReason::kCancelled, true), false);
  const Receipt receipt = Finished(draft, [](int) { return true; });
  EXPECT_THAT(receipt.outputs.front().ids, ElementsAre(10, 11));
  EXPECT_EQ(receipt.outputs.front().end, "stop_text");
  EXPECT_TRUE(receipt.outputs.front().is_cut());
}

TEST(IssuerTest, ACancelledSequenceIsCut) {
  Draft draft = Issuer(Here(), {}).Begin(Asked(), kLimits);
  draft.Add(Part({10}, 0, FinishReason::kCancelled, true), true);
  const Receipt receipt = Finished(draft);
  EXPECT_EQ(receipt.outputs.front().end, "cancelled");
  EXPECT_TRUE(receipt.outputs.front().is_cut());
}

TEST(IssuerTest, BeamsAreThoseOfTheFinalResponse) {
  Request request = Asked();
  request.sampling.beam_width = 2;
  Response response{.beams = {{.output_ids = {1}}, {.output_ids = {9}}}};
  const Beam best = {.output_ids = {1, 2}, .finish_reason = FinishReason::kLength};
  const Beam next = {.output_ids = {3}, .finish_reason = FinishReason::kEndId};
  Draft draft = Issuer(Here(), {}).Begin(request, kLimits);
  draft.Add(response, true);
  response = {.is_final = true, .finish_reason = FinishReason::kLength, .beams = {best, next}};
  draft.Add(response, true);
  const Receipt receipt = Finished(draft);
  ASSERT_EQ(receipt.outputs.size(), 2U);
  EXPECT_THAT(receipt.outputs[0].ids, ElementsAre(1, 2));
  EXPECT_EQ(receipt.outputs[1].end, "end_id");

  draft = Issuer(Here(), {}).Begin(request, kLimits);
  response.finish_reason = FinishReason::kCancelled;
  draft.Add(response, true);
  EXPECT_THAT(draft.Finish(kNeverStops), HasSubstr("a cancelled beam search"));
}

TEST(IssuerTest, SaysWhatItDoesNotCover) {
  Request request = Asked();
  EXPECT_EQ(NotCoveredOf(request), "");
  request.embedding_bias = std::make_shared<std::vector<float>>(300);
  EXPECT_THAT(NotCoveredOf(request), HasSubstr("embedding_bias"));
  request = Asked();
  request.draft_ids = {1};
  EXPECT_THAT(NotCoveredOf(request), HasSubstr("draft_ids"));
  request = Asked();
  request.lora = LoraUse{.id = 1};
  EXPECT_THAT(NotCoveredOf(request), HasSubstr("lora_task_id"));
  request.lora = LoraUse{.id = 1, .is_own = true, .read = [] {
                           return Result<std::shared_ptr<const LoraTensors>>(NotFound("gone"));
                         }};
  EXPECT_THAT(NotCoveredOf(request), HasSubstr("an adapter that cannot be read"));
}

TEST(IssuerTest, ReadsAnAdapterOnce) {
  const auto tensors = std::make_shared<const LoraTensors>(LoraTensors{.width = 1});
  int num_reads = 0;
  Request request = Asked();
  request.lora = LoraUse{.id = 3, .is_own = true, .read = [&] {
                           ++num_reads;
                           return Result<std::shared_ptr<const LoraTensors>>(tensors);
                         }};
  Issuer issuer(Here(), {});
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(Finished(issuer.Begin(request, kLimits)).adapter, HashOfAdapter(*tensors));
  EXPECT_EQ(num_reads, 1);
}

// Else its files may be others by the time that the executor reads them.
TEST(IssuerTest, AnAdapterIsComputedWithAsItWasHashed) {
  int num_reads = 0;
  Request request = Asked();
  request.lora =
      LoraUse{.id = 3, .is_own = true, .read = [&] {
                return Result<std::shared_ptr<const LoraTensors>>(
                    std::make_shared<const LoraTensors>(LoraTensors{.width = ++num_reads}));
              }};
  Issuer issuer(Here(), {});
  issuer.BringAdapter(request);
  const Receipt receipt = Finished(issuer.Begin(request, kLimits));
  ASSERT_NE(request.lora->tensors, nullptr);
  EXPECT_EQ(receipt.adapter, HashOfAdapter(*request.lora->tensors));
  request.lora->tensors = nullptr;  // of the next one, which the executor has
  issuer.BringAdapter(request);
  EXPECT_EQ(request.lora->tensors, nullptr);
  EXPECT_EQ(Finished(issuer.Begin(request, kLimits)).adapter, receipt.adapter);
  EXPECT_EQ(num_reads, 1);
}

TEST(IssuerTest, MayKeepThePromptOut) {
  const Draft draft = Issuer(Here(), {.has_prompts = false}).Begin(Asked(), kLimits);
  const Receipt receipt = Finished(draft);
  EXPECT_THAT(receipt.request.input_ids, IsEmpty());
  EXPECT_EQ(receipt.num_prompt_tokens, 2);
  EXPECT_EQ(receipt.prompt, HashOfIds(std::vector<TokenId>{5, 6}));
}

// Answers what a test says.
class ScriptedExecutor : public Executor {
 public:
  explicit ScriptedExecutor(std::vector<Response> answer) : answer_(std::move(answer)) {}

  Result<RequestId> Enqueue(Request request, std::shared_ptr<ResponseSink> sink) override {
    asked = std::move(request);
    for (const Response& response : answer_) sink->OnResponse(response);
    return RequestId{1};
  }
  void Cancel(RequestId) override {}
  const ExecutorLimits& limits() const override { return kLimits; }
  ExecutorStats stats() const override { return {}; }
  void TakeIterationStats(std::vector<ExecutorStats>*) override {}
  void TakeRequestStats(std::vector<RequestStatsPerIteration>*) override {}
  bool healthy() const override { return true; }
  void Shutdown(int64_t) override {}

  Request asked;

 private:
  const std::vector<Response> answer_;
};

std::vector<std::string> Compared(const Receipt& receipt, Response answer) {
  ScriptedExecutor executor({std::move(answer)});
  const auto differences = Verify(receipt, {.engine = Here(), .executor = &executor});
  EXPECT_TRUE(differences.ok()) << differences.status().ToString();
  return differences.ok() ? *differences : std::vector<std::string>();
}

TEST(VerifyTest, TheSameTokensAreVerified) {
  EXPECT_THAT(Compared(Streamed(), Part({10, 11, 12}, 0, FinishReason::kEndId, true)), IsEmpty());
}

TEST(VerifyTest, TellsTheFirstTokenThatIsAnother) {
  EXPECT_THAT(Compared(Streamed(), Part({10, 13, 14}, 0, FinishReason::kEndId, true)),
              ElementsAre("output 0: token 11 at position 1, the model gives 13"));
  EXPECT_THAT(Compared(Streamed(), Part({10, 11}, 0, FinishReason::kEndId, true)),
              ElementsAre("output 0: 3 tokens, the model gives 2"));
  EXPECT_THAT(Compared(Streamed(), Part({10, 11, 12}, 0, FinishReason::kLength, true)),
              ElementsAre("output 0: end end_id, the model's is length"));
}

TEST(VerifyTest, OfACutSequenceTheFirstTokensAreCompared) {
  Receipt receipt = Streamed();
  receipt.outputs.front() = {.ids = {10, 11}, .end = "stop_text"};
  receipt = *ParseReceipt(ReceiptText(receipt));
  ScriptedExecutor executor({Part({10, 11}, 0, FinishReason::kLength, true)});
  EXPECT_THAT(*Verify(receipt, {.engine = Here(), .executor = &executor}), IsEmpty());
  EXPECT_EQ(executor.asked.max_tokens, 2);
  EXPECT_THAT(Compared(receipt, Part({10}, 0, FinishReason::kEndId, true)),
              ElementsAre("output 0: 2 tokens, the model gives 1"));
}

TEST(VerifyTest, ComparesLogProbabilities) {
  Receipt receipt = Streamed();
  receipt.request.output.return_log_probs = true;
  receipt.outputs.front().log_probs = HashOfNumbers(std::vector<float>{-1, -2, -3});
  receipt = *ParseReceipt(ReceiptText(receipt));
  Response answer = Part({10, 11, 12}, 0, FinishReason::kEndId, true);
  answer.output_log_probs = {-1, -2, -3};
  EXPECT_THAT(Compared(receipt, answer), IsEmpty());
  answer.output_log_probs = {-1, -2, -3.0000002F};
  EXPECT_THAT(Compared(receipt, answer), ElementsAre("output 0: log-probabilities are others"));
  receipt.outputs.front().log_probs.clear();  // though the request asked for them
  receipt = *ParseReceipt(ReceiptText(receipt));
  EXPECT_THAT(Compared(receipt, answer), ElementsAre("output 0: log-probabilities are others"));
}

// Of beams no first tokens are told: those of a shorter search are others.
TEST(VerifyTest, ABeamIsNotCut) {
  Receipt receipt = Streamed();
  receipt.request.sampling.beam_width = 2;
  receipt.outputs = {{.ids = {1, 2}, .end = "stop_text"}, {.ids = {3}, .end = "cancelled"}};
  receipt = *ParseReceipt(ReceiptText(receipt));
  Response answer{.is_final = true, .finish_reason = FinishReason::kLength};
  answer.beams = {{.output_ids = {1, 2}, .finish_reason = FinishReason::kLength},
                  {.output_ids = {3, 4}, .finish_reason = FinishReason::kLength}};
  ScriptedExecutor executor({answer});
  EXPECT_THAT(*Verify(receipt, {.engine = Here(), .executor = &executor}),
              ElementsAre("output 0: end stop_text, which no beam has",
                          "output 1: end cancelled, which no beam has"));
  EXPECT_EQ(executor.asked.max_tokens, receipt.request.max_tokens);
}

TEST(VerifyTest, TellsOtherWeightsAndPrompts) {
  const Response answer = Part({10, 11, 12}, 0, FinishReason::kEndId, true);
  Receipt receipt = Streamed();
  receipt.engine.weights = "ab";
  receipt = *ParseReceipt(ReceiptText(receipt));
  EXPECT_THAT(Compared(receipt, answer), ElementsAre("weights: hash ab, the model's is aa"));
  receipt = Streamed();
  receipt.request.input_ids = {5, 7};
  receipt = *ParseReceipt(ReceiptText(receipt));
  EXPECT_THAT(Compared(receipt, answer), ElementsAre(HasSubstr("prompt: 2 tokens of hash")));
  receipt = Streamed();
  receipt.outputs.front().ids.back() = 99;  // and its hashes are as they were
  EXPECT_THAT(Compared(receipt, answer),
              ElementsAre("outputs: changed since the receipt was issued",
                          "output 0: token 99 at position 2, the model gives 12"));
  receipt.outputs.clear();
  EXPECT_THAT(Compared(receipt, answer),
              ElementsAre(HasSubstr("outputs: changed"), "outputs: 0 of them, the model gives 1"));
}

TEST(VerifyTest, RefusesOtherKernelsByName) {
  Receipt receipt = Streamed();
  receipt.engine.kernels.table = "cpu/avx512";
  receipt = *ParseReceipt(ReceiptText(receipt));
  ScriptedExecutor executor({Part({10, 11, 12}, 0, FinishReason::kEndId, true)});
  Again again{.engine = Here(), .executor = &executor};
  const Status status = Verify(receipt, again).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("cpu/avx512 on cpu in float32 of inflight 0.1.0, here "
                                          "are cpu/avx2 on cpu"));
  again.any_kernels = true;
  EXPECT_THAT(*Verify(receipt, again), IsEmpty());
}

TEST(VerifyTest, WantsTheAdapter) {
  const auto adapter = std::make_shared<const LoraTensors>(LoraTensors{.width = 1});
  Receipt receipt = Streamed();
  receipt.adapter = HashOfAdapter(*adapter);
  receipt = *ParseReceipt(ReceiptText(receipt));
  ScriptedExecutor executor({Part({10, 11, 12}, 0, FinishReason::kEndId, true)});
  Again again{.engine = Here(), .executor = &executor};
  EXPECT_THAT(Verify(receipt, again).status().message(), HasSubstr("--adapter"));
  again.adapter = adapter;
  EXPECT_THAT(*Verify(receipt, again), IsEmpty());
  EXPECT_EQ(executor.asked.lora->tensors, adapter);
  EXPECT_THAT(*Verify(Streamed(), again), ElementsAre(HasSubstr("adapter: hash none")));
}

TEST(VerifyTest, PassesARefusalOn) {
  Response failed{.status = InvalidArgument("no"), .is_final = true};
  ScriptedExecutor executor({failed});
  const auto differences = Verify(Streamed(), {.engine = Here(), .executor = &executor});
  EXPECT_EQ(differences.status().code(), StatusCode::kInvalidArgument);
}

TEST(VerifyTest, BoundsTheMemoryOfNumbersThatNoRequestHas) {
  Receipt receipt = Streamed();
  EXPECT_GE(KvTokensOf(receipt), 64);
  receipt.request.max_tokens = 2147483647;
  receipt.request.sampling.beam_width = 2147483647;
  receipt.num_prompt_tokens = 9223372036854775807LL;
  receipt.engine.open.executor.block_size = -5;
  EXPECT_GT(KvTokensOf(receipt), 0);
}

}  // namespace
}  // namespace inflight::receipts
