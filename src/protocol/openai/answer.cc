// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/answer.h"

#include <algorithm>
#include <ctime>
#include <span>
#include <utility>

#include "json/json_writer.h"
#include "protocol/kserve/http/response.h"
#include "protocol/openai/error.h"
#include "protocol/openai/new_id.h"

namespace inflight::openai {
namespace {

using answer_parts::Part;
using answer_parts::Parts;

constexpr std::string_view kDone = "[DONE]";  // the last event

std::string HeadOf(const AnswerOptions& options) {
  std::string head = options.is_chat ? NewId("{\"id\":\"chatcmpl-") : NewId("{\"id\":\"cmpl-");
  head.append(R"(","object":")");
  if (!options.is_chat) {
    head.append("text_completion");
  } else {
    head.append(options.is_stream ? "chat.completion.chunk" : "chat.completion");
  }
  head.append(R"(","created":)").append(std::to_string(options.created_s));
  head.append(R"(,"model":)");
  json::AppendString(head, options.model);
  head.append(R"(,"choices":[)");
  return head;
}

}  // namespace

Answer::Answer(AnswerOptions options, std::shared_ptr<const Tokenizer> tokenizer,
               std::vector<std::shared_ptr<serving::CancelToken>> cancels,
               std::shared_ptr<http_listener::HttpResponder> responder)
    : options_(std::move(options)),
      tokenizer_(std::move(tokenizer)),
      cancels_(std::move(cancels)),
      responder_(responder),
      sender_(std::move(responder), SeedHeader(options_.seed)),
      head_(HeadOf(options_)),
      choices_(cancels_.size() * static_cast<size_t>(options_.best_of)),
      is_counted_(cancels_.size()),
      receipts_(cancels_.size()),
      charge_(options_.memory) {
  if (options_.is_chat && options_.is_stream && choices_.size() == 1) PrepareDelta();
}

void Answer::PrepareDelta() {
  BeginEvent(0);
  events().append(R"(,"delta":{"content":)");
  delta_begin_.swap(events());
  events().append(R"(},"logprobs":null,"finish_reason":null)");
  EndEvent();
  delta_end_.swap(events());
}

void Answer::OnResponse(size_t prompt, const serving::Response& response) {
  const std::lock_guard lock(mutex_);
  if (is_done_) return;
  if (!response.status.ok()) return Fail(response.status);
  if (const auto* receipt = response.is_final ? serving::ReceiptOf(response) : nullptr)
    receipts_[prompt] = *receipt;
  if (response.generated != nullptr) Take(prompt, *response.generated);
  if (is_done_ || !response.is_final) return;
  if (++num_ended_ == cancels_.size()) End();
}

void Answer::Take(size_t prompt, const serving::Generated& generated) {
  const inflight::Response& response = generated.response;
  if (!is_counted_[prompt]) usage_.prompt_tokens += generated.num_prompt_tokens;
  if (!is_counted_[prompt]) usage_.cached_tokens += response.num_cached_tokens;
  is_counted_[prompt] = true;
  const size_t index =
      prompt * static_cast<size_t>(options_.best_of) + static_cast<size_t>(response.sequence_index);
  Choice& choice = choices_[index];
  usage_.completion_tokens += std::ssize(response.output_ids);
  choice.num_tokens += static_cast<int>(response.output_ids.size());
  for (const float log_prob : response.output_log_probs) choice.cum_log_prob += log_prob;
  if (response.is_sequence_final) choice.finish_reason = ReasonName(generated.finish_reason);
  const bool is_first = !std::exchange(choice.has_begun, true);
  if (is_first && !options_.format.is_plain()) {
    choice.parts = std::make_unique<MessageParts>(options_.format, *options_.begins_in);
  }
  if (is_first && !options_.echoes.empty()) {
    choice.text = options_.echoes[prompt];
  }
  if (options_.logprobs && !options_.is_chat)
    choice.completion_log_probs.Add(*tokenizer_, response, options_.top_logprobs);
  if (options_.is_stream) {
    if (is_first && options_.is_chat) {
      BeginEvent(index);
      events().append(
          R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null)");
      EndEvent();
    }
    choice.parts ? AppendPartEvents(index, choice, generated)
                 : AppendEvents(index, choice, generated);
    return sender_.Send();
  }
  Keep(choice, generated);
}

void Answer::Keep(Choice& choice, const serving::Generated& generated) {
  choice.parts ? KeepParts(choice, generated) : void(choice.text.append(generated.text));
  if (options_.logprobs && options_.is_chat)
    AppendChatLogProbs(*tokenizer_, generated.response, options_.top_logprobs, choice.log_probs);
  held_bytes_ += choice.num_bytes() - std::exchange(choice.counted_bytes, choice.num_bytes());
  if (held_bytes_ <= kUncountedBytes) return;
  if (const Status room = charge_.Reserve(held_bytes_); !room.ok()) Fail(room);
}

size_t Answer::Choice::num_bytes() const {
  size_t bytes =
      text.size() + log_probs.size() + completion_log_probs.num_bytes() + reasoning.size();
  for (const Call& call : calls) bytes += call.arguments.size();
  return bytes;
}

Parts Answer::ReadParts(Choice& choice, const serving::Generated& generated) {
  Parts parts = choice.parts->Read(generated);
  if (!choice.parts->finish_reason().empty()) choice.finish_reason = choice.parts->finish_reason();
  return parts;
}

void Answer::AddCall(Choice& choice, const std::string& name) const {
  choice.calls.push_back(
      {.id = NewCallId(options_.format, "call_"), .name = name, .arguments = {}});
}

void Answer::KeepParts(Choice& choice, const serving::Generated& generated) {
  const Parts parts = ReadParts(choice, generated);
  for (const Part& part : parts.items()) {
    switch (part.kind) {
      case Part::Kind::kReasoning:
        choice.reasoning.append(part.text);
        break;
      case Part::Kind::kContent:
        choice.text.append(part.text);
        break;
      case Part::Kind::kCall:
        AddCall(choice, part.text);
        break;
      case Part::Kind::kArguments:
        choice.calls.back().arguments.append(part.text);
        break;
    }
  }
}

void Answer::AppendDelta(Choice& choice, const Part& part) {
  if (part.kind == Part::Kind::kReasoning || part.kind == Part::Kind::kContent) {
    events().append(part.kind == Part::Kind::kContent ? R"({"content":)"
                                                      : R"({"reasoning_content":)");
    json::AppendString(events(), part.text);
    events().push_back('}');
    return;
  }
  if (part.kind == Part::Kind::kCall) AddCall(choice, part.text);
  json::Writer writer(events());
  writer.BeginObject().Key("tool_calls").BeginArray().BeginObject();
  writer.Key("index").Int(std::ssize(choice.calls) - 1);
  if (part.kind == Part::Kind::kCall) {
    writer.Key("id").String(choice.calls.back().id).Key("type").String("function");
    writer.Key("function").BeginObject().Key("name").String(part.text);
    writer.Key("arguments").String("").EndObject();
  } else {
    writer.Key("function").BeginObject().Key("arguments").String(part.text).EndObject();
  }
  writer.EndObject().EndArray().EndObject();
}

// Log-probabilities come with the first part, or with an empty text where a text is held back.
void Answer::AppendPartEvents(size_t index, Choice& choice, const serving::Generated& generated) {
  const Parts parts = ReadParts(choice, generated);
  bool has_log_probs = options_.logprobs && !generated.response.output_ids.empty();
  const Part nothing = {Part::Kind::kContent, ""};
  std::span<const Part> told = parts.items();
  if (told.empty() && has_log_probs) told = {&nothing, 1};
  for (const Part& part : told) {
    if (part.kind == Part::Kind::kContent && !delta_begin_.empty() && !has_log_probs) {
      AppendDeltaEvent(part.text);
      continue;
    }
    BeginEvent(index);
    events().append(R"(,"delta":)");
    AppendDelta(choice, part);
    events().append(R"(,"logprobs":)");
    if (std::exchange(has_log_probs, false)) {
      events().append(R"({"content":[)");
      AppendChatLogProbs(*tokenizer_, generated.response, options_.top_logprobs, events());
      events().append("]}");
    } else {
      events().append("null");
    }
    events().append(R"(,"finish_reason":null)");
    EndEvent();
  }
  if (!generated.response.is_sequence_final) return;
  BeginEvent(index);
  events().append(R"(,"delta":{},"logprobs":null,"finish_reason":")");
  events().append(choice.finish_reason).append("\"");
  EndEvent(TakeReceipt(PromptOf(index)));
}

void Answer::BeginEvent(size_t index) {
  http_listener::BeginEvent(events());
  events().append(head_).append(R"({"index":)").append(std::to_string(index));
}

void Answer::EndEvent(std::string_view receipt) {
  events().append(options_.include_usage ? "}],\"usage\":null" : "}]");
  if (!receipt.empty()) events().append(R"(,"receipt":)").append(receipt);
  events().push_back('}');
  http_listener::EndEvent(events());
}

void Answer::AppendEvents(size_t index, Choice& choice, const serving::Generated& generated) {
  const bool is_last = generated.response.is_sequence_final;
  const bool has_log_probs = options_.logprobs && !generated.response.output_ids.empty();
  if (!generated.text.empty() || has_log_probs || !choice.text.empty() ||
      (is_last && !options_.is_chat)) {
    if (!delta_begin_.empty() && !has_log_probs) {
      AppendDeltaEvent(generated.text);
    } else {
      AppendTextEvent(index, choice, generated);
    }
  }
  if (!is_last || !options_.is_chat) return;
  BeginEvent(index);
  events().append(R"(,"delta":{},"logprobs":null,"finish_reason":")");
  events().append(choice.finish_reason).append("\"");
  EndEvent(TakeReceipt(PromptOf(index)));
}

void Answer::AppendDeltaEvent(std::string_view text) {
  events().append(delta_begin_);
  json::AppendString(events(), text);
  events().append(delta_end_);
}

void Answer::AppendTextEvent(size_t index, Choice& choice, const serving::Generated& generated) {
  const bool is_last = generated.response.is_sequence_final;
  BeginEvent(index);
  events().append(options_.is_chat ? R"(,"delta":{"content":)" : R"(,"text":)");
  if (choice.text.empty()) {
    json::AppendString(events(), generated.text);
  } else {  // behind the prompt that is told first
    json::AppendString(events(), choice.text + generated.text);
    choice.text.clear();
  }
  if (options_.is_chat) events().push_back('}');
  events().append(R"(,"logprobs":)");
  if (!options_.logprobs || generated.response.output_ids.empty()) {
    events().append("null");
  } else if (options_.is_chat) {
    events().append(R"({"content":[)");
    AppendChatLogProbs(*tokenizer_, generated.response, options_.top_logprobs, events());
    events().append("]}");
  } else {
    choice.completion_log_probs.Write(events());
  }
  events().append(R"(,"finish_reason":)");
  if (is_last && !options_.is_chat) {
    events().append("\"").append(choice.finish_reason).append("\"");
    return EndEvent(TakeReceipt(PromptOf(index)));
  }
  events().append("null");
  EndEvent();
}

void Answer::Fail(const Status& status) {
  is_done_ = true;
  for (const auto& cancel : cancels_) cancel->Cancel();
  choices_.clear();
  if (!sender_.has_started()) return responder_->Send(Error(status));
  http_listener::BeginEvent(events());
  AppendError(status, events());
  http_listener::EndEvent(events());
  http_listener::AppendEvent(events(), "", kDone);
  sender_.Finish();
}

void Answer::End() {
  is_done_ = true;
  if (!options_.is_stream) return SendWhole();
  if (!std::ranges::all_of(receipts_, &std::string::empty)) {  // no last event took them
    http_listener::BeginEvent(events());
    events().append(head_).push_back(']');
    AppendReceipts(events());
    events().push_back('}');
    http_listener::EndEvent(events());
  }
  if (options_.include_usage) {
    http_listener::BeginEvent(events());
    events().append(head_).append("],\"usage\":");
    AppendUsage(events());
    events().append("}");
    http_listener::EndEvent(events());
  }
  http_listener::AppendEvent(events(), "", kDone);
  sender_.Finish();
}

// Of the sequences that were made for a prompt those that are answered: all, or the likeliest by
// their mean log-probability a token.
std::vector<size_t> Answer::Best(size_t prompt) const {
  std::vector<size_t> order(static_cast<size_t>(options_.best_of));
  const size_t first = prompt * order.size();
  for (size_t i = 0; i < order.size(); ++i) order[i] = first + i;
  if (options_.best_of > options_.n) {
    std::ranges::stable_sort(order, std::greater(), [this](size_t index) {
      const Choice& choice = choices_[index];
      return choice.cum_log_prob / static_cast<float>(std::max(choice.num_tokens, 1));
    });
    order.resize(static_cast<size_t>(options_.n));
  }
  return order;
}

void Answer::AppendChoice(size_t index, Choice& choice, std::string& out) const {
  out.append(R"({"index":)").append(std::to_string(index));
  out.append(options_.is_chat ? R"(,"message":{"role":"assistant","content":)" : R"(,"text":)");
  if (options_.is_chat && choice.text.empty() && !choice.calls.empty()) {
    out.append("null");
  } else {
    json::AppendString(out, choice.text);
  }
  if (!choice.reasoning.empty()) {
    out.append(R"(,"reasoning_content":)");
    json::AppendString(out, choice.reasoning);
  }
  if (!choice.calls.empty()) {
    out.append(R"(,"tool_calls":)");
    json::Writer writer(out);
    writer.BeginArray();
    for (const Call& call : choice.calls) {
      writer.BeginObject().Key("id").String(call.id).Key("type").String("function");
      writer.Key("function").BeginObject().Key("name").String(call.name);
      writer.Key("arguments").String(call.arguments).EndObject().EndObject();
    }
    writer.EndArray();
  }
  if (options_.is_chat) out.append(R"(,"refusal":null})");
  out.append(R"(,"logprobs":)");
  if (!options_.logprobs) {
    out.append("null");
  } else if (options_.is_chat) {
    out.append(R"({"content":[)").append(choice.log_probs).append("]}");
  } else {
    choice.completion_log_probs.Write(out);
  }
  out.append(R"(,"finish_reason":")").append(choice.finish_reason).append("\"}");
}

void Answer::SendWhole() {
  std::string body = head_;
  size_t num_told = 0;
  for (size_t prompt = 0; prompt < cancels_.size(); ++prompt) {
    for (const size_t index : Best(prompt)) {
      if (num_told > 0) body.push_back(',');
      AppendChoice(num_told++, choices_[index], body);
    }
  }
  body.append(R"(],"usage":)");
  AppendUsage(body);
  AppendReceipts(body);
  body.append("}");
  auto answer = kserve_http::Answer(200, kserve_http::kJson, std::move(body));
  for (auto& header : SeedHeader(options_.seed)) answer.headers.push_back(std::move(header));
  responder_->Send(std::move(answer));
}

std::string Answer::TakeReceipt(size_t prompt) { return std::exchange(receipts_[prompt], {}); }

// One for a prompt; of several prompts a list in their order.
void Answer::AppendReceipts(std::string& out) const {
  if (std::ranges::all_of(receipts_, &std::string::empty)) return;
  out.append(R"(,"receipt":)");
  if (receipts_.size() == 1) {
    out.append(receipts_.front());
    return;
  }
  json::Writer writer(out);
  writer.BeginArray();
  for (const std::string& receipt : receipts_) writer.Raw(receipt.empty() ? "null" : receipt);
  writer.EndArray();
}

void Answer::AppendUsage(std::string& out) const {
  json::Writer writer(out);
  writer.BeginObject().Key("prompt_tokens").Int(usage_.prompt_tokens);
  writer.Key("completion_tokens").Int(usage_.completion_tokens);
  writer.Key("total_tokens").Int(usage_.prompt_tokens + usage_.completion_tokens);
  writer.Key("prompt_tokens_details").BeginObject();
  writer.Key("cached_tokens").Int(usage_.cached_tokens).EndObject().EndObject();
}

MakeSink AnswerTo(const Asked& asked, const ServedModel& served, AnswerForm form,
                  std::shared_ptr<http_listener::HttpResponder> responder) {
  AnswerOptions options = {.is_chat = form.is_chat,
                           .is_stream = asked.stream,
                           .include_usage = asked.include_usage,
                           .logprobs = asked.logprobs,
                           .top_logprobs = asked.top_logprobs,
                           .n = asked.n,
                           .best_of = asked.best_of.value_or(asked.n),
                           .model = served.name,
                           .created_s = std::time(nullptr),
                           .echoes = std::move(form.echoes)};
  return [options = std::move(options), tokenizer = served.text->tokenizer,
          responder = std::move(responder)](Started started) mutable {
    options.seed = started.seed;
    options.format = std::move(started.format);
    options.begins_in = std::move(started.begins_in);
    options.memory = std::move(started.memory);
    return std::make_shared<Answer>(std::move(options), std::move(tokenizer),
                                    std::move(started.cancels), std::move(responder));
  };
}

}  // namespace inflight::openai
