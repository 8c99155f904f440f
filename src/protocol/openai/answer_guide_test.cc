// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/answer_guide.h"

#include <gmock/gmock.h>

#include <string>

namespace inflight::openai {
namespace {

using GuideKind = GuideSpec::Kind;
using testing::HasSubstr;

Result<std::optional<serving::Generation::Guided>> Read(const std::string& members) {
  const std::string body = "{" + members + "}";
  const auto asked = ParseBody(body, kChat);
  if (!asked.ok()) return asked.status();
  return ReadAnswerGuide(*asked);
}

void ExpectGuide(const std::string& members, GuideKind kind, const std::string& text,
                 const std::string& field) {
  const auto guided = Read(members);
  ASSERT_TRUE(guided.ok()) << members << ": " << guided.status().ToString();
  ASSERT_TRUE(*guided) << members;
  EXPECT_EQ((*guided)->spec.kind, kind) << members;
  EXPECT_EQ((*guided)->spec.text, text) << members;
  EXPECT_EQ((*guided)->field, field) << members;
}

void ExpectNone(const std::string& members) {
  const auto guided = Read(members);
  ASSERT_TRUE(guided.ok()) << members << ": " << guided.status().ToString();
  EXPECT_FALSE(*guided) << members;
}

TEST(AnswerGuideTest, EveryFormIsRead) {
  ExpectGuide(R"("response_format": {"type": "json_object"})", GuideKind::kJson, "",
              "response_format");
  ExpectGuide(R"("response_format": {"type": "json_schema", "json_schema":
                 {"name": "a", "strict": true, "schema": {"type": "null"}}})",
              GuideKind::kJsonSchema, R"({"type": "null"})", "response_format.json_schema.schema");
  ExpectGuide(R"("structured_outputs": {"json": {"type": "null"}})", GuideKind::kJsonSchema,
              R"({"type": "null"})", "structured_outputs.json");
  ExpectGuide(R"("structured_outputs": {"json": "{\"type\": \"null\"}"})", GuideKind::kJsonSchema,
              R"({"type": "null"})", "structured_outputs.json");
  ExpectGuide(R"("structured_outputs": {"regex": "[a-z]\\d"})", GuideKind::kRegex, R"([a-z]\d)",
              "structured_outputs.regex");
  ExpectGuide(R"("structured_outputs": {"choice": ["a", "b"]})", GuideKind::kChoice,
              R"(["a", "b"])", "structured_outputs.choice");
  ExpectGuide(R"("structured_outputs": {"grammar": "root ::= \"a\""})", GuideKind::kGrammar,
              R"(root ::= "a")", "structured_outputs.grammar");
  ExpectGuide(R"("structured_outputs": {"json_object": true, "regex": null})", GuideKind::kJson, "",
              "structured_outputs.json_object");
  ExpectGuide(R"("guided_json": {})", GuideKind::kJsonSchema, "{}", "guided_json");
  ExpectGuide(R"("guided_regex": "a")", GuideKind::kRegex, "a", "guided_regex");
  ExpectGuide(R"("guided_choice": ["a"])", GuideKind::kChoice, R"(["a"])", "guided_choice");
  ExpectGuide(R"("guided_grammar": "root ::= \"a\"")", GuideKind::kGrammar, R"(root ::= "a")",
              "guided_grammar");
}

TEST(AnswerGuideTest, WhatAsksForNothingIsTaken) {
  ExpectNone("");
  ExpectNone(R"("response_format": {"type": "text"}, "guided_json": null)");
  ExpectNone(R"("structured_outputs": {"json_object": false, "disable_any_whitespace": false})");
}

TEST(AnswerGuideTest, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("guided_regex": "a", "guided_choice": ["a"])",
       "guided_choice: is given beside guided_regex; give one of them"},
      {R"("structured_outputs": {"regex": "a", "json_object": true})",
       "structured_outputs.json_object: is given beside structured_outputs.regex; give one of "
       "them"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema: is missing"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a"}})",
       "response_format.json_schema.schema: is missing"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": []}})",
       "response_format.json_schema.schema: must be an object, a JSON schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schemas": {}}})",
       "response_format.json_schema.schemas: is not a member here; those are name, description, "
       "schema and strict"},
      {R"("response_format": {"type": "structural_tag"})",
       "response_format.type: got 'structural_tag'; text, json_object and json_schema are "
       "supported"},
      {R"("response_format": {"json_schema": {}})",
       "response_format.json_schema: needs the type json_schema"},
      {R"("response_format": {})", "response_format.type: is missing"},
      {R"("structured_outputs": {"structural_tag": "{}"})",
       "structured_outputs.structural_tag: is not supported; json, regex, choice, grammar and "
       "json_object are supported"},
      {R"("guided_choice": [])", "guided_choice: got no texts, needs at least one"},
      {R"("guided_choice": ["a", 1])", "guided_choice[1]: must be a string"},
      {R"("guided_json": 1)", "guided_json: must be an object, a JSON schema"},
  };
  for (const auto& [members, message] : cases)
    EXPECT_EQ(Read(members).status().message(), message) << members;
  EXPECT_THAT(Read(R"("guided_whitespace_pattern": " ")").status().message(),
              HasSubstr("is not supported"));
}

}  // namespace
}  // namespace inflight::openai
