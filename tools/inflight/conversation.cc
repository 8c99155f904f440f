// SPDX-License-Identifier: Apache-2.0
#include "conversation.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::tool {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxConversationBytes = uint64_t{64} << 20;

Result<ChatMessage> ReadMessage(const json& message) {
  const auto text = [&](const char* name) -> const std::string* {
    const auto found = message.is_object() ? message.find(name) : message.end();
    return found == message.end() || !found->is_string() ? nullptr
                                                         : &found->get_ref<const std::string&>();
  };
  const std::string* const role = text("role");
  const std::string* const content = text("content");
  if (role == nullptr || content == nullptr)
    return InvalidArgument("needs role and content, both texts");
  if (*role != "system" && *role != "user" && *role != "assistant")
    return InvalidArgument("role: got '" + role->substr(0, 40) +
                           "', must be system, user or assistant");
  return ChatMessage{*role, *content};
}

}  // namespace

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

Status Conversation::Save(const std::filesystem::path& path) const {
  json messages = json::array();
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
  for (const ChatMessage& turn : turns_)
    messages.push_back({{"role", turn.role}, {"content", turn.content}});
  const json document = {{"messages", std::move(messages)}};
  return WriteFile(path, document.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

Status Conversation::Load(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConversationBytes));
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto found = document.is_object() ? document.find("messages") : document.end();
  if (found == document.end() || !found->is_array())
    return InvalidArgument(path.string() + R"(: is no JSON object with an array "messages")");
  std::string system;
  std::vector<ChatMessage> turns;
  for (size_t i = 0; i < found->size(); ++i) {
    auto message = ReadMessage((*found)[i]);
    if (message.ok() && message->role == "system" && i > 0)
      message = InvalidArgument("a system message has to be the first");
    if (!message.ok())
      return message.status().WithPrefix(path.string() + ": messages[" + std::to_string(i) + "]");
    if (message->role == "system") {
      system = std::move(message->content);
    } else {
      turns.push_back(*std::move(message));
    }
  }
  system_ = std::move(system);
  turns_ = std::move(turns);
  return Status::Ok();
}

}  // namespace inflight::tool
