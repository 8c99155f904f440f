// SPDX-License-Identifier: Apache-2.0
#include "inflight/chat_template.h"

#include <gmock/gmock.h>

#include "base/file.h"

namespace inflight {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class ChatTemplateTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) / "chat_template_load";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directory(dir_);
  }
  void Write(const char* name, std::string_view content) {
    ASSERT_TRUE(WriteFile(dir_ / name, content).ok());
  }
  std::string Loaded() {
    const auto loaded = ChatTemplate::Load(dir_);
    if (!loaded.ok()) return loaded.status().message();
    const auto text = loaded->RenderJson("{}");
    return text.ok() ? *text : text.status().message();
  }
  std::filesystem::path dir_;
};

TEST_F(ChatTemplateTest, FileOfItsOwnComesBeforeTheConfiguration) {
  Write("tokenizer_config.json",
        R"({"chat_template": "config {{ bos_token }}{{ eos_token }}", "bos_token": "<s>",
            "eos_token": {"content": "</s>", "lstrip": false}})");
  EXPECT_EQ(Loaded(), "config <s></s>");
  Write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(Loaded(), "file <s>");
}

TEST_F(ChatTemplateTest, ListHoldsADefault) {
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "a"},
                              {"name": "default", "template": "b"}]})");
  EXPECT_EQ(Loaded(), "b");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "a"}]})");
  EXPECT_THAT(Loaded(), HasSubstr("named \"default\""));
}

TEST_F(ChatTemplateTest, SaysWhatIsMissingOrFaulty) {
  EXPECT_THAT(Loaded(), HasSubstr("no chat template"));
  EXPECT_EQ(ChatTemplate::Load(dir_).status().code(), StatusCode::kNotFound);
  Write("tokenizer_config.json", R"({"chat_template": "{% if %}"})");
  EXPECT_THAT(Loaded(), HasSubstr("tokenizer_config.json: chat template: line 1"));
  Write("tokenizer_config.json", "[");
  EXPECT_THAT(Loaded(), HasSubstr("not valid JSON"));
}

// transformers gives templates these variables, and one of the caller's replaces any of them.
TEST_F(ChatTemplateTest, MessagesBeginTheModelsTurn) {
  Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  Write(
      "chat_template.jinja",
      "{{ bos_token }}{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
      "{% if tools is none %}no tools;{% endif %}{% if add_generation_prompt %}answer:{% endif %}");
  const auto loaded = ChatTemplate::Load(dir_);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  const ChatMessage turns[] = {{"system", "Be brief."}, {"user", "Hi"}};
  EXPECT_EQ(*loaded->Render(turns), "<s>system=Be brief.;user=Hi;no tools;answer:");
  EXPECT_EQ(
      *loaded->RenderJson(
          R"({"bos_token": "^", "messages": [{"role": "user", "content": "Hi"}], "tools": 1})"),
      "^user=Hi;");
  EXPECT_THAT(loaded->RenderJson("[]").status().message(), HasSubstr("JSON object"));
}

}  // namespace
}  // namespace inflight
