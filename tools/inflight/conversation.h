// SPDX-License-Identifier: Apache-2.0
// The turns of `inflight chat` and the prompt they make.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inflight/chat_template.h"
#include "inflight/tokenizer.h"

namespace inflight::tool {

class Conversation {
 public:
  // Without a template, turns are joined as they are: plain completion.
  Conversation(std::optional<ChatTemplate> model_template, std::string system);

  void Add(std::string role, std::string content);
  void RemoveLast();  // a turn that the model was not able to take
  void Clear();       // but for the system text

  // Token ids of the conversation so far, with what begins the model's turn.
  Result<std::vector<TokenId>> Prompt(const Tokenizer& tokenizer) const;

 private:
  std::optional<ChatTemplate> template_;
  std::string system_;
  std::vector<ChatMessage> turns_;
};

}  // namespace inflight::tool
