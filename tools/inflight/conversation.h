// SPDX-License-Identifier: Apache-2.0
// The turns of `inflight chat` and the prompt they make.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat_template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace inflight::tool {

class Conversation {
 public:
  // Without a template, turns are joined as they are: plain completion.
  Conversation(std::optional<chat_template::ModelTemplate> model_template, std::string system);

  void Add(std::string role, std::string content);
  void RemoveLast();  // a turn that the model was not able to take
  void Clear();       // but for the system text

  // Token ids of the conversation so far, with what begins the model's turn.
  Result<std::vector<TokenId>> Prompt(const tokenizer::Tokenizer& tokenizer) const;

 private:
  std::optional<chat_template::ModelTemplate> template_;
  std::string system_;
  std::vector<std::pair<std::string, std::string>> turns_;  // role, content
};

}  // namespace inflight::tool
