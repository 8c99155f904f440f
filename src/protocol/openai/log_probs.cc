// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/log_probs.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "json/valid_text.h"

namespace inflight::openai {
namespace {

// What OpenAI's API has for a token that cannot be; JSON has no infinity.
constexpr double kImpossible = -9999;

double Finite(float log_prob) { return std::isfinite(log_prob) ? log_prob : kImpossible; }

void AppendComma(std::string& out) {
  if (!out.empty() && out.back() != '[') out.push_back(',');
}

std::span<const TopLogProb> TopOf(const Response& response, size_t token, int num_top) {
  const auto count = static_cast<size_t>(num_top);
  if (response.top_log_probs.size() < (token + 1) * count) return {};
  return std::span(response.top_log_probs).subspan(token * count, count);
}

void AppendItem(const Tokenizer& tokenizer, TokenId id, float log_prob, std::string& out) {
  const std::string bytes = BytesOfToken(tokenizer, id);
  out.append(R"({"token":)");
  json::AppendString(out, json::ValidText(bytes));
  out.append(R"(,"logprob":)");
  json::AppendDouble(out, Finite(log_prob));
  out.append(R"(,"bytes":[)");
  for (const char byte : bytes) {
    AppendComma(out);
    out.append(std::to_string(static_cast<unsigned char>(byte)));
  }
  out.push_back(']');
}

size_t NumCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string BytesOfToken(const Tokenizer& tokenizer, TokenId id) {
  std::string bytes = tokenizer.TokenBytes(id);
  return bytes.empty() ? std::string(tokenizer.IdToToken(id)) : bytes;
}

void AppendLogProb(const Tokenizer& tokenizer, const Response& response, size_t index, int num_top,
                   std::string& out) {
  AppendItem(tokenizer, response.output_ids[index],
             index < response.output_log_probs.size() ? response.output_log_probs[index] : 0, out);
  out.append(R"(,"top_logprobs":[)");
  for (const TopLogProb& top : TopOf(response, index, num_top)) {
    AppendComma(out);
    AppendItem(tokenizer, top.id, top.log_prob, out);
    out.push_back('}');
  }
  out.append("]}");
}

void AppendChatLogProbs(const Tokenizer& tokenizer, const Response& response, int num_top,
                        std::string& out) {
  for (size_t i = 0; i < response.output_ids.size(); ++i) {
    if (!out.empty() && out.back() == '}') out.push_back(',');
    AppendLogProb(tokenizer, response, i, num_top, out);
  }
}

void CompletionLogProbs::Add(const Tokenizer& tokenizer, const Response& response, int num_top) {
  for (size_t i = 0; i < response.output_ids.size(); ++i) {
    const std::string text = json::ValidText(BytesOfToken(tokenizer, response.output_ids[i]));
    for (std::string* list : {&tokens_, &log_probs_, &tops_, &offsets_})
      if (!list->empty()) list->push_back(',');
    json::AppendString(tokens_, text);
    json::AppendDouble(log_probs_, i < response.output_log_probs.size()
                                       ? Finite(response.output_log_probs[i])
                                       : kImpossible);
    offsets_.append(std::to_string(offset_));
    offset_ += NumCharacters(text);
    tops_.push_back('{');
    bool is_first = true;
    for (const TopLogProb& top : TopOf(response, i, num_top)) {
      if (!is_first) tops_.push_back(',');
      is_first = false;
      json::AppendString(tops_, json::ValidText(BytesOfToken(tokenizer, top.id)));
      tops_.push_back(':');
      json::AppendDouble(tops_, Finite(top.log_prob));
    }
    tops_.push_back('}');
  }
}

void CompletionLogProbs::Write(std::string& out) {
  out.append(R"({"tokens":[)").append(tokens_);
  out.append(R"(],"token_logprobs":[)").append(log_probs_);
  out.append(R"(],"top_logprobs":[)").append(tops_);
  out.append(R"(],"text_offset":[)").append(offsets_).append("]}");
  for (std::string* list : {&tokens_, &log_probs_, &tops_, &offsets_}) list->clear();
}

}  // namespace inflight::openai
