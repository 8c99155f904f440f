// SPDX-License-Identifier: Apache-2.0
// Calls as Python writes them, and their arguments as JSON: expectations are made by hand.
#include <gmock/gmock.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer_parts/testing/parsed_text.h"

namespace inflight::answer_parts {
namespace {

using testing::ElementsAre;

TEST(PythonicTest, CallsAreNamedLiterals) {
  const Case how{.format = "pythonic"};
  EXPECT_THAT(
      PartsOf(how, R"([add(a=-1.5, b='it\'s "x"', c=[1, (2,)], d={'k': None}), get_weather()])"),
      ElementsAre(Calls("add"),
                  With(R"({"a": -1.5, "b": "it's \"x\"", "c": [1, [2]], "d": {"k": null}})"),
                  Calls("get_weather"), With("{}")));
  EXPECT_THAT(PartsOf(how, "<|python_start|>[add(a=True)]<|python_end|>"),
              ElementsAre(Calls("add"), With(R"({"a": true})")));
  EXPECT_THAT(
      PartsOf(how, R"(<|python_start|>[add(a="<|python_end|>", b='"<|python_tag|>')])"),
      ElementsAre(Calls("add"), With(R"({"a": "<|python_end|>", "b": "\"<|python_tag|>"})")));
  EXPECT_THAT(PartsOf(how, "[add(a=1E+5, b=-2e+3)]"),
              ElementsAre(Calls("add"), With(R"({"a": 1E+5, "b": -2e+3})")));
  EXPECT_THAT(
      PartsOf(how, "<|python_start|> [ add ( a = 1 , ) , get_weather() , ]\n<|python_end|>"),
      ElementsAre(Calls("add"), With(R"({"a": 1})"), Calls("get_weather"), With("{}")));
  EXPECT_THAT(PartsOf(how, "[add(a=1)] [get_weather()] So."),
              ElementsAre(Calls("add"), With(R"({"a": 1})"), Calls("get_weather"), With("{}"),
                          Says("So.")));
  for (const std::string_view text :
       {"[1, 2]", "[add(1)]", "[add(a, b=1)]", "[add(a=b)]", "[other(a=1)]", "[]", "[,]", "[add(",
        "[add(a=('x'", "[ad", "Call [add(a=1)]", "[add]", "[add(a==1)]", "[add(a=(1 2))]"})
    EXPECT_THAT(PartsOf(how, text), ElementsAre(Says(std::string(text))));
}

TEST(PythonicTest, ArgumentsThatAreNoLiteralsAreTold) {
  const Case how{.format = "pythonic"};
  EXPECT_THAT(PartsOf(how, "[add(a=1 + 2, b='x')] So."),
              ElementsAre(Calls("add"), With(R"({"a": 1 + 2, b='x')] So.)")));
  EXPECT_THAT(PartsOf(how, "[add(a=1, b=x)]<|python_end|>So."),
              ElementsAre(Calls("add"), With(R"({"a": 1, b=x)])"), Says("So.")));
  EXPECT_THAT(PartsOf(how, "[add(a={'k': [1, x]})]"),
              ElementsAre(Calls("add"), With(R"({"a": {"k": [1, x]})])")));
  EXPECT_THAT(PartsOf(how, "[add(a=1, 2)]"), ElementsAre(Calls("add"), With(R"({"a": 1, 2)])")));
  EXPECT_THAT(PartsOf(how, R"([add(a=['\u12', 1])])"),
              ElementsAre(Calls("add"), With(R"({"a": ["\u12', 1])])")));
  EXPECT_THAT(PartsOf(how, "[add(a=1, b=(2, (3, 4 5))]"),
              ElementsAre(Calls("add"), With(R"({"a": 1, "b": [2, [3, 4 5))])")));
  EXPECT_THAT(PartsOf(how, "[add(a=1, b=(2 3))]"),
              ElementsAre(Calls("add"), With(R"({"a": 1, b=(2 3))])")));
  for (const std::string rest : {"other(a=1)]", "add(a=b)]", "add((", "a dog]"})
    EXPECT_THAT(PartsOf(how, "[add(a=1), " + rest),
                ElementsAre(Calls("add"), With(R"({"a": 1})"), Says(", " + rest)));
}

// What is told of the arguments behind each piece.
TEST(PythonicTest, ArgumentsComeAsSoonAsTheirJsonIsDecided) {
  constexpr std::pair<std::string_view, std::string_view> kPieces[] = {
      {"[get_weather(city", ""},
      {"='", R"({"city": ")"},
      {"K", "K"},
      {R"(\xf)", ""},
      {"6ln, it", "öln, it"},
      {R"(\)", ""},
      {"'s <|py", "'s "},
      {R"(thon "a")", R"(<|python \"a\")"},
      {"'", ""},
      {" 'b'", "b"},
      {", on=Tru", R"(")"},
      {"e", ""},
      {", n=", R"(, "on": true)"},
      {"-", ""},
      {"1", R"(, "n": -1)"},
      {"_", ""},
      {"2", "2"},
      {".", ""},
      {"5", ".5"},
      {"e", ""},
      {"+3", "e+3"},
      {", l=[", R"(, "l": [)"},
      {"0", ""},
      {", ", "0"},
      {"{", ", {"},
      {"'k", R"("k)"},
      {"':", R"(": )"},
      {"(", ""},
      {"1", ""},
      {",", "[1"},
      {"2)", ", 2]"},
      {"}", "}"},
      {", ]", "]"},
      {", s=''", R"(, "s": ")"},
      {"'a''", "a"},
      {" ", "'' "},
      {"'''", ""},
      {")", R"("})"},
      {"]", ""},
  };
  AnswerParser parser = ParserOf({.format = "pythonic"});
  std::string text, all;
  for (const auto& [piece, told] : kPieces) {
    Parts parts;
    parser.Add(piece, parts);
    text.append(piece);
    std::string found;
    for (const Part& part : parts.items())
      if (part.kind == Part::Kind::kArguments) found.append(part.text);
    EXPECT_EQ(found, told) << "behind " << text;
    all.append(found);
  }
  EXPECT_EQ(all, R"({"city": "Köln, it's <|python \"a\"b", "on": true, "n": -12.5e+3, )"
                 R"("l": [0, {"k": [1, 2]}], "s": "a'' "})");
  EXPECT_THAT(PartsOf({.format = "pythonic"}, text), ElementsAre(Calls("get_weather"), With(all)));
}

// However much of the text is there, what is told of the arguments is how those of all begin.
TEST(PythonicTest, ArgumentsThatAreCutAreTold) {
  const Case how{.format = "pythonic"};
  EXPECT_THAT(PartsOf(how, "[add(a=1, b=Tr"), ElementsAre(Calls("add"), With(R"({"a": 1)")));
  EXPECT_THAT(PartsOf(how, "[add(a=1), "), ElementsAre(Calls("add"), With(R"({"a": 1})")));
  EXPECT_THAT(PartsOf(how, "<|python_start|>[add(a='x<|python_end|> So."),
              ElementsAre(Calls("add"), With(R"({"a": "x<|python_end|> So.)")));
  EXPECT_THAT(PartsOf(how, "<|python_start|>[add(a=1<|python_end|> So."),
              ElementsAre(Calls("add"), With(R"({"a": 1)"), Says("So.")));
  const std::string text = R"([add(a=(1, ('\u00e9', ), ("x")), b=0x1F, c={1: r'\d', None: .5}, )"
                           R"(d="""a"b""" 'c', e=[], f=(), g=1_0., h='\ud83d\ude00\101\q')])";
  const std::string whole = R"({"a": [1, ["é"], "x"], "b": 31, "c": {"1": "\\d", "null": 0.5}, )"
                            R"("d": "a\"bc", "e": [], "f": [], "g": 10.0, "h": "😀A\\q"})";
  EXPECT_THAT(PartsOf(how, text), ElementsAre(Calls("add"), With(whole)));
  for (size_t size = 1; size < text.size(); ++size) {
    const std::string begin = text.substr(0, size);
    const std::vector<Part> parts = PartsOf(how, begin);
    if (parts.front().kind == Part::Kind::kContent) {
      EXPECT_THAT(parts, ElementsAre(Says(begin)));
      continue;
    }
    ASSERT_THAT(parts,
                ElementsAre(Calls("add"), testing::Field(&Part::kind, Part::Kind::kArguments)));
    EXPECT_THAT(whole, testing::StartsWith(parts.back().text)) << begin;
  }
}

}  // namespace
}  // namespace inflight::answer_parts
