// SPDX-License-Identifier: Apache-2.0
// Any bytes as the tensor `messages`: an error, or a prompt that has the template's own special
// tokens and no others, whatever the texts of the conversation spell.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "conversation/messages_text.h"
#include "json/json_reader.h"
#include "tokenizer/test_files.h"

namespace {

using inflight::json::Value;

constexpr std::string_view kSpecial = "<s>";  // of the tokenizer
constexpr std::string_view kTemplate =        // which knows tools
    "{% if tools %}{{ tools[0].function.name }} {% endif %}{{ mood }} "
    "{% for m in messages %}<s>{{ m.role }} {{ m.name }} {{ m.content }} {{ m.reasoning_content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }} {{ c.function.arguments }}{% endfor %}"
    "|{% endfor %}{% if add_generation_prompt %}!{% endif %}";

struct Model {
  std::shared_ptr<const inflight::Tokenizer> tokenizer;
  std::optional<inflight::ChatTemplate> chat_template;
};

Model LoadModel() {
  std::string name = std::filesystem::temp_directory_path() / "conversation_XXXXXX";
  const std::filesystem::path dir = mkdtemp(name.data());
  const std::string tokenizer = inflight::tokenizer::ByteLevelJson().dump();
  if (!inflight::WriteFile(dir / "tokenizer.json", tokenizer).ok() ||
      !inflight::WriteFile(dir / "chat_template.jinja", kTemplate).ok())
    abort();
  Model model{.tokenizer = *inflight::Tokenizer::Load(dir),
              .chat_template = *inflight::ChatTemplate::Load(dir)};
  std::filesystem::remove_all(dir);
  return model;
}

size_t NumMessages(std::string_view text) {
  const Value root = *Value::Parse(text);
  if (root.kind() == Value::Kind::kArray) return *root.NumElements();
  size_t count = 0;
  (void)root.ForEachMember([&](std::string_view name, const Value& value) {
    if (name == "messages" && value.kind() == Value::Kind::kArray) count = *value.NumElements();
    return inflight::Status::Ok();
  });
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Model model = LoadModel();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto prompt =
      inflight::conversation::PromptOf(text, *model.tokenizer, *model.chat_template);
  if (!prompt.ok()) return 0;
  size_t count = 0;
  size_t next = 0;  // of plain_at
  for (size_t at = prompt->text.find(kSpecial); at != std::string::npos;
       at = prompt->text.find(kSpecial, at + 1)) {
    while (next < prompt->plain_at.size() && prompt->plain_at[next] < at) ++next;
    if (next == prompt->plain_at.size() || prompt->plain_at[next] != at) ++count;
  }
  if (count != NumMessages(text)) abort();
  return 0;
}
