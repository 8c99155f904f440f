// SPDX-License-Identifier: Apache-2.0
// The parts of a text, as a parser tells them, for tests: they are to be the same however the text
// is cut.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer_parts/answer_parser.h"

namespace inflight::answer_parts {

inline Part Says(std::string text) { return {Part::Kind::kContent, std::move(text)}; }
inline Part Thinks(std::string text) { return {Part::Kind::kReasoning, std::move(text)}; }
inline Part Calls(std::string name) { return {Part::Kind::kCall, std::move(name)}; }
inline Part With(std::string arguments) { return {Part::Kind::kArguments, std::move(arguments)}; }

// How a model of the tests answers.
struct Case {
  std::string_view format = {};
  std::string_view tags = {};
  BeginsIn begin = BeginsIn::kAnything;
  bool one_call = false;
  bool is_guided = false;
};

inline AnswerParser ParserOf(const Case& how) {
  AnswerFormat format{.one_call = how.one_call, .is_guided = how.is_guided};
  if (!how.format.empty()) format.calls = *CallFormatNamed(how.format);
  if (!how.tags.empty()) format.reasoning = *ReasoningTagsNamed(how.tags);
  format.names =
      std::make_shared<const FunctionNames>(FunctionNames{{"add", {}}, {"get_weather", {"city"}}});
  return {format, how.begin};
}

inline std::vector<Part> Parse(const Case& how, const std::vector<std::string_view>& pieces) {
  AnswerParser parser = ParserOf(how);
  Parts all;
  const auto take = [&all](const Parts& parts) {
    for (const Part& part : parts.items()) all.Add(part.kind, part.text);
  };
  for (const std::string_view piece : pieces) {
    Parts parts;
    parser.Add(piece, parts);
    take(parts);
  }
  Parts parts;
  parser.Finish(parts);
  take(parts);
  return all.items();
}

// The parts of the text, which are the same however it is cut.
inline std::vector<Part> PartsOf(const Case& how, std::string_view text) {
  std::vector<Part> whole = Parse(how, {text});
  for (size_t size = 1; size <= text.size(); ++size) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size(); at += size) pieces.push_back(text.substr(at, size));
    EXPECT_EQ(Parse(how, pieces), whole) << "in pieces of " << size << ": " << text;
    EXPECT_EQ(Parse(how, {text.substr(0, size), text.substr(size)}), whole)
        << "cut behind " << size << ": " << text;
  }
  return whole;
}

}  // namespace inflight::answer_parts
