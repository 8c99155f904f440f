// SPDX-License-Identifier: Apache-2.0
#include "chat_template/chat_template.h"

#include <ctime>

#include "chat_template/interpreter.h"
#include "chat_template/parser.h"

namespace inflight::chat_template {

struct ChatTemplate::Tree {
  Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  ASSIGN_OR_RETURN(Body body, chat_template::Parse(source));
  return ChatTemplate(std::make_unique<const Tree>(Tree{std::move(body)}));
}

Result<std::string> ChatTemplate::Render(const Variables& variables,
                                         std::optional<int64_t> now_s) const {
  return Interpreter(variables, now_s.value_or(std::time(nullptr))).Run(tree_->body);
}

}  // namespace inflight::chat_template
