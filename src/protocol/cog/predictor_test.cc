// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/predictor.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

namespace inflight::cog {
namespace {

constexpr size_t kMib = size_t{1} << 20;

Result<std::string> Format(const std::string& prompt, const std::string& system_prompt,
                           const std::string& prompt_template, size_t max_bytes = kMib) {
  MemoryCharge charge;
  return FormatPrompt(prompt, system_prompt, prompt_template, max_bytes, charge);
}

std::string Times(size_t count, const std::string& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

TEST(FormatPromptTest, NamesInBracesAreReplacedAndDoubledBracesStay) {
  EXPECT_EQ(*Format("p", "s", "{prompt}"), "p");
  EXPECT_EQ(*Format("{p}", "s", "[INST] {system_prompt}\n{prompt} {{x}} [/INST]"),
            "[INST] s\n{p} {x} [/INST]");
  EXPECT_EQ(*Format("", "s", "{system_prompt}"), "s");
}

TEST(FormatPromptTest, WhatIsWrongHasACode) {
  const auto code = [](const char* prompt, const char* prompt_template) {
    return Format(prompt, "", prompt_template).status().message().substr(0, 5);
  };
  EXPECT_EQ(code("", "{prompt}"), "E1001");
  EXPECT_EQ(code("p", "no place"), "E1003");
  // What is cut of a long name ends with no part of a character.
  const std::string name = "{" + std::string(62, 'x') + "\xC3\xA9}";
  EXPECT_NE(Format("p", "", "{prompt}" + name).status().message().find("x\xEF\xBF\xBD'"),
            std::string::npos);
  for (const char* prompt_template :
       {"{prompt} {", "{prompt} }", "{prompt} {other}", "{prompt} {}", R"({"a": "{prompt}"})"})
    EXPECT_EQ(code("p", prompt_template), "E1004") << prompt_template;
}

// 6 bytes of a prompt, 100 times, and 5 of a system prompt.
TEST(FormatPromptTest, ATemplateThatRepeatsIsRefusedBeyondItsBound) {
  const std::string repeats = Times(100, "{prompt}") + "{system_prompt}";
  EXPECT_EQ(Format("prompt", "first", repeats, 605)->size(), 605U);
  const Status refused = Format("prompt", "first", repeats, 604).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "E1002 PromptTooLong: the formatted prompt has 605 bytes, at most 604 are allowed; "
            "shorten prompt or prompt_template, or raise --http-max-input-size");
}

// 10^12 bytes, which are not made to be counted.
TEST(FormatPromptTest, AShortTemplateMakesNoLongPrompt) {
  const Status refused =
      Format(std::string(kMib, 'x'), "", Times(kMib, "{prompt}"), 64 * kMib).status();
  EXPECT_EQ(refused.message().substr(0, 72),
            "E1002 PromptTooLong: the formatted prompt has 1099511627776 bytes, at mo");
}

TEST(FormatPromptTest, WhatAPromptTakesIsChargedBeforeItIsMade) {
  const auto account = MemoryAccount::Make(MemoryLimits::Of(2 * kMib));
  MemoryCharge charge(account->NewConnection("client", [] {}));
  ASSERT_TRUE(charge.Resize(1000).ok());
  const std::string prompt(1000, 'x');
  EXPECT_TRUE(FormatPrompt(prompt, "", "{prompt}{prompt}", kMib, charge).ok());
  EXPECT_EQ(charge.bytes(), 1000 + 2000 * (kBytesPerPrompt + kBytesPerPromptJson));
  EXPECT_EQ(FormatPrompt(prompt, "", Times(200, "{prompt}"), kMib, charge).status().code(),
            StatusCode::kResourceExhausted);
}

class MakeModelCallTest : public testing::Test {
 protected:
  MakeModelCallTest() {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
        name: "ensemble" model_transaction_policy { decoupled: true }
        input { name: "text_input" } input { name: "max_tokens" } input { name: "bad_words" }
        input { name: "stop_words" } input { name: "min_length" optional: true }
        input { name: "top_k" optional: true } input { name: "temperature" optional: true }
        input { name: "top_p" optional: true } input { name: "length_penalty" optional: true }
        input { name: "presence_penalty" optional: true } input { name: "random_seed" optional: true }
        input { name: "end_id" optional: true } input { name: "stream" optional: true }
        output { name: "text_output" })",
                                                              &config_));
  }

  Result<ModelCall> Make(const std::string& inputs, const PredictorOptions& options = {}) {
    std::vector<FieldError> errors;
    const Inputs parsed = ParseInputs(*json::Value::Parse(inputs), options.defaults, errors);
    EXPECT_TRUE(errors.empty());
    MemoryCharge charge;
    return MakeModelCall(parsed, options, config_, /*random_seed=*/42, charge);
  }

  ::inference::ModelConfig config_;
};

TEST_F(MakeModelCallTest, InputsHaveTheNamesOfTheEnsemble) {
  EXPECT_EQ(Make(R"({"prompt":"p"})")->body,
            R"({"text_input":"p","max_tokens":512,"min_length":0,"top_k":0,"temperature":0.7,)"
            R"("top_p":0.95,"length_penalty":1.0,"presence_penalty":0.0,"random_seed":42,)"
            R"("stop_words":"","bad_words":"","stream":true})");
  EXPECT_EQ(
      Make(
          R"({"prompt":"p","min_new_tokens":3,"max_new_tokens":9,"top_k":-1,"seed":5,"stop_sequences":"a,b c"})",
          {.end_id = 2})
          ->body,
      R"({"text_input":"p","max_tokens":9,"min_length":3,"top_k":0,"temperature":0.7,)"
      R"("top_p":0.95,"length_penalty":1.0,"presence_penalty":0.0,"random_seed":5,)"
      R"("stop_words":["a","b c"],"include_stop_str_in_output":false,"bad_words":"",)"
      R"("end_id":2,"stream":true})");
}

TEST_F(MakeModelCallTest, ASaltGoesToTheModelAndIntoNoAnswer) {
  const std::string body = Make(R"({"prompt":"p","cache_salt":"s"})")->body;
  EXPECT_NE(body.find(R"("cache_salt":"s")"), std::string::npos) << body;
  EXPECT_EQ(Make(R"({"prompt":"p","cache_salt":null})")->body, Make(R"({"prompt":"p"})")->body);
  std::vector<FieldError> errors;
  const Inputs inputs =
      ParseInputs(*json::Value::Parse(R"({"prompt":"p","cache_salt":"secret"})"), {}, errors);
  std::string shown;
  json::Writer echo(shown);
  WriteInputs(inputs, echo);
  EXPECT_EQ(shown.find("salt"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("secret"), std::string::npos) << shown;
}

TEST_F(MakeModelCallTest, TwoNamesWithTwoValuesAreAnError) {
  const auto code = [&](const char* inputs) {
    return Make(inputs).status().message().substr(0, 5);
  };
  EXPECT_EQ(code(R"({"prompt":"p","max_tokens":3,"max_new_tokens":4})"), "E1102");
  EXPECT_EQ(code(R"({"prompt":"p","min_tokens":3,"min_new_tokens":4})"), "E1101");
  EXPECT_TRUE(Make(R"({"prompt":"p","max_tokens":4,"max_new_tokens":4})").ok());
}

TEST_F(MakeModelCallTest, AnEndThatTheModelCannotTakeIsAnError) {
  EXPECT_EQ(Make(R"({"prompt":"p"})", {.pad_id = 2}).status().message().substr(0, 5), "E2100");
}

}  // namespace
}  // namespace inflight::cog
