// SPDX-License-Identifier: Apache-2.0
// Outputs in the forms that the models' publishers document, whole and in pieces of any size.
#include "answer_parts/answer_parser.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "answer_parts/call_guide.h"
#include "answer_parts/testing/parsed_text.h"

namespace inflight::answer_parts {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(AnswerParserTest, HermesCalls) {
  const Case how{.format = "hermes"};
  EXPECT_THAT(PartsOf(how,
                      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2]}}\n"
                      "</tool_call>"),
              ElementsAre(Calls("add"), With(R"({"a": 1, "b": [2]})")));
  EXPECT_THAT(PartsOf(how,
                      "I will look.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                      "{\"city\": \"A<tool_call>}\\\"\"}}\n</tool_call>\n<tool_call>{\"arguments\":"
                      " {}, \"name\": \"add\"}</tool_call>\n"),
              ElementsAre(Says("I will look."), Calls("get_weather"),
                          With("{\"city\": \"A<tool_call>}\\\"\"}"), Calls("add"), With("{}")));
  EXPECT_THAT(PartsOf(how, R"(<tool_call>{"name": "add"}</tool_call>)"),
              ElementsAre(Calls("add"), With("{}")));
  EXPECT_THAT(PartsOf(how, R"(<tool_call>{"name": "add", "arguments": "{\"a\": 1}"}</tool_call>)"),
              ElementsAre(Calls("add"), With(R"({"a": 1})")));
  EXPECT_THAT(PartsOf(how, " No <tool_ call, 1 < 2.\n"),
              ElementsAre(Says(" No <tool_ call, 1 < 2.\n")));
}

TEST(AnswerParserTest, WhatIsNoCallIsContent) {
  const Case how{.format = "hermes"};
  for (const std::string_view text :
       {"<tool_call>\nadd(1)\n</tool_call>", R"(<tool_call>{"name": "other", "arguments": {}})",
        R"(a <tool_call>{"name": "ad)", "<tool_call>", "<tool_c",
        R"(<tool_call>{"a": 1}</tool_call>)", R"(<tool_call>{"arguments": {"a")"})
    EXPECT_THAT(PartsOf(how, text), ElementsAre(Says(std::string(text))));
  EXPECT_THAT(
      PartsOf(how, "<tool_call>no <tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>"),
      ElementsAre(Says("<tool_call>no"), Calls("add"), With("{}")));
}

TEST(AnswerParserTest, ArgumentsThatAreCutOrNoJsonAreTold) {
  const Case how{.format = "hermes"};
  EXPECT_THAT(PartsOf(how, R"(<tool_call>{"name": "add", "arguments": {"a": )"),
              ElementsAre(Calls("add"), With(R"({"a": )")));
  EXPECT_THAT(
      PartsOf(how, "<tool_call>{\"name\": \"add\", \"arguments\": {a: 1}}</tool_call> Done."),
      ElementsAre(Calls("add"), With("{a: 1}}"), Says("Done.")));
  EXPECT_THAT(PartsOf(how, "<tool_call>{\"name\": \"add\", \"arguments\": {}</tool_call>"),
              ElementsAre(Calls("add"), With("{}")));
  EXPECT_THAT(PartsOf(how, "<tool_call>{\"name\": \"add\", \"arguments\": {}} x </tool_call>"),
              ElementsAre(Calls("add"), With("{}"), Says("x ")));
}

TEST(AnswerParserTest, LlamaCalls) {
  const Case how{.format = "llama"};
  EXPECT_THAT(PartsOf(how, R"({"name": "add", "parameters": {"a": 1}})"),
              ElementsAre(Calls("add"), With(R"({"a": 1})")));
  EXPECT_THAT(
      PartsOf(how, R"(<|python_tag|>{"type": "function", "name": "add", "parameters": {}})"
                   R"(; {"name": "get_weather", "parameters": {"city": "Ö"}})"),
      ElementsAre(Calls("add"), With("{}"), Calls("get_weather"), With(R"({"city": "Ö"})")));
  EXPECT_THAT(PartsOf(how, R"({"name": "Bob", "age": 3})"),
              ElementsAre(Says(R"({"name": "Bob", "age": 3})")));
  EXPECT_THAT(PartsOf(how, R"(So {"name": "add", "parameters": {}})"),
              ElementsAre(Says(R"(So {"name": "add", "parameters": {}})")));
}

TEST(AnswerParserTest, MistralCalls) {
  const Case how{.format = "mistral"};
  EXPECT_THAT(PartsOf(how, R"([TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, )"
                           R"({"name": "get_weather", "arguments": {}, "id": "x"}])"),
              ElementsAre(Calls("add"), With(R"({"a": 1})"), Calls("get_weather"), With("{}")));
  EXPECT_THAT(
      PartsOf(how,
              R"(Yes.[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]get_weather[CALL_ID]abc[ARGS]{})"),
      ElementsAre(Says("Yes."), Calls("add"), With(R"({"a": 1})"), Calls("get_weather"),
                  With("{}")));
  for (const std::string_view text : {"[TOOL_CALLS]other[ARGS]{}", "[TOOL_CALLS][]",
                                      "[TOOL_CALLS] add", "[TOOL_CALLS][{\"a\": 1}]", "[TOOL_C"})
    EXPECT_THAT(PartsOf(how, text), ElementsAre(Says(std::string(text))));
}

TEST(AnswerParserTest, DeepSeekCalls) {
  const Case how{.format = "deepseek"};
  EXPECT_THAT(PartsOf(how,
                      "Look:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n"
                      "```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
                      "<｜tool▁sep｜>get_weather\n```json\n{}\n```<｜tool▁call▁end｜>"
                      "<｜tool▁calls▁end｜>"),
              ElementsAre(Says("Look:"), Calls("add"), With(R"({"a": 1})"), Calls("get_weather"),
                          With("{}")));
  EXPECT_THAT(PartsOf(how,
                      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 1}"
                      "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
              ElementsAre(Calls("add"), With(R"({"a": 1})")));
  EXPECT_THAT(PartsOf(how, "<｜tool▁call▁begin｜>other<｜tool▁sep｜>{}"),
              ElementsAre(Says("<｜tool▁call▁begin｜>other<｜tool▁sep｜>{}")));
}

TEST(AnswerParserTest, ListsOfCalls) {
  const Case how{.format = "list"};
  EXPECT_THAT(
      PartsOf(how, R"(<|tool_call|>[{"name": "add", "arguments": {"a": 1}}]<|/tool_call|>)"),
      ElementsAre(Calls("add"), With(R"({"a": 1})")));
  EXPECT_THAT(
      PartsOf(how,
              R"(functools[{"name": "add", "arguments": {}}, {"name": "add", "arguments": {}}])"),
      ElementsAre(Calls("add"), With("{}"), Calls("add"), With("{}")));
  EXPECT_THAT(PartsOf(how, "functools[1]"), ElementsAre(Says("functools[1]")));
}

// As openai/harmony, "OpenAI harmony response format" writes them.
TEST(AnswerParserTest, HarmonyChannels) {
  const Case how{.format = "harmony", .tags = "harmony"};
  EXPECT_THAT(PartsOf(how,
                      "<|channel|>analysis<|message|>User asks: 2 + 2.<|end|><|start|>assistant"
                      "<|channel|>final<|message|>2 + 2 = 4 < 5.\n<|return|>"),
              ElementsAre(Thinks("User asks: 2 + 2."), Says("2 + 2 = 4 < 5.\n")));
  EXPECT_THAT(PartsOf(how,
                      "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>"
                      "commentary to=functions.get_weather <|constrain|>json<|message|>"
                      "{\"city\": \"<|call|>\"}<|call|>"),
              ElementsAre(Thinks("Look."), Calls("get_weather"), With(R"({"city": "<|call|>"})")));
  // The recipient in the role, as templates render calls; without <|constrain|>; without the end,
  // which is an end of texts.
  EXPECT_THAT(PartsOf(how, " to=functions.add<|channel|>commentary json<|message|>{\"a\": 1}"),
              ElementsAre(Calls("add"), With(R"({"a": 1})")));
  EXPECT_THAT(
      PartsOf(how,
              "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant"
              " to=functions.add<|channel|>commentary<|message|>{}<|call|><|start|>assistant"
              "<|channel|>commentary to=get_weather<|message|><|call|>"
              "<|start|>assistant<|channel|>final<|message|>Done."),
      ElementsAre(Says("I will look."), Calls("add"), With("{}"), Calls("get_weather"), With("{}"),
                  Says("Done.")));
  // Messages of one kind are apart.
  EXPECT_THAT(PartsOf(how,
                      "<|channel|>analysis<|message|>A.<|end|><|start|>assistant<|channel|>analysis"
                      "<|message|>B.<|end|><|start|>assistant<|channel|>commentary<|message|>C."
                      "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>{}"),
              ElementsAre(Thinks("A.\n\nB."), Says("C.\n\n{}")));
}

TEST(AnswerParserTest, HarmonyTextsThatAreNoMessages) {
  const Case how{.format = "harmony", .tags = "harmony"};
  for (const std::string_view text :
       {"Just a text. 1 <| 2", "<|channel|>fin", "assistance", "to be", "to=nobody",
        "<|channel|>commentary to=functions.other <|constrain|>json<|message|>{\"a\": 1}"})
    EXPECT_THAT(PartsOf(how, text), ElementsAre(Says(std::string(text))));
  EXPECT_THAT(PartsOf(how, "<|channel|>analysis to=python code<|message|>1 + 1<|call|>"),
              ElementsAre(Thinks("1 + 1")));
  EXPECT_THAT(PartsOf(how,
                      "<|channel|>commentary to=functions.add<|message|>{\"a\": 1<|call|><|start|>"
                      "assistant<|channel|>final<|message|>So."),
              ElementsAre(Calls("add"), With(R"({"a": 1)"), Says("So.")));
  EXPECT_THAT(PartsOf(how, "<|channel|>commentary to=functions.add<|message|>no <b> JSON<|call|>"),
              ElementsAre(Calls("add"), With("no <b> JSON")));
  EXPECT_THAT(PartsOf(how,
                      "<|channel|>final<|message|><|constrain|>a<|message|>b<|channel|>final"
                      "<|message|>c"),
              ElementsAre(Says("<|constrain|>a<|message|>b\n\nc")));
  EXPECT_THAT(PartsOf(how, ""), IsEmpty());
}

TEST(AnswerParserTest, HarmonyOfOneFormatAlone) {
  constexpr std::string_view kText =
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.add<|message|>{}<|call|>";
  EXPECT_THAT(
      PartsOf({.tags = "harmony"}, kText),
      ElementsAre(Thinks("Hm."), Says("<|start|>assistant<|channel|>commentary to=functions.add"
                                      "<|message|>{}")));
  EXPECT_THAT(PartsOf({.format = "harmony"}, kText),
              ElementsAre(Says("Hm."), Calls("add"), With("{}")));
  EXPECT_THAT(PartsOf({.format = "harmony"},
                      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
                      "<|message|>Yes."),
              ElementsAre(Says("Hm.\n\nYes.")));
  EXPECT_THAT(PartsOf({.tags = "harmony", .begin = BeginsIn::kReasoning},
                      "Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."),
              ElementsAre(Thinks("Hm."), Says("Yes.")));
  EXPECT_THAT(PartsOf({.tags = "harmony", .begin = BeginsIn::kContent}, "Yes <b>.<|return|>"),
              ElementsAre(Says("Yes <b>.")));
}

TEST(AnswerParserTest, AGuidedMessageIsTheLastWhateverItSays) {
  constexpr std::string_view kText = "a<|end|><|start|>assistant<|channel|>analysis<|message|>b <";
  const std::string analysis =
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>";
  const std::string answer = analysis + "final<|message|>" + std::string(kText);
  EXPECT_THAT(PartsOf({.tags = "harmony", .is_guided = true}, answer),
              ElementsAre(Thinks("Hm."), Says(std::string(kText))));
  EXPECT_THAT(PartsOf({.tags = "harmony", .begin = BeginsIn::kContent, .is_guided = true}, kText),
              ElementsAre(Says(std::string(kText))));
  EXPECT_THAT(PartsOf({.format = "harmony", .is_guided = true},
                      "<|channel|>final<|message|>" + std::string(kText)),
              ElementsAre(Says(std::string(kText))));
  EXPECT_THAT(PartsOf({.tags = "harmony", .is_guided = true}, analysis + "final<|mess"),
              ElementsAre(Thinks("Hm.")));
  EXPECT_THAT(
      PartsOf({.tags = "harmony", .is_guided = true}, "no header" + analysis + "final<|message|>b"),
      ElementsAre(Thinks("Hm."), Says("b")));
}

TEST(AnswerParserTest, AGuidedAnswerIsWhatItBeginsAs) {
  const std::string call =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const Case hermes{.format = "hermes", .is_guided = true};
  EXPECT_THAT(PartsOf(hermes, call), ElementsAre(Calls("add"), With(R"({"a": 1})")));
  EXPECT_THAT(PartsOf(hermes, call + "\n" + call),
              ElementsAre(Calls("add"), With(R"({"a": 1})"), Calls("add"), With(R"({"a": 1})")));
  const std::string text = "{\"a\": \"" + call + "\"}";
  EXPECT_THAT(PartsOf(hermes, text), ElementsAre(Says(text)));
  EXPECT_THAT(PartsOf(hermes, ""), IsEmpty());
  EXPECT_THAT(PartsOf({.format = "hermes", .tags = "deepseek", .is_guided = true},
                      "<think>Hm.</think>" + text),
              ElementsAre(Thinks("Hm."), Says(text)));
  const Case llama{.format = "llama", .is_guided = true};
  EXPECT_THAT(PartsOf(llama, R"({"name": "add", "parameters": {"a": 1}})"),
              ElementsAre(Calls("add"), With(R"({"a": 1})")));
  for (const std::string other :
       {R"({"name": "add", "a": 1})", R"({"parameters": {"a": 1}, "name": "add"})", R"({"name)"})
    EXPECT_THAT(PartsOf(llama, other), ElementsAre(Says(other)));
  EXPECT_THAT(PartsOf({.format = "pythonic", .is_guided = true}, "[add(a=1)]"),
              ElementsAre(Calls("add"), With(R"({"a": 1})")));
  EXPECT_THAT(PartsOf({.format = "pythonic", .is_guided = true}, R"json(["add(a=1)"])json"),
              ElementsAre(Says(R"json(["add(a=1)"])json")));
}

TEST(AnswerParserTest, QwenCoderCalls) {
  const Case how{.format = "qwen_coder"};
  EXPECT_THAT(
      PartsOf(
          how,
          "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n\"12\n\n</parameter>\n"
          "<parameter=days>\n[1, 2]\n</parameter>\n<parameter=on>\nTrue\n</parameter>\n"
          "<parameter=a\"b>\nno <b>\n</parameter>\n</function>\n</tool_call>\n"
          "<tool_call><function=add></function></tool_call>"),
      ElementsAre(Says("I look."), Calls("get_weather"),
                  With(R"({"city": "\"12\n", "days": [1, 2], "on": true, "a\"b": "no <b>"})"),
                  Calls("add"), With("{}")));
  EXPECT_THAT(PartsOf(how, "<function=add>\n<parameter=a>7</parameter></tool_call> Done."),
              ElementsAre(Calls("add"), With(R"({"a": 7})"), Says("Done.")));
  EXPECT_THAT(PartsOf(how,
                      "<function=add><parameter=a>NaN</parameter><parameter=b>[\"N\"]"
                      "</parameter><parameter=c>None</parameter></function>"),
              ElementsAre(Calls("add"), With(R"({"a": "NaN", "b": ["N"], "c": null})")));
  EXPECT_THAT(PartsOf(how,
                      "<function=add>\n<parameter=a>\n7\n</parameter>\n<function=add>\n"
                      "</function> <function=add>So <function=other>"),
              ElementsAre(Calls("add"), With(R"({"a": 7})"), Calls("add"), With("{}"), Calls("add"),
                          With("{}"), Says("So <function=other>")));
  EXPECT_THAT(PartsOf(how, "<function=add>\n<tool_call>\n<function=add></function></tool_call>"),
              ElementsAre(Calls("add"), With("{}"), Calls("add"), With("{}")));
  EXPECT_THAT(PartsOf(how, "<tool_call><function=get_weather><parameter=city>\nKö\nl\n"),
              ElementsAre(Calls("get_weather"), With(R"({"city": "Kö\nl)")));
  for (const std::string_view text :
       {"<tool_call>\n<function=other>\n<parameter=a>\n1", "<tool_call>\nx</tool_call>",
        "<tool_call>", "a </tool_call> <function=ad", "<function="})
    EXPECT_THAT(PartsOf(how, text), ElementsAre(Says(std::string(text))));
}

TEST(AnswerParserTest, SeedCalls) {
  const Case how{.format = "seed", .tags = "seed"};
  EXPECT_THAT(
      PartsOf(how,
              "<seed:think>Hm, <seed:cot_budget_reflect>9 are left</seed:cot_budget_reflect>.\n"
              "</seed:think>I look.\n<seed:tool_call>\n<function=get_weather>\n"
              "<parameter=city>Kö\n\"ln\"\n</parameter>\n<parameter=days>[1, 2]</parameter>\n"
              "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=get_weather>\n"
              "<parameter=city>\nUlm\n</parameter>\n</function>\n</seed:tool_call>"),
      ElementsAre(Thinks("Hm, <seed:cot_budget_reflect>9 are left</seed:cot_budget_reflect>."),
                  Says("I look."), Calls("get_weather"),
                  With(R"({"city": "Kö\n\"ln\"\n", "days": [1, 2]})"), Calls("get_weather"),
                  With(R"({"city": "Ulm"})")));
  for (const std::string_view text :
       {"<seed:tool_call>\n<function=other>\n<parameter=a>1", "<tool_call> </tool_call>",
        "<seed:tool_call", "</seed:tool_call>"})
    EXPECT_THAT(PartsOf(how, text), ElementsAre(Says(std::string(text))));
}

TEST(AnswerParserTest, GemmaCalls) {
  const Case how{.format = "gemma", .tags = "gemma"};
  EXPECT_THAT(
      PartsOf(how,
              "<|channel>thought\nHm.<channel|>I look.<|tool_call>call:get_weather{city:<|\"|>Kö\"}"
              "\n<|\"|>,days:[1,<|\"|>b<|\"|>],on:{a:true,b:{}}}<tool_call|><|tool_call>call:add{}"
              "<tool_call|>"),
      ElementsAre(Thinks("Hm."), Says("I look."), Calls("get_weather"),
                  With(R"({"city": "Kö\"}\n", "days": [1, "b"], "on": {"a": true, "b": {}}})"),
                  Calls("add"), With("{}")));
  EXPECT_THAT(
      PartsOf(how,
              "<start_function_call>call:add{a:-1.5,b:<escape>x<escape>,c:word}"
              "<end_function_call> Done."),
      ElementsAre(Calls("add"), With(R"({"a": -1.5, "b": "x", "c": "word"})"), Says("Done.")));
  EXPECT_THAT(PartsOf(how, "<|tool_call>call:add{a:[1}} no<tool_call|>So."),
              ElementsAre(Calls("add"), With(R"({"a": [1}} no)"), Says("So.")));
  EXPECT_THAT(PartsOf(how, "<|tool_call>call:add{a:<|\"|>b"),
              ElementsAre(Calls("add"), With(R"({"a": "b)")));
  for (const std::string_view text :
       {"<|tool_call>call:other{a:1}", "<|tool_call>add{}", "<|tool_call>call:ad", "<|tool_ca"})
    EXPECT_THAT(PartsOf(how, text), ElementsAre(Says(std::string(text))));
}

TEST(AnswerParserTest, ReasoningIsSplitOff) {
  const Case how{.format = "hermes", .tags = "deepseek"};
  EXPECT_THAT(PartsOf(how, "<think>\nHm, <b>.\n</think>\n\nYes.\n"),
              ElementsAre(Thinks("Hm, <b>."), Says("Yes.\n")));
  EXPECT_THAT(PartsOf(how, "\n<think></think>\n\n<tool_call>{\"name\": \"add\"}</tool_call>"),
              ElementsAre(Calls("add"), With("{}")));
  EXPECT_THAT(PartsOf(how, "<think>so <tool_call>"), ElementsAre(Thinks("so <tool_call>")));
  EXPECT_THAT(PartsOf(how, " No <think> here"), ElementsAre(Says(" No <think> here")));
  EXPECT_THAT(PartsOf(how, "<th"), ElementsAre(Says("<th")));
  EXPECT_THAT(PartsOf(how, "\n"), ElementsAre(Says("\n")));
  EXPECT_THAT(PartsOf({.tags = "deepseek", .begin = BeginsIn::kReasoning}, "Hm.</think>Yes."),
              ElementsAre(Thinks("Hm."), Says("Yes.")));
  EXPECT_THAT(PartsOf({.tags = "deepseek", .begin = BeginsIn::kContent}, "<think>Yes."),
              ElementsAre(Says("<think>Yes.")));
  EXPECT_THAT(PartsOf({.tags = "mistral"}, "[THINK]Hm.[/THINK]Yes."),
              ElementsAre(Thinks("Hm."), Says("Yes.")));
  EXPECT_THAT(PartsOf(how, ""), IsEmpty());
}

TEST(AnswerParserTest, OneCallIsTheFirst) {
  const Case how{.format = "llama", .one_call = true};
  EXPECT_THAT(
      PartsOf(how, R"({"name": "add", "parameters": {}}; {"name": "add", "parameters": {}})"),
      ElementsAre(Calls("add"), With("{}")));
}

TEST(AnswerParserTest, APromptSaysHowTheAnswerBegins) {
  const ReasoningTags& tags = **ReasoningTagsNamed("deepseek");
  EXPECT_EQ(FindBegin(tags, "<|assistant|><think>\n"), BeginsIn::kReasoning);
  EXPECT_EQ(FindBegin(tags, "<|assistant|>\n<think>\n\n</think>\n\n"), BeginsIn::kContent);
  EXPECT_EQ(FindBegin(tags, "say <think> now<|assistant|>\n"), BeginsIn::kAnything);
  EXPECT_EQ(FindBegin(tags, ""), BeginsIn::kAnything);
  const ReasoningTags& seed = **ReasoningTagsNamed("seed");
  EXPECT_EQ(FindBegin(seed, "a\n<seed:think><seed:cot_budget_reflect>\n"), BeginsIn::kReasoning);
  EXPECT_EQ(FindBegin(seed, "<seed:cot_budget_reflect>"), BeginsIn::kAnything);
}

TEST(CallFormatsTest, WhatIsWrittenOfCallsIsRead) {
  for (const char* name : {"hermes", "llama"}) {
    const WrittenCalls& written = (*CallFormatNamed(name))->written;
    std::string text;
    for (const char* function : {"add", "get_weather"}) {
      if (!text.empty()) text.append(written.between);
      text.append(written.before_name).append(function).append(written.behind_name);
      text.append(R"({"a": 1})").append(written.behind_arguments);
    }
    EXPECT_THAT(
        PartsOf({.format = name}, text),
        ElementsAre(Calls("add"), With(R"({"a": 1})"), Calls("get_weather"), With(R"({"a": 1})")))
        << name;
  }
}

TEST(CallFormatsTest, AGuideOfTheLastMessageStandsBehindReasoningAlone) {
  const CallFormat& harmony = **CallFormatNamed("harmony");
  const auto text = [&](GuideSpec::Kind kind, std::string_view of, bool reasons = false) {
    return LastMessageGuideText(harmony, {.kind = kind, .text = std::string(of)}, reasons);
  };
  const std::string begin = R"({"tags":[{"begin":"<|channel|>final<|message|>",)";
  EXPECT_EQ(*text(GuideSpec::Kind::kRegex, "a\\d"),
            begin + R"("regex":"a\\d","end":""}],"max":1})");
  EXPECT_EQ(*text(GuideSpec::Kind::kChoice, R"(["a"])"),
            begin + R"("choice":["a"],"end":""}],"max":1})");
  EXPECT_EQ(*text(GuideSpec::Kind::kJson, ""),
            begin + R"("schema":{"type":"object"},"end":""}],"max":1})");
  EXPECT_THAT(*text(GuideSpec::Kind::kGrammar, "root ::= \"a\"", /*reasons=*/true),
              testing::AllOf(
                  testing::StartsWith(begin + R"("grammar":"root ::= \"a\"","end":""}],"max":1,)"),
                  HasSubstr(R"("preambles":[{"begin":"<|channel|>analysis<|message|>",)"
                            R"("end":"<|end|><|start|>assistant"}],"never":["<|start|>",)")));
  EXPECT_EQ(text(GuideSpec::Kind::kJsonSchema, "{").status().code(), StatusCode::kInvalidArgument);
}

TEST(CallFormatsTest, AreNamedForAllModelsThatWriteThem) {
  EXPECT_EQ((*CallFormatNamed("gemma"))->markers, FindCallFormat("<start_function_call>")->markers);
  EXPECT_EQ((*CallFormatNamed("list"))->markers, FindCallFormat("functools[")->markers);
}

TEST(CallFormatsTest, AreFoundByWhatTemplatesWrite) {
  const auto name = [](std::string_view text) {
    const CallFormat* found = FindCallFormat(text);
    return found == nullptr ? std::string_view("none") : found->name;
  };
  EXPECT_EQ(name("{{- '\\n<tool_call>\\n{\"name\": \"' }}{{ tool_call.arguments | tojson }}"),
            "hermes");
  EXPECT_EQ(name("{{ '{\"name\": \"' + c.name + '\", ' }}{{ '\"parameters\": ' }}"), "llama");
  EXPECT_EQ(name("{{ \"[TOOL_CALLS][\" }}"), "mistral");
  EXPECT_EQ(name("{{'<｜tool▁calls▁begin｜>'}}"), "deepseek");
  EXPECT_EQ(name("{{ '<|start|>assistant to=functions.' + c.name + '<|channel|>commentary ' }}"),
            "harmony");
  EXPECT_EQ(name("<tool_call>\n<function=f>\n<parameter=a>\n{{ arguments }}"), "qwen_coder");
  EXPECT_EQ(name("<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>"), "seed");
  EXPECT_EQ(name("{{ '<|tool_call>call:' + name }}"), "gemma");
  EXPECT_EQ(name("{{ content }}"), "none");
  EXPECT_THAT(
      CallFormatNamed("qwen").status().message(),
      HasSubstr(
          "deepseek, gemma, harmony, hermes, list, llama, mistral, pythonic, qwen_coder, seed"));
  EXPECT_THAT(ReasoningTagsNamed("x").status().message(),
              HasSubstr("deepseek, gemma, harmony, mistral, seed"));
}

}  // namespace
}  // namespace inflight::answer_parts
