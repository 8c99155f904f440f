// SPDX-License-Identifier: Apache-2.0
// What a template may not do, and what errors say. That texts equal Jinja's is shown by
// tests/chat_template against the package.
#include "chat_template/template.h"

#include <gmock/gmock.h>

namespace inflight::chat_template {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string ParseError(const std::string& source) {
  const auto parsed = Template::Parse(source);
  return parsed.ok() ? "parsed" : parsed.status().message();
}

std::string Rendered(const std::string& source, const Variables& variables = {}) {
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return "parse: " + parsed.status().message();
  const auto text = parsed->Render(variables, 0);
  return text.ok() ? *text : "error: " + text.status().message();
}

TEST(TemplateTest, RendersTheTurnsOfAConversation) {
  const auto messages = Value::FromJson(
      R"([{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Yes?"}])");
  ASSERT_TRUE(messages.ok());
  EXPECT_EQ(Rendered("{% for m in messages %}\n  <{{ m.role }}>{{ m['content'] | trim }}\n"
                     "{% endfor %}\n{{ '<assistant>' if add_generation_prompt }}",
                     {{"messages", *messages}, {"add_generation_prompt", Value(true)}}),
            "  <user>Hi\n  <assistant>Yes?\n<assistant>");
}

TEST(TemplateTest, RefusesByNameAndLineWhatIsNotSupported) {
  EXPECT_EQ(ParseError("a\n{% include 'x' %}"),
            "line 2: the statement 'include' is not supported; supported are if, for, break, "
            "continue, set, macro, call and generation");
  EXPECT_THAT(
      ParseError("\n\n{{ x | xmlattr }}"),
      StartsWith(
          "line 3: the filter 'xmlattr' is not supported; supported are capitalize, count, d, "));
  EXPECT_THAT(ParseError("{{ x is escaped }}"),
              StartsWith("line 1: the test 'escaped' is not supported; supported are "));
  EXPECT_THAT(ParseError("{{ x is escaped }}"), HasSubstr(", divisibleby, in, "));
  EXPECT_THAT(Rendered("{% if x %}\n{{ 1 | xmlattr }}{% endif %}", {{"x", Value(true)}}),
              StartsWith("error: line 2: the filter 'xmlattr' is not supported; supported are "));
  EXPECT_EQ(Rendered("{% if x %}{{ 1 | xmlattr }}{% endif %}a"), "a");
  EXPECT_THAT(ParseError("{% if x %}{% for y in z %}{{ y | xmlattr }}{% endfor %}{% endif %}"),
              HasSubstr("the filter 'xmlattr' is not supported"));
  EXPECT_EQ(ParseError("{% for x in y recursive %}{% endfor %}"),
            "line 1: a recursive loop is not supported; nest loops");
  EXPECT_EQ(Template::Parse("{{ 2 ** 3 }}").status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Rendered("\n{{ 'a'.encode() }}"),
              StartsWith("error: line 2: the method 'encode' of a text is not supported; supported "
                         "are capitalize, "));
  EXPECT_EQ(Rendered("{{ [1].append(2) }}"),
            "error: line 1: the method 'append' of a value of type list is not supported; texts "
            "and dicts have methods");
}

TEST(TemplateTest, NamesTheLineOfFaultySyntax) {
  EXPECT_EQ(ParseError("\n{% if x %}y"), "line 2: '{% endif %}' is missing");
  EXPECT_EQ(ParseError("{% endif %}"), "line 1: '{% endif %}' closes nothing");
  EXPECT_EQ(ParseError("{{ x"), "line 1: '}}' is missing");
  EXPECT_EQ(ParseError("{{ (x }}"), "line 1: '}' closes nothing");
  EXPECT_EQ(ParseError("\n\n{{ }}"), "line 3: expected an expression, found '}}'");
  EXPECT_EQ(ParseError("{% frobnicate %}"), "line 1: unknown statement 'frobnicate'");
  EXPECT_EQ(ParseError("{% break %}"), "line 1: 'break' stands outside of a loop");
  EXPECT_EQ(ParseError("{{ 'x }}"), "line 1: a text has no closing quote");
  EXPECT_EQ(ParseError("{{ 99999999999999999999 }}"), "line 1: 99999999999999999999 is too large");
}

TEST(TemplateTest, TellsWhatIsWrongWithAValue) {
  EXPECT_EQ(Rendered("{{ x.y }}"), "error: line 1: 'x' is undefined, so it has no 'y'");
  EXPECT_EQ(Rendered("{{ 'a' + 1 }}"), "error: line 1: '+' does not join str and int");
  EXPECT_EQ(Rendered("{{ 1 // 0 }}"), "error: line 1: division by 0");
  EXPECT_EQ(Rendered("{{ 9223372036854775807 + 1 }}"), "error: line 1: '+' exceeds 64 bits");
  EXPECT_EQ(Rendered("{% for x in 5 %}{% endfor %}"),
            "error: line 1: a value of type int is not iterable");
}

// A macro sees the variables around it, wherever it is called, and does not outlive them.
TEST(TemplateTest, AMacroOfALoopEndsWithItsPass) {
  EXPECT_EQ(Rendered("{% macro run(m) %}{{ m() }}{% endmacro %}"
                     "{% for i in [1] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{{ run(f) }}"
                     "{% endfor %}"),
            "11");
  EXPECT_EQ(Rendered("{% set n = namespace(f=0) %}{% for i in [1] %}{% macro f() %}{{ i }}"
                     "{% endmacro %}{% set n.f = f %}{% endfor %}{{ [n.f][0]() }}"),
            "error: line 1: the macro 'f' is called where it is not defined");
}

TEST(TemplateTest, ACallBlockEndsWithItsScope) {
  EXPECT_EQ(Rendered("{% set n = namespace(c=0) %}{% macro f() %}{% set n.c = caller %}"
                     "{{ caller() }}{% endmacro %}{% for i in [7] %}{% call f() %}{{ i }}"
                     "{% endcall %}{% endfor %}{% for i in [8] %}\n{{ [n.c][0]() }}{% endfor %}"),
            "error: line 2: the macro 'caller' is called where it is not defined");
}

TEST(TemplateTest, TellsWhatIsWrongWithACall) {
  EXPECT_EQ(ParseError("{% call x %}{% endcall %}"), "line 1: expected a call of a macro");
  EXPECT_EQ(ParseError("{% call f() %}"), "line 1: '{% endcall %}' is missing");
  EXPECT_EQ(ParseError("{% macro f(caller) %}{{ caller() }}{% endmacro %}"),
            "line 1: the parameter 'caller' has no default");
  EXPECT_EQ(ParseError("{{ f(*a, *b) }}"), "line 1: a call has a second argument with *");
  EXPECT_EQ(ParseError("{{ f(*a, b) }}"), "line 1: an argument without a name follows one with *");
  EXPECT_EQ(ParseError("{{ f(**a, b=1) }}"), "line 1: an argument follows one with **");
  EXPECT_EQ(Rendered("{% macro f() %}{% endmacro %}{% call f() %}{% endcall %}"),
            "error: line 1: f: unknown argument 'caller'");
  EXPECT_EQ(Rendered("{{ dict(**[1]) }}"),
            "error: line 1: '**' needs a dict, got a value of type list");
  EXPECT_EQ(Rendered("{{ dict(**{1: 2}) }}"),
            "error: line 1: '**' needs a dict whose keys are texts");
  EXPECT_EQ(Rendered("{{ dict(a=1, **{'a': 2}) }}"), "error: line 1: argument 'a' is given twice");
  EXPECT_EQ(Rendered("{{ dict(*none) }}"),
            "error: line 1: a value of type NoneType is not iterable");
  EXPECT_EQ(Rendered("{% call dict() %}{% endcall %}"),
            "error: line 1: a `call` block needs a text, got a value of type dict");
}

TEST(TemplateTest, AGeneratorHasNoText) {
  EXPECT_EQ(Rendered("{{ [1] | select }}"), "error: line 1: a generator cannot be printed");
  EXPECT_EQ(Rendered("{{ [1] | select | tojson }}"),
            "error: line 1: tojson: a value of type generator has no JSON form");
}

TEST(TemplateTest, RaisedExceptionIsTheTemplatesOwnWords) {
  EXPECT_EQ(Rendered("{{ raise_exception('roles must alternate') }}"),
            "error: roles must alternate");
}

TEST(TemplateTest, EndlessWorkEnds) {
  EXPECT_THAT(Rendered("{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(1000) %}"
                       "{% set n.s = n.s + n.s %}{% endfor %}"),
              HasSubstr("too much work"));
  EXPECT_THAT(Rendered("{% set n = namespace(s=[1]) %}{% for i in range(1000) %}"
                       "{% set n.s = n.s + n.s %}{% endfor %}"),
              HasSubstr("too much work"));
  EXPECT_THAT(Rendered("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("nests too deep"));
  EXPECT_THAT(
      Rendered("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}"),
      HasSubstr("nests too deep"));
  EXPECT_THAT(Rendered("{% set n = namespace(s=[]) %}{% for i in range(1000) %}"
                       "{% set n.s = [n.s] %}{% endfor %}"),
              HasSubstr("nest deeper than 100"));
  EXPECT_THAT(Rendered("{{ 'x' * 9223372036854775807 }}"), HasSubstr("too long"));
}

TEST(TemplateTest, NamespaceCannotHoldItself) {
  EXPECT_THAT(Rendered("{% set n = namespace() %}{% set n.n = n %}"), HasSubstr("namespace"));
  EXPECT_THAT(Rendered("{% set n = namespace() %}{% set n.n = [n] %}"), HasSubstr("namespace"));
}

TEST(TemplateTest, DeepSourcesAreRefusedNotOverflowing) {
  EXPECT_THAT(ParseError("{{ " + std::string(100000, '(')), HasSubstr("missing"));
  std::string parentheses = "{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}";
  EXPECT_THAT(ParseError(parentheses), HasSubstr("deeper than 100"));
  std::string members = "{{ x";
  for (int i = 0; i < 100000; ++i) members += ".a";
  EXPECT_THAT(ParseError(members + " }}"), HasSubstr("more than 200 levels"));
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if x %}";
  EXPECT_THAT(ParseError(blocks), HasSubstr("deeper than 100"));
  EXPECT_FALSE(Value::FromJson(std::string(100000, '[')).ok());
}

}  // namespace
}  // namespace inflight::chat_template
