// SPDX-License-Identifier: Apache-2.0
// The prompts of a body: texts and token ids as they are, or a conversation by the model's
// template.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"
#include "protocol/openai/body_fields.h"
#include "serving/core/generation.h"

namespace inflight::openai {

// kInvalidArgument says why the model has none.
Result<const ChatTemplate*> TemplateOf(const serving::TextModel& model);

// Of an array of ids, each below the vocabulary's size.
Result<std::vector<TokenId>> ReadIds(std::string_view field, const json::Value& array,
                                     int vocab_size);

// Of ids while their vector grows: 12 bytes of each, which has 2 and more of the body.
inline constexpr size_t kIdBytesPerByte = 6;
// As many bytes as the text of these ids has, or more: entries write a byte as one or several.
size_t MostTextBytes(const Tokenizer& tokenizer, std::span<const TokenId> ids);

// One of the two is set.
struct Prompt {
  std::string text = {};
  std::vector<TokenId> ids = {};
};

// The forms of "prompt": a text, texts, ids, or several arrays of ids.
Result<std::vector<Prompt>> ReadPrompts(const json::Value& value, int vocab_size);

}  // namespace inflight::openai
