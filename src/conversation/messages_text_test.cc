// SPDX-License-Identifier: Apache-2.0
#include "conversation/messages_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "tokenizer/test_files.h"

namespace inflight::conversation {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "user: hi|" for each message, "!" where the answer is to begin, and what else is given.
constexpr std::string_view kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}|{% endfor %}"
    "{% if add_generation_prompt %}!{% endif %}{{ mood }}";
constexpr std::string_view kWithTools =
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}";

class MessagesText : public ::testing::Test {
 protected:
  MessagesText() {
    std::string name = ::testing::TempDir() + "messages_XXXXXX";
    dir_ = mkdtemp(name.data());
    EXPECT_TRUE(WriteFile(dir_ / "tokenizer.json", tokenizer::ByteLevelJson().dump()).ok());
    SetTemplate(kTemplate);
    auto loaded = Tokenizer::Load(dir_);
    EXPECT_TRUE(loaded.ok());
    tokenizer_ = *std::move(loaded);
  }
  ~MessagesText() override { std::filesystem::remove_all(dir_); }

  void SetTemplate(std::string_view source) {
    EXPECT_TRUE(WriteFile(dir_ / "chat_template.jinja", source).ok());
  }
  Result<Prompt> Made(std::string_view text) {
    auto chat_template = ChatTemplate::Load(dir_);
    EXPECT_TRUE(chat_template.ok());
    return PromptOf(text, *tokenizer_, *chat_template);
  }
  std::string TextOf(std::string_view text) {
    const auto made = Made(text);
    return made.ok() ? made->text : made.status().message();
  }

  std::filesystem::path dir_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(MessagesText, AListIsAConversation) {
  EXPECT_EQ(TextOf(R"([{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}])"),
            "user: ab|assistant: c|!");
}

TEST_F(MessagesText, AnObjectHasWhatElseATemplateTakes) {
  EXPECT_EQ(TextOf(R"({"messages": [{"role": "user", "content": "ab"}], "tools": null,
                       "add_generation_prompt": false, "chat_template_kwargs": {"mood": "gay"}})"),
            "user: ab|gay");
  EXPECT_EQ(TextOf(R"({"messages": [{"role": "user", "content": "ab"},
                                    {"role": "assistant", "content": "c a"}],
                       "continue_final_message": true})"),
            "user: ab|assistant: c a");
  SetTemplate(kWithTools);
  EXPECT_EQ(TextOf(R"({"messages": [{"role": "user", "content": "ab"}],
                       "tools": [{"type": "function", "function": {"name": "look"}}]})"),
            "look ");
}

TEST_F(MessagesText, WhatIsContinuedIsTheLastOfItsKind) {
  const auto continued = [&](const std::string& before, const std::string& text) {
    return TextOf(R"({"continue_final_message": true, "messages": [{"role": "user", "content": ")" +
                  before + R"("}, {"role": "assistant", "content": ")" + text + R"("}]})");
  };
  SetTemplate("{% for m in messages %}{{ m.content }}|{% endfor %}");
  EXPECT_EQ(continued("abab", "abab"), "abab|abab");
  EXPECT_EQ(continued("aabaa", "aa"), "aabaa|aa");
  SetTemplate("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}");
  EXPECT_EQ(continued("b", "aba"), "bbabaaba");
  EXPECT_EQ(continued("a", "aa"), "aaaaaa");
  SetTemplate("{{ messages[0].content }}{{ messages[1].content[1:] }}");
  EXPECT_THAT(continued("aaaaaaaa", "caab"), HasSubstr("does not show the text"));
  EXPECT_EQ(continued("caabaacaa", "aa"), "caabaacaaa");
}

TEST_F(MessagesText, ASpecialTokenInATextIsText) {
  const auto made = Made(R"([{"role": "user", "content": "a<s>b"}])");
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->text, "user: a<s>b|!");
  EXPECT_THAT(made->plain_at, ElementsAre(7));
}

// Python's text of a dictionary escapes what it cannot print, and the mark of a text with it.
TEST_F(MessagesText, ASpecialTokenInAnObjectThatIsShownIsText) {
  SetTemplate("{{ messages[0].tool_calls[0].function.arguments }}");
  const auto made = Made(R"([{"role": "assistant", "tool_calls": [{"function": {
      "name": "f", "arguments": "{\"<s>\": [\"a<s>\", 1]}"}}]}])");
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->text, "{'<s>': ['a<s>', 1]}");
  EXPECT_THAT(made->plain_at, ElementsAre(2, 11));
}

// A text that has a mark once its escapes are read, which the body does not show.
TEST_F(MessagesText, AMarkThatEscapesSpellIsText) {
  const auto plain = Made(R"([{"role": "user", "content": "<\u005cufdd0s><\\\u0075fdd0s>"}])");
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_EQ(plain->text, R"(user: <\ufdd0s><\ufdd0s>|!)");
  EXPECT_THAT(plain->plain_at, ElementsAre());
  const auto beside = Made(R"([{"role": "user", "content": "<\u005cufdd0s> <s>"}])");
  ASSERT_TRUE(beside.ok()) << beside.status().ToString();
  EXPECT_EQ(beside->text, R"(user: <\ufdd0s> <s>|!)");
  EXPECT_THAT(beside->plain_at, ElementsAre(16));
  SetTemplate("{{ messages[0].tool_calls[0].function.arguments }}");
  const auto call = Made(R"([{"role": "assistant", "tool_calls": [{"function": {
      "name": "f", "arguments": "{\"a\": \"<\u005cufdd0s>\"}"}}]}])");
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call->text, R"({'a': '<\ufdd0s>'})");
  EXPECT_THAT(call->plain_at, ElementsAre());
}

TEST_F(MessagesText, TextsMayHaveAllMarksButOne) {
  const auto with = [](int count) {
    std::string content = "a<s>";
    for (int i = 0; i < count; ++i) {
      char escaped[16];
      std::snprintf(escaped, sizeof escaped, "\\u%04X", 0xFDD0 + i);
      content += i % 2 == 0 ? std::string(escaped) : "\xEF\xB7" + std::string(1, char(0x90 + i));
    }
    return R"([{"role": "user", "content": ")" + content + R"("}])";
  };
  const auto made = Made(with(31));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_THAT(made->text, HasSubstr("user: a<s>\xEF\xB7\x90\xEF\xB7\x91"));
  EXPECT_THAT(made->plain_at, ElementsAre(7));
  EXPECT_THAT(TextOf(with(32)), HasSubstr("messages: have all of U+FDD0 to U+FDEF"));
}

TEST_F(MessagesText, WhatIsWrongIsNamed) {
  const std::string message = R"([{"role": "user", "content": "a"}])";
  const std::pair<std::string, std::string> cases[] = {
      {"", "The document is empty. at 0"},
      {"[{]", "messages: is no JSON: failed to parse"},
      {"\"hi\"", "messages: must be a JSON list of messages, or an object that has it"},
      {"[]", "messages: is empty; at least one is needed"},
      {"[5]", "messages[0]: must be an object"},
      {R"([{"role": "user", "content": "a"}, {"content": "b"}])", "messages[1].role: is missing"},
      {"[{\"role\": \"user\", \"content\": \"\xff\"}]", "messages: is not UTF-8"},
      {"{}", "messages: is missing in the object"},
      {R"({"messages": {}})", "messages: must be a list of messages"},
      {R"({"messages": [], "messages": []})", "messages: is given twice"},
      {R"({"message": []})", "messages.message: is not a member of a conversation"},
      {R"({"tools": 5})", "tools: must be a list of tools"},
      {R"({"tools": [{}]})", "tools[0].type: must be \"function\""},
      {R"({"tools": [{"type": "function"}]})", "tools[0].function: is missing"},
      {R"({"tools": [{"type": "function", "function": {}}]})",
       "tools[0].function.name: is missing"},
      {R"({"tools": [{"type": "function", "function": {"name": "f", "strict": true}}]})",
       "tools[0].function.strict: is not supported here"},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}}]})",
       "tools: this model's chat template shows it no tools"},
      {R"({"chat_template_kwargs": []})", "chat_template_kwargs: must be an object"},
      {R"({"chat_template_kwargs": {"tools": 1}, "messages": )" + message + "}",
       "chat_template_kwargs.tools: is made of other members"},
      {R"({"add_generation_prompt": 1})", "add_generation_prompt: must be true or false"},
      {R"({"continue_final_message": true, "messages": )" + message + "}",
       "messages: must end with a text of the assistant"},
  };
  for (const auto& [text, says] : cases) EXPECT_THAT(TextOf(text), HasSubstr(says)) << text;
}

TEST_F(MessagesText, AnErrorIsUtf8WhereItCutsAName) {
  std::string name;
  for (int i = 0; i < 30; ++i) name += "\xE6\xBC\xA2";  // 64 bytes end within the 22nd
  std::string shown(name, 0, 63);
  shown += "\xEF\xBF\xBD: is not a member";
  EXPECT_THAT(TextOf("{\"" + name + "\": 1}"), HasSubstr("messages." + shown));
  EXPECT_THAT(TextOf("[{\"" + name + "\": 1}]"), HasSubstr("messages[0]." + shown));
}

TEST(NoTemplate, SaysTheRemedy) {
  EXPECT_EQ(NoTemplate(NotFound("none"), "text_input").message(),
            "messages: this model has no chat template; use text_input, or start the server with "
            "--chat-template FILE");
  EXPECT_THAT(NoTemplate(InvalidArgument("line 1"), "text_input").message(),
              HasSubstr("cannot be used, and the server's log says why"));
}

}  // namespace
}  // namespace inflight::conversation
