// SPDX-License-Identifier: Apache-2.0
// A conversation with a model of this process: turns, and the commands that begin with a slash.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "conversation.h"
#include "inflight/open.h"
#include "parameters/model_defaults.h"
#include "sampling_options.h"

namespace inflight::tool {

class ChatSession {
 public:
  ChatSession(const OpenedModel& model, parameters::ModelDefaults defaults,
              SamplingOptions sampling, Conversation conversation);

  enum class Next : uint8_t { kGoOn, kEnd };

  // "/name argument". kInvalidArgument names the nearest command.
  Result<Next> Command(std::string_view line);

  // Says `text` and prints the answer as it comes. An interrupt ends the answer, which is kept as
  // far as it came; `was_interrupted` tells. A turn that fails is not part of the conversation.
  Status Say(const std::string& text, bool tells_limits, bool& was_interrupted);

 private:
  Status Help(std::string_view argument);
  Status Clear(std::string_view argument);
  Status System(std::string_view argument);
  Status Set(std::string_view argument);
  Status Show(std::string_view argument);
  Status Save(std::string_view argument);
  Status Load(std::string_view argument);
  struct CommandRow;
  static const std::vector<CommandRow>& Commands();

  Status Generate(std::string& answer, bool tells_limits, bool& was_interrupted);
  int max_tokens() const;
  uint64_t next_seed() const;

  const OpenedModel& model_;
  const parameters::ModelDefaults defaults_;
  SamplingOptions sampling_;
  Conversation conversation_;
  std::vector<TokenId> end_ids_;
  const uint64_t seed_by_chance_;
  uint64_t num_answers_ = 0;
};

}  // namespace inflight::tool
