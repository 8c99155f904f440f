// SPDX-License-Identifier: Apache-2.0
// The form of receipts: one text for one receipt, and each change of it is found. Of the hashes
// Python's hashlib was asked.
#include "receipts/receipt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace inflight::receipts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Receipt Example() {
  Receipt receipt;
  EngineRecord& engine = receipt.engine;
  engine.weights = "aa";
  engine.architecture = "LlamaForCausalLM";
  engine.quant_algo = "none";
  engine.kernels = {.table = "cpu/avx2", .device = "cpu", .dtype = "float32", .program = "0.1.0"};
  engine.open.fp8_kv_cache = false;
  engine.open.executor.attention_windows = {0, 4096};
  receipt.prompt = "bb";
  receipt.num_prompt_tokens = 2;
  Request& request = receipt.request;
  request.input_ids = {5, 6};
  request.max_tokens = 3;
  request.end_ids = {2};
  request.stop_words = {{7, 8}, {9}};
  request.output.return_log_probs = true;
  request.sampling.temperature = 0.1F;
  request.sampling.top_k = 20;
  request.sampling.seed = 18446744073709551615ULL;
  receipt.outputs = {{.ids = {10, 11}, .end = "end_id", .log_probs = "cc"}, {.end = "stop_text"}};
  return receipt;
}

constexpr char kModel[] =
    R"({"weights":"aa","architecture":"LlamaForCausalLM","quant_algo":"none","adapter":null,)"
    R"("options":{"dtype":"auto","quant_algo":"auto","group_size":null,"fp8_kv_cache":false,)"
    R"("quantize_lm_head":null,"tensor_parallel_size":null,"pipeline_parallel_size":null,)"
    R"("block_size":64,"attention_windows":[0,4096],"sink_tokens":0}})";
constexpr char kKernels[] =
    R"({"table":"cpu/avx2","device":"cpu","dtype":"float32","program":"0.1.0"})";
constexpr char kPrompt[] = R"({"num_tokens":2,"hash":"bb","ids":[5,6]})";
constexpr char kParameters[] =
    R"({"max_tokens":3,"end_ids":[2],"stop_words":[[7,8],[9]],"bad_words":[],"log_probs":true,)"
    R"("normalize_log_probs":true,"sampling":{"temperature":0.10000000149011612,"top_k":20,)"
    R"("seed":"18446744073709551615"}})";
constexpr char kOutputs[] = R"([{"ids":[10,11],"end":"end_id","log_probs":"cc"},)"
                            R"({"ids":[],"end":"stop_text","log_probs":null}])";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ReceiptTest, HasOneText) {
  const std::string text = ReceiptText(Example());
  const std::string begin = std::string(R"({"inflight_receipt":1,"model":)") + kModel +
                            R"(,"kernels":)" + kKernels + R"(,"prompt":)" + kPrompt +
                            R"(,"parameters":)" + kParameters + R"(,"outputs":)" + kOutputs;
  EXPECT_EQ(text.substr(0, begin.size()), begin);
  EXPECT_EQ(text.substr(begin.size()),
            R"(,"parts":{"model":"269537330d274268","kernels":"5edaf893dc0c8cdb","prompt":)"
            R"("0cebfd993d39809a","parameters":"a11433f15b7f500a","outputs":"b5fefdd57833e)"
            R"(a49"},"digest":"7452234bca7bba7a02e1cd86d3dcc4e1ece191c8514eb9c74677dd31a2b)"
            R"(ca8e2"})");
}

TEST(ReceiptTest, ReadsBackEqual) {
  const std::string text = ReceiptText(Example());
  const auto read = ParseReceipt(text);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(ReceiptText(*read), text);
  EXPECT_THAT(ChangedParts(*read), IsEmpty());
  EXPECT_EQ(read->request.sampling.seed, 18446744073709551615ULL);
  EXPECT_EQ(read->request.sampling.temperature, 0.1F);
  EXPECT_EQ(read->outputs, Example().outputs);
}

TEST(ReceiptTest, SizesOfExpertsStandThereWhereTheyAreSet) {
  Receipt receipt = Example();
  receipt.engine.open.moe_ep_size = 2;
  const std::string text = ReceiptText(receipt);
  EXPECT_THAT(
      text, testing::HasSubstr(R"("pipeline_parallel_size":null,"moe_ep_size":2,"block_size":64)"));
  const auto read = ParseReceipt(text);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(ReceiptText(*read), text);
  EXPECT_EQ(read->engine.open.moe_ep_size, 2);
  EXPECT_EQ(read->engine.open.moe_tp_size, std::nullopt);
}

TEST(ReceiptTest, OtherOrderAndSpacingAreTheSameReceipt) {
  const std::string text = ReceiptText(Example());
  const std::string prompt = std::string(R"("prompt":)") + kPrompt + ",";
  std::string other = Replaced(text, prompt, "");
  other = Replaced(other, "{",
                   "{\n  \"prompt\" : {\"ids\": [5, 6], \"hash\": \"bb\", "
                   "\"num_tokens\": 2},\n ");
  const auto read = ParseReceipt(other);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(ReceiptText(*read), text);
  EXPECT_THAT(ChangedParts(*read), IsEmpty());
}

TEST(ReceiptTest, TellsWhichPartWasChanged) {
  const std::string text = ReceiptText(Example());
  const std::vector<std::array<const char*, 3>> changes = {
      {"\"aa\"", "\"ab\"", "model"},
      {"LlamaFor", "QwenFor", "model"},
      {R"("quant_algo":"none")", R"("quant_algo":"FP8")", "model"},
      {R"("group_size":null)", R"("group_size":64)", "model"},
      {R"("adapter":null)", R"("adapter":"dd")", "model"},
      {R"("dtype":"auto")", R"("dtype":"float16")", "model"},
      {R"("fp8_kv_cache":false)", R"("fp8_kv_cache":true)", "model"},
      {R"("quantize_lm_head":null)", R"("quantize_lm_head":true)", "model"},
      {R"("tensor_parallel_size":null)", R"("tensor_parallel_size":2)", "model"},
      {R"("pipeline_parallel_size":null)", R"("pipeline_parallel_size":2)", "model"},
      {R"("block_size":64)", R"("block_size":32)", "model"},
      {"[0,4096]", "[4096]", "model"},
      {R"("sink_tokens":0)", R"("sink_tokens":4)", "model"},
      {"cpu/avx2", "cpu/avx512", "kernels"},
      {R"("device":"cpu")", R"("device":"NVIDIA H200")", "kernels"},
      {R"("dtype":"float32")", R"("dtype":"bfloat16")", "kernels"},
      {"0.1.0", "0.2.0", "kernels"},
      {R"("num_tokens":2)", R"("num_tokens":3)", "prompt"},
      {"\"bb\"", "\"bc\"", "prompt"},
      {"[5,6]", "[5,7]", "prompt"},
      {R"("max_tokens":3)", R"("max_tokens":4)", "parameters"},
      {R"("end_ids":[2])", R"("end_ids":[])", "parameters"},
      {"[7,8]", "[7]", "parameters"},
      {R"("bad_words":[])", R"("bad_words":[[1]])", "parameters"},
      {R"("log_probs":true)", R"("log_probs":false)", "parameters"},
      {R"("normalize_log_probs":true)", R"("normalize_log_probs":false)", "parameters"},
      {"0.10000000149011612", "0.2", "parameters"},
      {R"("top_k":20)", R"("top_k":21)", "parameters"},
      {"18446744073709551615", "18446744073709551614", "parameters"},
      {R"("sampling":{)", R"("sampling":{"min_tokens":1,)", "parameters"},
      {"[10,11]", "[10,12]", "outputs"},
      {"end_id\"", "length\"", "outputs"},
      {"\"cc\"", "\"cd\"", "outputs"},
  };
  for (const auto& [from, to, part] : changes) {
    const auto read = ParseReceipt(Replaced(text, from, to));
    ASSERT_TRUE(read.ok()) << from << ": " << read.status().ToString();
    EXPECT_THAT(ChangedParts(*read), ElementsAre(part)) << from;
  }
}

TEST(ReceiptTest, ItsOwnHashesCannotBeChangedEither) {
  auto read = ParseReceipt(ReceiptText(Example()));
  read->digest.back() = read->digest.back() == '0' ? '1' : '0';
  EXPECT_THAT(ChangedParts(*read), ElementsAre("digest"));
  read = ParseReceipt(ReceiptText(Example()));
  read->parts.outputs = "0000000000000000";
  EXPECT_THAT(ChangedParts(*read), ElementsAre("outputs"));
}

// Receipts of a list are computed by the options of the first.
TEST(ReceiptTest, OtherOptionsAreAnotherEngine) {
  const EngineRecord engine = Example().engine;
  EXPECT_TRUE(AreOpenedAlike(engine, ParseReceipt(ReceiptText(Example()))->engine));
  const auto is_alike = [&](const auto& change) {
    EngineRecord other = engine;
    change(other);
    return AreOpenedAlike(engine, other);
  };
  EXPECT_FALSE(is_alike([](EngineRecord& other) { other.weights = "ab"; }));
  EXPECT_FALSE(is_alike([](EngineRecord& other) { other.open.group_size = 64; }));
  EXPECT_FALSE(is_alike([](EngineRecord& other) { other.open.fp8_kv_cache.reset(); }));
  EXPECT_FALSE(is_alike([](EngineRecord& other) { other.open.executor.attention_windows = {}; }));
  EXPECT_FALSE(is_alike([](EngineRecord& other) { other.open.executor.sink_tokens = 1; }));
  EXPECT_TRUE(is_alike([](EngineRecord& other) { other.open.executor.max_seq_len = 7; }));
}

TEST(ReceiptTest, LosesThePromptsIdsAlone) {
  Receipt receipt = Example();
  receipt.has_ids = false;
  const std::string text = ReceiptText(receipt);
  EXPECT_THAT(text, HasSubstr(R"("prompt":{"num_tokens":2,"hash":"bb","ids":null})"));
  const auto read = ParseReceipt(text);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_FALSE(read->has_ids);
  EXPECT_TRUE(read->request.input_ids.empty());
  Receipt added = *read;
  added.request.input_ids = {5, 6};
  EXPECT_THAT(ChangedParts(added), IsEmpty());
}

TEST(ReceiptTest, ErrorsNameTheMember) {
  const std::string text = ReceiptText(Example());
  const std::vector<std::array<const char*, 3>> broken = {
      {R"("max_tokens":3,)", "", "a receipt's parameters lacks 'max_tokens'"},
      {R"("max_tokens":3,)", R"("max_tokens":3,"mood":1,)",
       "a receipt's parameters has 'mood', which this version does not know"},
      {R"("max_tokens":3,)", R"("max_tokens":3,"max_tokens":3,)", "two members 'max_tokens'"},
      {R"("max_tokens":3,)", R"("max_tokens":9999999999,)", "'max_tokens': got 9999999999"},
      {R"("top_k":20)", R"("top_q":20)", "a receipt's sampling has 'top_q'"},
      {R"("18446744073709551615")", R"("18446744073709551616")", "'seed': is larger"},
      {R"("18446744073709551615")", R"("-1")", "'seed': is no text of digits"},
      {R"([10,11])", R"([10,"x"])", "a receipt's output: 'ids'"},
      {R"("outputs":[)", R"("outputs":3,"others":[)", ""},
      {R"({"inflight_receipt":1,)", R"({)", "a receipt lacks 'inflight_receipt'"},
  };
  for (const auto& [from, to, message] : broken) {
    const auto read = ParseReceipt(Replaced(text, from, to));
    ASSERT_FALSE(read.ok()) << to;
    EXPECT_EQ(read.status().code(), StatusCode::kDataLoss) << to;
    EXPECT_THAT(read.status().message(), HasSubstr(message));
  }
  const auto next = ParseReceipt(Replaced(text, "receipt\":1", "receipt\":2"));
  EXPECT_EQ(next.status().code(), StatusCode::kUnimplemented);
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(ParseReceipt(text.substr(0, size)).ok());
}

TEST(ReceiptTest, AnAnswerThatHasNoneSaysWhy) {
  const std::string text = NoReceiptText("guide");
  EXPECT_EQ(text, R"({"inflight_receipt":1,"not_covered":"guide"})");
  const Status status = ParseReceipt(text).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("guide"));
}

TEST(ReceiptTest, IsFoundInAnswers) {
  const std::string one = NoReceiptText("x");
  const std::string as_text = R"("{\"inflight_receipt\":1,\"not_covered\":\"x\"}")";
  for (const std::string& json :
       {one, "[" + one + "]", R"({"id":"a","receipt":)" + one + "}",
        R"({"text_output":"a","receipt":)" + as_text + "}",
        R"({"outputs":[],"parameters":{"receipt":)" + as_text + "}}",
        R"({"parameters":{"receipt":{"string_param":)" + as_text + "}}}",
        R"({"parameters":{"receipt":{"stringParam":)" + as_text + "}}}",
        R"({"type":"response.completed","response":{"receipt":)" + one + "}}",
        "data: {\"id\":1}\r\n\r\ndata: {\"receipt\":" + one + "}\r\n\r\ndata: [DONE]\n\n",
        "event: message_delta\ndata: {\"receipt\":" + one + "}\n\n"}) {
    const auto found = FindReceipts(json);
    ASSERT_TRUE(found.ok()) << json << found.status().ToString();
    EXPECT_THAT(*found, ElementsAre(one));
  }
  EXPECT_THAT(*FindReceipts(R"({"receipt":[)" + one + "," + one + "]}"), ElementsAre(one, one));
  EXPECT_EQ(FindReceipts(R"({"id":"a"})").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(FindReceipts("no JSON").ok());
}

// Each level of one that is looked into without a bound takes a part of the stack.
TEST(ReceiptTest, NobodyLooksForOneThatLiesTooDeep) {
  constexpr int kLevels = 300'000;
  std::string text = R"({"receipt":)";
  for (int i = 0; i < kLevels; ++i) text += R"({"string_param":)";
  text += "1" + std::string(kLevels + 1, '}');
  EXPECT_EQ(FindReceipts(text).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace inflight::receipts
