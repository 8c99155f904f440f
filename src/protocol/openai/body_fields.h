// SPDX-License-Identifier: Apache-2.0
// The table of what bodies may have, of this API and of Anthropic's messages. Every member is read
// or refused by name; of one that no row has, the error says which name is nearest.
// docs/reference/protocol/openai.md and anthropic.md list the same rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/request.h"
#include "inflight/status.h"
#include "json/json_reader.h"

namespace inflight::openai {

// What a body says. Values are views into it.
struct Asked {
  std::string model;  // empty: not named
  std::optional<json::Value> messages, prompt, tokens, chat_template_kwargs;
  std::optional<json::Value> tools, tool_choice;                   // read by tools.h
  std::optional<json::Value> response_format, structured_outputs;  // read by answer_guide.h
  std::optional<json::Value> guided_json, guided_regex, guided_choice, guided_grammar;
  bool parallel_tool_calls = true;
  std::optional<json::Value> system, thinking, output_config;  // read by protocol/anthropic
  // Of responses, read by response_input.h.
  std::optional<json::Value> input, instructions, text, reasoning, include, metadata;
  std::string previous_response_id;
  std::optional<bool> store;
  bool truncates = false;  // a conversation that is too long begins later
  bool add_generation_prompt = true;
  bool continues = false;              // the answer goes on from the last message, the assistant's
  std::optional<bool> reasons;         // the model is to reason, or is not to
  std::string reasoning_effort;        // "none": it is not to
  std::optional<int> thinking_budget;  // tokens that it may reason with
  std::optional<bool> add_special_tokens;
  std::optional<int> max_tokens, max_completion_tokens;
  std::optional<float> temperature, top_p, min_p;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int> top_k;
  int n = 1;
  std::optional<int> best_of;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::pair<TokenId, float>> logit_bias;
  int min_tokens = 0;
  bool ignore_eos = false;
  bool echo = false;
  bool stream = false;
  bool has_stream_options = false;
  bool include_usage = false;
  bool logprobs = false;
  int top_logprobs = 0;
  std::optional<uint64_t> seed;
  int priority = 0;
  std::string cache_salt;
};

// Endpoints, by what their bodies have.
using BodyKinds = uint16_t;
inline constexpr BodyKinds kChat = 1;
inline constexpr BodyKinds kCompletion = 2;
inline constexpr BodyKinds kTokenize = 4;
inline constexpr BodyKinds kDetokenize = 8;
inline constexpr BodyKinds kMessages = 16;     // of Anthropic's API
inline constexpr BodyKinds kCountTokens = 32;  // the same
inline constexpr BodyKinds kResponse = 64;

struct BodyField {
  using Read = Status(const BodyField& field, const json::Value& value, Asked& asked);

  std::string_view name;
  BodyKinds kinds;
  Read* read = nullptr;           // null: it is refused, and `remedy` says what to do
  double low = 0;                 // of numbers
  double high = 0;                // of numbers
  std::string_view remedy = {};   // of one that is refused
  std::string_view neutral = {};  // a value that asks for nothing, as JSON without blanks
  bool asks_when_empty = false;   // false, [] and {} ask for something, too
};

std::span<const BodyField> BodyFields();

// Of reasoning: it is one of those that clients of this API know.
Status CheckEffort(std::string_view where, std::string_view effort);

// kInvalidArgument and kUnimplemented name the member. A member that is null is as if not there.
Result<Asked> ParseBody(std::string_view body, BodyKinds kind);

}  // namespace inflight::openai
