// SPDX-License-Identifier: Apache-2.0
// The turns of `inflight chat`, the prompt they make, and the file that they are kept in:
//
//   {"messages": [{"role": "system", "content": "…"}, {"role": "user", "content": "…"}, …]}
#pragma once

#include <filesystem>
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
  void SetSystem(std::string system) { system_ = std::move(system); }

  bool has_template() const { return template_.has_value(); }
  const std::string& system() const { return system_; }
  size_t num_turns() const { return turns_.size(); }

  // Token ids of the conversation so far, with what begins the model's turn.
  Result<std::vector<TokenId>> Prompt(const Tokenizer& tokenizer) const;

  // Writes all of it, or reads it in place of what is there. Load changes nothing where it fails:
  // kInvalidArgument says what is wrong in the file.
  Status Save(const std::filesystem::path& path) const;
  Status Load(const std::filesystem::path& path);

 private:
  std::optional<ChatTemplate> template_;
  std::string system_;
  std::vector<ChatMessage> turns_;
};

}  // namespace inflight::tool
