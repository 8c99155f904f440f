// SPDX-License-Identifier: Apache-2.0
// Messages and offsets are those recorded from a Triton server (cases infer_malformed,
// infer_json_*).
#include "json/json_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace inflight::json {
namespace {

std::string ParseError(std::string_view text) {
  const auto value = Value::Parse(text);
  if (value.ok()) return "parsed";
  EXPECT_EQ(value.status().code(), StatusCode::kInternal);
  const std::string& message = value.status().message();
  constexpr std::string_view kPrefix = "failed to parse the request JSON buffer: ";
  EXPECT_TRUE(message.starts_with(kPrefix)) << message;
  return message.substr(kPrefix.size());
}

Value Parsed(std::string_view text) {
  auto value = Value::Parse(text);
  EXPECT_TRUE(value.ok()) << value.status().ToString();
  return *value;
}

TEST(JsonReaderTest, SyntaxErrorsNameWhatAndWhere) {
  const std::pair<std::string_view, std::string_view> kCases[] = {
      {"hello", "Invalid value. at 0"},
      {"   ", "The document is empty. at 3"},
      {"", "The document is empty. at 0"},
      {"{", "Missing a name for object member. at 1"},
      {R"({"inputs":[)", "Invalid value. at 11"},
      {R"({"inputs":[]} x)", "The document root must not be followed by other values. at 14"},
      {R"({"inp)", "Missing a closing quotation mark in string. at 5"},
      {R"(["\ud800"])", "The surrogate pair in string is invalid. at 2"},
      {R"(["\ud800\u0041"])", "The surrogate pair in string is invalid. at 2"},
      {R"(["\udc00"])", "The surrogate pair in string is invalid. at 2"},
      {"[\"a\tb\"]", "Invalid escape character in string. at 3"},
      {R"(["\q"])", "Invalid escape character in string. at 2"},
      {R"(["\u12g4"])", "Incorrect hex digit after \\u escape in string. at 2"},
      {"[Inf,-Inf,1e400]", "Number too big to be stored in double. at 10"},
      {"[+1]", "Invalid value. at 1"},
      {"[nan]", "Invalid value. at 2"},
      {"['1']", "Invalid value. at 1"},
      {"[1,2,3,]", "Invalid value. at 7"},
      {"[1 2]", "Missing a comma or ']' after an array element. at 3"},
      {R"({"a":1 "b":2})", "Missing a comma or '}' after an object member. at 7"},
      {R"({"a" 1})", "Missing a colon after a name of object member. at 5"},
      {R"({"a":1,})", "Missing a name for object member. at 7"},
      {"[1.]", "Miss fraction part in number. at 3"},
      {"[1e]", "Miss exponent in number. at 3"},
      {"[01]", "Missing a comma or ']' after an array element. at 2"},
      {"[0x10]", "Missing a comma or ']' after an array element. at 2"},
      {"[1] // comment", "The document root must not be followed by other values. at 4"},
      {"tru", "Invalid value. at 3"},
      {"{]", "Missing a name for object member. at 1"},
      {"[}", "Invalid value. at 1"},
      {"]", "Invalid value. at 0"},
  };
  for (const auto& [text, expected] : kCases) EXPECT_EQ(ParseError(text), expected) << text;
}

TEST(JsonReaderTest, ScalarsAreDecodedAndCheckedWhenAsked) {
  EXPECT_EQ(*Parsed("true").AsBool(), true);
  EXPECT_EQ(*Parsed(" -42 ").AsInt(), -42);
  EXPECT_EQ(*Parsed("18446744073709551615").AsUint(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*Parsed("-9223372036854775808").AsInt(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*Parsed("0.1").AsDouble(), 0.1);
  EXPECT_EQ(*Parsed("3").AsDouble(), 3.0);
  EXPECT_EQ(*Parsed("1e-400").AsDouble(), 0.0);
  EXPECT_EQ(*Parsed("5e-324").AsDouble(), std::numeric_limits<double>::denorm_min());
  EXPECT_FALSE(std::signbit(*Parsed("-0").AsDouble()));
  EXPECT_TRUE(std::signbit(*Parsed("-0.0").AsDouble()));
  EXPECT_EQ(*Parsed("-0").AsUint(), 0U);

  EXPECT_EQ(Parsed("5").AsString().status().message(),
            "attempt to access JSON non-string as string");
  EXPECT_EQ(Parsed("1").AsBool().status().message(),
            "attempt to access JSON non-boolean as boolean");
  EXPECT_EQ(Parsed("1.0").AsInt().status().message(),
            "attempt to access JSON non-signed-integer as signed-integer");
  EXPECT_EQ(Parsed("-1").AsUint().status().message(),
            "attempt to access JSON non-unsigned-integer as unsigned-integer");
  EXPECT_EQ(Parsed("18446744073709551616").AsUint().status().message(),
            "attempt to access JSON non-unsigned-integer as unsigned-integer");
  EXPECT_EQ(Parsed("true").AsDouble().status().message(),
            "attempt to access JSON non-number as double");
}

TEST(JsonReaderTest, NanAndInfinityAreNumbers) {
  EXPECT_TRUE(std::isnan(*Parsed("NaN").AsDouble()));
  EXPECT_EQ(*Parsed("Infinity").AsDouble(), HUGE_VAL);
  EXPECT_EQ(*Parsed("-Inf").AsDouble(), -HUGE_VAL);
  EXPECT_FALSE(Parsed("NaN").IsInteger());
}

TEST(JsonReaderTest, StringsAreUnescapedAndBytesPassThrough) {
  EXPECT_EQ(*Parsed(R"("a\"\\\/\b\f\n\r\t")").AsString(), "a\"\\/\b\f\n\r\t");
  EXPECT_EQ(*Parsed(R"("\u00e9\u2603\ud83d\ude00")").AsString(), "é☃😀");
  EXPECT_EQ(*Parsed(R"("a\u0000b")").AsString(), std::string("a\0b", 3));
  EXPECT_EQ(*Parsed("\"\xff\xfe\"").AsString(), "\xff\xfe");
}

TEST(JsonReaderTest, ByteOrderMarkIsSkipped) { EXPECT_EQ(*Parsed("\xEF\xBB\xBF 7").AsInt(), 7); }

TEST(JsonReaderTest, PickTakesTheFirstOfDuplicates) {
  const Value object = Parsed(R"({"a":1,"b":[{"a":9}],"a":2,"A":3, "\u0063":4})");
  const auto [a, b, c, d] = object.Pick<4>({"a", "b", "c", "d"});
  EXPECT_EQ(*a->AsInt(), 1);
  EXPECT_EQ(b->kind(), Value::Kind::kArray);
  EXPECT_EQ(*c->AsInt(), 4);
  EXPECT_FALSE(d.has_value());
  const auto [none] = Parsed("[1]").Pick<1>({"a"});
  EXPECT_FALSE(none.has_value());
}

TEST(JsonReaderTest, MembersComeInDocumentOrder) {
  std::string seen;
  const Status status =
      Parsed(R"( { "b" : "}\"]" , "a" : { "x" : [ ] } , "c" : null } )")
          .ForEachMember([&seen](std::string_view name, Value value) {
            seen.append(name).append(std::to_string(static_cast<int>(value.kind())));
            return Status::Ok();
          });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(seen, "b3a5c0");
  EXPECT_EQ(
      Parsed("[]").ForEachMember([](std::string_view, Value) { return Status::Ok(); }).message(),
      "attempt to get members for non-object");
}

TEST(JsonReaderTest, ScalarsOfNestedArraysAreFlattened) {
  std::vector<int64_t> values;
  const auto collect = [&values](Value v) {
    values.push_back(*v.AsInt());
    return Status::Ok();
  };
  EXPECT_TRUE(Parsed("[[1], [2,[3 ,4]],[], 5 ]").ForEachScalar(100, collect).ok());
  EXPECT_EQ(values, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(*Parsed("[[1],[2,[3,4]],[],5]").NumElements(), 4U);
}

TEST(JsonReaderTest, DepthIsLimitedOnlyWhereAsked) {
  constexpr size_t kDeep = 250'000;
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  const Value value = Parsed(deep);
  EXPECT_EQ(*value.NumElements(), 1U);
  const Status status = value.ForEachScalar(100, [](Value) { return Status::Ok(); });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "JSON nesting depth exceeds maximum allowed limit (100)");
  const std::string hundred = std::string(100, '[') + "7" + std::string(100, ']');
  EXPECT_TRUE(Parsed(hundred).ForEachScalar(100, [](Value) { return Status::Ok(); }).ok());
}

}  // namespace
}  // namespace inflight::json
