// SPDX-License-Identifier: Apache-2.0
#include "chat_template/named_templates.h"

#include <gtest/gtest.h>

#include "chat_template/template.h"

namespace inflight::chat_template {
namespace {

// Of a system, a user, the assistant and a user again.
std::string TurnsOf(std::string_view name) {
  const auto source = NamedTemplate(name);
  if (!source) return "there is none";
  const auto parsed = Template::Parse(*source);
  if (!parsed.ok()) return parsed.status().message();
  const auto messages = Value::FromJson(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
          {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Go"}])");
  const auto text = parsed->Render({{"messages", *messages},
                                    {"bos_token", Value(std::string("<s>"))},
                                    {"eos_token", Value(std::string("</s>"))},
                                    {"add_generation_prompt", Value(true)}});
  return text.ok() ? *text : text.status().message();
}

// As the families' documentation writes them.
TEST(NamedTemplates, WriteTurnsAsTheirFamilies) {
  EXPECT_EQ(TurnsOf("chatml"),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nGo<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(TurnsOf("llama3"),
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nGo<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(TurnsOf("llama2"),
            "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Yes? </s><s>[INST] Go [/INST]");
  EXPECT_EQ(TurnsOf("mistral"), "<s>[INST] Be brief.\n\nHi [/INST] Yes?</s>[INST] Go [/INST]");
  EXPECT_EQ(TurnsOf("gemma"),
            "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
            "<start_of_turn>model\nYes?<end_of_turn>\n<start_of_turn>user\nGo<end_of_turn>\n"
            "<start_of_turn>model\n");
  EXPECT_EQ(TurnsOf("phi3"),
            "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nYes?<|end|>\n"
            "<|user|>\nGo<|end|>\n<|assistant|>\n");
  EXPECT_EQ(TurnsOf("zephyr"),
            "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nYes?</s>\n"
            "<|user|>\nGo</s>\n<|assistant|>\n");
  EXPECT_EQ(TurnsOf("vicuna"), "<s>Be brief. USER: Hi ASSISTANT: Yes?</s>USER: Go ASSISTANT:");
  EXPECT_EQ(TurnsOf("alpaca"),
            "Be brief.\n\n### Instruction:\nHi\n\n### Response:\nYes?</s>\n\n"
            "### Instruction:\nGo\n\n### Response:\n");
  EXPECT_EQ(
      TurnsOf("deepseek"),
      "<s>Be "
      "brief.<｜User｜>Hi<｜Assistant｜>Yes?<｜end▁of▁sentence｜><｜User｜>Go<｜Assistant｜>");
}

TEST(NamedTemplates, AreFoundByTheirNamesAlone) {
  EXPECT_FALSE(NamedTemplate("ChatML"));
  EXPECT_FALSE(NamedTemplate(""));
  EXPECT_EQ(TemplateNames(),
            "alpaca, chatml, deepseek, gemma, llama2, llama3, mistral, phi3, vicuna, zephyr");
}

}  // namespace
}  // namespace inflight::chat_template
