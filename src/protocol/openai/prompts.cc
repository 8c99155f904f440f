// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/prompts.h"

#include <utility>

#include "base/status_macros.h"
#include "conversation/conversation.h"

namespace inflight::openai {
namespace {

using json::Value;
using Kind = Value::Kind;

constexpr size_t kMaxPrompts = 1024;

}  // namespace

Result<const ChatTemplate*> TemplateOf(const serving::TextModel& model) {
  if (model.chat_template) return &*model.chat_template;
  return conversation::NoTemplate(model.no_chat_template, "/v1/completions");
}

Result<std::vector<TokenId>> ReadIds(std::string_view field, const Value& array, int vocab_size) {
  std::vector<TokenId> ids;
  RETURN_IF_ERROR(array.ForEachElement([&](const Value& element) -> Status {
    const auto id = element.AsInt();
    if (!id.ok() || !element.IsInteger() || *id < 0 || *id >= vocab_size)
      return InvalidArgument(field, "got " + std::string(element.text().substr(0, 32)) +
                                        ", must be token ids in [0, " + std::to_string(vocab_size) +
                                        ")");
    ids.push_back(static_cast<TokenId>(*id));
    return Status::Ok();
  }));
  return ids;
}

size_t MostTextBytes(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  size_t bytes = 0;
  for (const TokenId id : ids) bytes += tokenizer.IdToToken(id).size();
  return bytes;
}

Result<std::vector<Prompt>> ReadPrompts(const Value& value, int vocab_size) {
  std::vector<Prompt> prompts;
  const auto add_text = [&](const Value& text) -> Status {
    ASSIGN_OR_RETURN(prompts.emplace_back().text, text.AsString());
    if (prompts.back().text.empty()) return InvalidArgument("prompt", "is empty");
    return Status::Ok();
  };
  if (value.kind() == Kind::kString) {
    RETURN_IF_ERROR(add_text(value));
    return prompts;
  }
  bool is_ids = false;
  RETURN_IF_ERROR(value.ForEachElement([&](const Value& element) -> Status {
    is_ids |= element.kind() == Kind::kNumber;
    if (is_ids) return Status::Ok();  // read at once, below
    if (prompts.size() == kMaxPrompts)
      return InvalidArgument("prompt", "got more than " + std::to_string(kMaxPrompts) + " prompts");
    if (element.kind() == Kind::kString) return add_text(element);
    if (element.kind() != Kind::kArray)
      return InvalidArgument("prompt", "must have strings, token ids or arrays of token ids");
    ASSIGN_OR_RETURN(prompts.emplace_back().ids, ReadIds("prompt", element, vocab_size));
    if (prompts.back().ids.empty()) return InvalidArgument("prompt", "has an empty array of ids");
    return Status::Ok();
  }));
  if (is_ids) {
    if (!prompts.empty()) return InvalidArgument("prompt", "mixes texts and token ids");
    ASSIGN_OR_RETURN(prompts.emplace_back().ids, ReadIds("prompt", value, vocab_size));
  }
  if (prompts.empty()) return InvalidArgument("prompt", "is empty");
  return prompts;
}

}  // namespace inflight::openai
