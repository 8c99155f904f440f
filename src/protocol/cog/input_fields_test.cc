// SPDX-License-Identifier: Apache-2.0
// What pydantic does with values is recorded in tests/protocol/recorded/cog, which
// tests/protocol/test_cog.py replays; here are the corners that JSON of Python cannot send.
#include "protocol/cog/input_fields.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::cog {
namespace {

std::vector<FieldError> ErrorsOf(const std::string& text) {
  std::vector<FieldError> errors;
  const auto object = json::Value::Parse(text);
  EXPECT_TRUE(object.ok()) << text;
  ParseInputs(*object, {}, errors);
  return errors;
}

TEST(InputFieldsTest, DefaultsStandWhereNothingIsGiven) {
  std::vector<FieldError> errors;
  const Inputs inputs =
      ParseInputs(*json::Value::Parse(R"({"prompt":"a"})"), {.system_prompt = "s"}, errors);
  EXPECT_TRUE(errors.empty());
  std::string text;
  json::Writer out(text);
  WriteInputs(inputs, out);
  EXPECT_EQ(text, R"({"prompt":"a","system_prompt":"s","max_tokens":512,"min_tokens":null,)"
                  R"("temperature":0.7,"top_p":0.95,"top_k":0,"stop_sequences":null,)"
                  R"("length_penalty":1.0,"presence_penalty":0.0,"seed":null,)"
                  R"("prompt_template":"{prompt}","log_performance_metrics":false,)"
                  R"("max_new_tokens":null,"min_new_tokens":null})");
}

TEST(InputFieldsTest, NumbersThatAreNoneAreRefused) {
  for (const char* input :
       {R"("max_tokens":1e300)", R"("max_tokens":NaN)", R"("max_tokens":"")",
        R"("presence_penalty":NaN)", R"("presence_penalty":Infinity)", R"("temperature":"0x1")",
        R"("temperature":"1 2")", R"("temperature":"")", R"("seed":9223372036854775808)"}) {
    EXPECT_EQ(ErrorsOf(R"({"prompt":"a",)" + std::string(input) + "}").size(), 1) << input;
  }
}

TEST(InputFieldsTest, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(ErrorDetail(ErrorsOf(R"({"max_tokens":0})")),
            R"({"detail":[{"loc":["body","input","prompt"],"msg":"field required",)"
            R"("type":"value_error.missing"},{"loc":["body","input","max_tokens"],)"
            R"("msg":"ensure this value is greater than or equal to 1",)"
            R"("type":"value_error.number.not_ge","ctx":{"limit_value":1}}]})");
}

}  // namespace
}  // namespace inflight::cog
