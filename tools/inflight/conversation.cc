// SPDX-License-Identifier: Apache-2.0
#include "conversation.h"

#include <utility>

namespace inflight::tool {

Conversation::Conversation(std::optional<ChatTemplate> model_template, std::string system)
    : template_(std::move(model_template)), system_(std::move(system)) {}

void Conversation::Add(std::string role, std::string content) {
  turns_.push_back({std::move(role), std::move(content)});
}

void Conversation::RemoveLast() { turns_.pop_back(); }
void Conversation::Clear() { turns_.clear(); }

Result<std::vector<TokenId>> Conversation::Prompt(const Tokenizer& tokenizer) const {
  if (!template_) {
    std::string text;
    for (const ChatMessage& turn : turns_) text += turn.content;
    return tokenizer.Encode(text, /*add_special_tokens=*/true);
  }
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({"system", system_});
  messages.insert(messages.end(), turns_.begin(), turns_.end());
  const Result<std::string> text = template_->Render(messages);
  if (!text.ok()) return text.status().WithPrefix("chat template");
  // Templates write the special tokens themselves.
  return tokenizer.Encode(*text, /*add_special_tokens=*/false);
}

}  // namespace inflight::tool
