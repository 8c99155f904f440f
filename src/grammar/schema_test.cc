// SPDX-License-Identifier: Apache-2.0
// Schemas and tags, a case for each way through the translator; tests/grammar/ has the many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/guide_fixture.h"

namespace inflight::grammar {
namespace {

using Kind = GuideSpec::Kind;

void Check(Kind kind, const char* text, const std::vector<std::string>& matching,
           const std::vector<std::string>& others) {
  const auto guide =
      GuideOf(kind, text, BytesAnd({"{\"", "\": ", "\",", "}}", "12", "tru", ", \""}));
  ASSERT_NE(guide, nullptr) << text;
  for (const std::string& one : matching) EXPECT_TRUE(Matches(*guide, one)) << one;
  for (const std::string& one : others) EXPECT_FALSE(Matches(*guide, one)) << one;
}

TEST(SchemaTest, MembersComeInOrderAndOptionalOnesMayNot) {
  Check(
      Kind::kJsonSchema,
      R"({"properties": {"a": {"type": "integer"}, "b": {"type": "null"}, "c": true}, "required": ["b"]})",
      {R"({"b": null})", R"({"a": 1, "b": null})", R"({"b":null,"c":[{}]})"},
      {"{}", R"({"a": 1})", R"({"b": null, "a": 1})", R"({"b": null, "d": 1})",
       R"({"a": 1.5, "b": null})"});
}

TEST(SchemaTest, OtherMembersHaveOtherNames) {
  Check(Kind::kJsonSchema,
        R"({"properties": {"a": {"const": 1}}, "additionalProperties": {"type": "boolean"}})",
        {R"({"a": 1, "ab": true})", R"({"": false})", "{}"},
        {R"({"a": true})", R"({"\u0061": true})", R"({"b": 1})"});
  Check(
      Kind::kJsonSchema,
      R"({"patternProperties": {"^x": {"type": "null"}}, "additionalProperties": false, "propertyNames": {"maxLength": 2}})",
      {R"({"x": null, "xy": null})"}, {R"({"xyz": null})", R"({"y": null})"});
}

TEST(SchemaTest, SchemasMayReferToThemselves) {
  Check(Kind::kJsonSchema, R"({"type": "array", "items": {"$ref": "#"}, "maxItems": 2})",
        {"[]", "[[[]], []]"}, {"[[], [], []]", "[1]"});
}

TEST(SchemaTest, SchemasOfOnePlaceHoldTogether) {
  Check(
      Kind::kJsonSchema,
      R"({"allOf": [{"type": "string", "minLength": 2}, {"pattern": "^a"}], "anyOf": [{"maxLength": 3}, {"pattern": "z$"}]})",
      {R"("ab")", R"("abbbz")", R"("a\"")"}, {R"("a")", R"("bb")", R"("abbb")"});
  Check(Kind::kJsonSchema,
        R"({"type": "integer", "minimum": -1, "exclusiveMaximum": 12, "multipleOf": 3})",
        {"0", "3", "9"}, {"12", "-3", "1", "3.0"});
}

// As tools write what has no bound: the largest number of a type.
TEST(SchemaTest, CountsThatNoAnswerReachesBoundNothing) {
  for (const std::string most : {"2147483647", "4294967295", "9223372036854775807", "1e300"}) {
    const std::string schema = R"({"items": {"type": "string", "minLength": 1, "maxLength": )" +
                               most + R"(}, "maxItems": )" + most + "}";
    Check(Kind::kJsonSchema, schema.c_str(), {"[]", R"(["a", "bc"])"}, {R"([""])", "[1]"});
  }
  EXPECT_THAT(RefusalOf(Kind::kJsonSchema, R"({"maxItems": 1.5})"),
              testing::HasSubstr("maxItems: must be an integer, 0 or more"));
}

TEST(SchemaTest, ItemsHaveTheirPlaces) {
  Check(
      Kind::kJsonSchema,
      R"({"prefixItems": [{"enum": ["a", {"b": [1, 2]}]}, {"type": "boolean"}], "items": {"type": "null"}, "minItems": 1, "maxItems": 3})",
      {R"(["a"])", R"([{"b": [1, 2]}, true, null])"},
      {"[]", R"(["b"])", R"(["a", null])", R"(["a", true, null, null])"});
}

TEST(SchemaTest, ListedNumbersAreBoundedHoweverTheyAreWritten) {
  Check(Kind::kJsonSchema, R"({"enum": [1e-7, -1e-7, 0.25, 2e2], "minimum": 0})",
        {"1e-7", "0.25", "200"}, {"-1e-7"});
  Check(Kind::kJsonSchema, R"({"const": 1e20, "multipleOf": 10})", {"100000000000000000000.0"},
        {"1"});
}

TEST(SchemaTest, OneOfTakesSchemasThatNoValueSharesOnly) {
  Check(Kind::kJsonSchema, R"({"oneOf": [{"type": "string"}, {"type": "integer"}]})",
        {"1", R"("a")"}, {"null"});
  EXPECT_THAT(RefusalOf(Kind::kJsonSchema, R"({"oneOf": [{"minLength": 1}, {"maxLength": 4}]})"),
              testing::HasSubstr("#: oneOf: schemas 0 and 1 may both be valid"));
}

TEST(SchemaTest, KeywordsThatAreNotSupportedAreRefusedByNameAndPlace) {
  EXPECT_THAT(RefusalOf(Kind::kJsonSchema, R"({"properties": {"a": {"items": {"not": {}}}}})"),
              testing::HasSubstr("INVALID_ARGUMENT: schema: at #/properties/a/items: not"));
}

TEST(SchemaTest, TagsStandAroundValues) {
  Check(
      Kind::kTagged,
      R"json({"tags": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}, {"begin": "<g>", "schema": {"const": []}, "end": ""}],
            "max": 2, "between": ";", "before": "(", "after": ")"})json",
      {"(<f>1</f>)", "(<g>[];<f>-12</f>)"},
      {"()", "<f>1</f>", "(<f>1</f><g>[])", "(<g>[];<g>[];<g>[])"});
  Check(
      Kind::kTagged,
      R"json({"tags": [{"begin": "<f>", "schema": {"type": "object", "required": ["a"]}, "end": "</f>"}],
            "arguments": "python", "before": "(", "after": ")", "preambles": [{"begin": "[", "end": "]"}],
            "answer": {"begin": "!", "schema": {"const": {"a": null}}, "end": "."}})json",
      {"(<f>a=1</f>)", R"(!{"a": null}.)", R"([so]!{"a": null}.)"},
      {R"((!{"a": null}.))", R"({"a": null})", R"(!{"a": null}.(<f>a=1</f>))", "!a=None."});
}

}  // namespace
}  // namespace inflight::grammar
