// SPDX-License-Identifier: Apache-2.0
#include "conversation.h"

namespace inflight::tool {
namespace {

using chat_template::None;
using chat_template::Value;

Result<Value> Message(const std::string& role, const std::string& content) {
  return Value::MakeDict({{"role", Value(role)}, {"content", Value(content)}});
}

}  // namespace

Conversation::Conversation(std::optional<chat_template::ModelTemplate> model_template,
                           std::string system)
    : template_(std::move(model_template)), system_(std::move(system)) {}

void Conversation::Add(std::string role, std::string content) {
  turns_.emplace_back(std::move(role), std::move(content));
}

void Conversation::RemoveLast() { turns_.pop_back(); }
void Conversation::Clear() { turns_.clear(); }

Result<std::vector<TokenId>> Conversation::Prompt(const tokenizer::Tokenizer& tokenizer) const {
  if (!template_) {
    std::string text;
    for (const auto& [role, content] : turns_) text += content;
    return tokenizer.Encode(text, /*add_special_tokens=*/true);
  }
  std::vector<Value> messages;
  if (!system_.empty()) {
    ASSIGN_OR_RETURN(messages.emplace_back(), Message("system", system_));
  }
  for (const auto& [role, content] : turns_) {
    ASSIGN_OR_RETURN(messages.emplace_back(), Message(role, content));
  }
  chat_template::Variables variables = template_->special_tokens;
  ASSIGN_OR_RETURN(Value list, Value::MakeList(std::move(messages)));
  variables.emplace_back("messages", std::move(list));
  variables.emplace_back("tools", Value(None{}));
  variables.emplace_back("documents", Value(None{}));
  variables.emplace_back("add_generation_prompt", Value(true));
  Result<std::string> text = template_->chat_template.Render(variables);
  if (!text.ok()) return text.status().WithPrefix("chat template");
  // Templates write the special tokens themselves.
  return tokenizer.Encode(*text, /*add_special_tokens=*/false);
}

}  // namespace inflight::tool
