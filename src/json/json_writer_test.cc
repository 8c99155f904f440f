// SPDX-License-Identifier: Apache-2.0
// Number spellings are those recorded from a Triton server (cases infer_json_numbers, generate).
#include "json/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

namespace inflight::json {
namespace {

std::string Double(double value) {
  std::string text;
  AppendDouble(text, value);
  return text;
}

std::string Quoted(std::string_view text) {
  std::string out;
  AppendString(out, text);
  return out;
}

TEST(JsonWriterTest, DoublesAlwaysShowThatTheyAreDoubles) {
  const std::pair<double, std::string_view> kCases[] = {
      {3, "3.0"},
      {0, "0.0"},
      {-0.0, "-0.0"},
      {100, "100.0"},
      {0.1, "0.1"},
      {static_cast<double>(0.1F), "0.10000000149011612"},
      {static_cast<double>(1e-05F), "0.000009999999747378752"},
      {123456.789, "123456.789"},
      {static_cast<double>(123456.789F), "123456.7890625"},
      {10000000000.0, "10000000000.0"},
      {1e20, "100000000000000000000.0"},
      {1e21, "1e21"},
      {-1.5e300, "-1.5e300"},
      {1e-06, "0.000001"},
      {1e-07, "1e-7"},
      {5e-324, "5e-324"},
      {2.2250738585072014e-308, "2.2250738585072014e-308"},
      {9223372036854775808.0, "9223372036854776000.0"},
      {std::numeric_limits<double>::quiet_NaN(), "NaN"},
      {HUGE_VAL, "Infinity"},
      {-HUGE_VAL, "-Infinity"},
  };
  for (const auto& [value, text] : kCases) EXPECT_EQ(Double(value), text);
}

TEST(JsonWriterTest, RandomDoublesReadBackEqual) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(std::strtod(Double(value).c_str(), nullptr), value);
  }
}

TEST(JsonWriterTest, OnlyControlCharactersQuotesAndBackslashesAreEscaped) {
  EXPECT_EQ(Quoted("a/b<>&"), R"("a/b<>&")");
  EXPECT_EQ(Quoted("\b\f\n\r\t\"\\"), R"("\b\f\n\r\t\"\\")");
  EXPECT_EQ(Quoted(std::string_view("\0\x1f\x7f", 3)), "\"\\u0000\\u001F\x7f\"");
  EXPECT_EQ(Quoted("é☃\xff"), "\"é☃\xff\"");
  EXPECT_EQ(Quoted(""), "\"\"");
}

TEST(JsonWriterTest, CommasStandBetweenValues) {
  std::string text;
  Writer out(text);
  out.BeginObject();
  out.Key("a").BeginArray().Int(-1).Uint(2).BeginArray().EndArray().Bool(true).EndArray();
  out.Key("b").BeginObject().EndObject();
  out.Key("c").String("x").Key("d").Double(1).Key("e").Null();
  out.EndObject();
  EXPECT_EQ(text, R"({"a":[-1,2,[],true],"b":{},"c":"x","d":1.0,"e":null})");
}

TEST(JsonWriterTest, ValuesOfSeveralLinesAreWrittenOnOne) {
  EXPECT_EQ(OnOneLine("{\r\n\"a\\n\":\n[1]}"), R"({  "a\n": [1]})");
}

TEST(JsonWriterTest, ErrorBodyIsTextWhateverItQuotes) {
  EXPECT_EQ(ErrorBody("got '\xC3'"), "{\"error\":\"got '\xEF\xBF\xBD'\"}");
  EXPECT_EQ(ErrorBody("got '\xC3\xA9'"), "{\"error\":\"got '\xC3\xA9'\"}");
}

TEST(JsonWriterTest, ErrorBodyHasOneMember) {
  EXPECT_EQ(ErrorBody("a \"b\""), R"({"error":"a \"b\""})");
}

}  // namespace
}  // namespace inflight::json
