// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/json_scan.h"

#include <gtest/gtest.h>

namespace inflight::answer_parts {
namespace {

// Bytes until the object is done; -1 where the text is none, 0 where it is not done.
int DoneAfter(std::string_view text) {
  JsonScan scan;
  for (size_t i = 0; i < text.size(); ++i) {
    const JsonScan::Step step = scan.Add(text[i]);
    if (step == JsonScan::Step::kDone) return static_cast<int>(i) + 1;
    if (step == JsonScan::Step::kBad) return -1;
  }
  return 0;
}

TEST(JsonScanTest, AnObjectEndsWithItsBracket) {
  for (const std::string_view text :
       {"{}", R"({"a": 1})", R"({"a": [1, -2.5e3, true, null, "}"], "b": {"c": "\"\\\u00e9"}})",
        "{ \"a\" : [ ] }"}) {
    EXPECT_EQ(DoneAfter(text), static_cast<int>(text.size())) << text;
    EXPECT_EQ(DoneAfter(std::string(text) + "}"), static_cast<int>(text.size())) << text;
    EXPECT_EQ(DoneAfter(text.substr(0, text.size() - 1)), 0) << text;
  }
}

TEST(JsonScanTest, WhatIsNoObjectIsBad) {
  for (const std::string_view text :
       {"[1]", "1", " {}", "{a: 1}", "{\"a\" 1}", "{\"a\": }", "{\"a\": 1,}", "{\"a\": [1,]}",
        "{\"a\": 01}", "{\"a\": tru}", "{\"a\": 1]", "{\"a\": \"\n\"}", R"({"a": "\x"})",
        R"({"a": "\u12g4"})", "{\"a\": 1 2}", "{,}"})
    EXPECT_EQ(DoneAfter(text), -1) << text;
}

}  // namespace
}  // namespace inflight::answer_parts
