// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/response_answer.h"

#include <array>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "json/json_reader.h"
#include "json/json_writer.h"
#include "json/valid_text.h"
#include "protocol/http_listener/event_stream.h"
#include "protocol/kserve/http/response.h"
#include "protocol/openai/chat_document.h"
#include "protocol/openai/error.h"
#include "protocol/openai/event_sender.h"
#include "protocol/openai/field_names.h"
#include "protocol/openai/new_id.h"
#include "protocol/openai/response_input.h"
#include "protocol/openai/text_log_probs.h"

namespace inflight::openai {
namespace {

using answer_parts::Part;
using http_listener::HttpResponder;

constexpr std::string_view kInProgress = "in_progress";
constexpr std::string_view kCompleted = "completed";
constexpr std::string_view kIncomplete = "incomplete";
constexpr std::string_view kFailed = "failed";

// One of "output".
struct Item {
  Part::Kind kind;
  std::string name = {};  // of a call, as is call_id
  std::string call_id = {};
  std::string id = {};
  std::string text = {};       // of a call its arguments
  std::string log_probs = {};  // of a text: of its tokens, joined by commas
};

// Names of an item's events and parts.
struct ItemNames {
  std::string_view part;   // type of the content's part; empty: it has none
  std::string_view delta;  // events
  std::string_view done;
  std::string_view text;  // the member of `done`
};
const ItemNames& NamesOf(Part::Kind kind) {
  static constexpr ItemNames kReasoning = {"reasoning_text", "response.reasoning_text.delta",
                                           "response.reasoning_text.done", "text"};
  static constexpr ItemNames kText = {"output_text", "response.output_text.delta",
                                      "response.output_text.done", "text"};
  static constexpr ItemNames kCall = {"", "response.function_call_arguments.delta",
                                      "response.function_call_arguments.done", "arguments"};
  if (kind == Part::Kind::kReasoning) return kReasoning;
  return kind == Part::Kind::kContent ? kText : kCall;
}

void AppendLogProbs(const std::string& items, json::Writer& out) {
  out.Key("logprobs").BeginArray();
  if (!items.empty()) out.Raw(items);
  out.EndArray();
}

// `is_whole`: with its text.
void AppendPart(const Item& item, bool is_whole, json::Writer& out) {
  out.BeginObject().Key("type").String(NamesOf(item.kind).part);
  out.Key("text").String(is_whole ? item.text : "");
  if (item.kind == Part::Kind::kContent) {
    out.Key("annotations").BeginArray().EndArray();
    AppendLogProbs(is_whole ? item.log_probs : "", out);
  }
  out.EndObject();
}

// `status` in progress: without what it will have.
void AppendItem(const Item& item, std::string_view status, json::Writer& out) {
  const bool is_whole = status != kInProgress;
  out.BeginObject().Key("id").String(item.id).Key("type");
  if (item.kind == Part::Kind::kCall) {
    out.String("function_call").Key("status").String(status);
    out.Key("call_id").String(item.call_id).Key("name").String(item.name);
    out.Key("arguments").String(is_whole ? item.text : "").EndObject();
    return;
  }
  if (item.kind == Part::Kind::kReasoning) {
    out.String("reasoning").Key("summary").BeginArray().EndArray();
  } else {
    out.String("message").Key("role").String("assistant");
  }
  out.Key("status").String(status).Key("content").BeginArray();
  if (is_whole) AppendPart(item, is_whole, out);
  out.EndArray().EndObject();
}

void AppendUsage(const MessageUsage& usage, int64_t num_reasoning_tokens, json::Writer& out) {
  out.BeginObject().Key("input_tokens").Int(usage.prompt_tokens);
  out.Key("input_tokens_details").BeginObject().Key("cached_tokens").Int(usage.cached_tokens);
  out.Key("cache_write_tokens").Int(0).EndObject();
  out.Key("output_tokens").Int(usage.completion_tokens);
  out.Key("output_tokens_details").BeginObject();
  out.Key("reasoning_tokens").Int(num_reasoning_tokens).EndObject();
  out.Key("total_tokens").Int(usage.prompt_tokens + usage.completion_tokens).EndObject();
}

bool IsObject(std::string_view text) {
  const auto value = json::Value::Parse(text);
  return value.ok() && value->kind() == json::Value::Kind::kObject;
}

// The shortest number that reads back equal; "null" where there is none.
std::string NumberText(std::optional<float> number) {
  if (!number) return "null";
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), *number).ptr;
  return {digits.data(), end};
}

class ResponseWriter final : public MessageWriter {
 public:
  ResponseWriter(const Started& started, ResponseForm form,
                 std::shared_ptr<HttpResponder> responder)
      : form_(std::move(form)),
        format_(started.format),
        seed_(started.seed),
        responder_(responder),
        sender_(std::move(responder), SeedHeader(started.seed)) {
    if (form_.logprobs) log_probs_.emplace(form_.tokenizer, form_.top_logprobs);
  }

  void Read(const Response& response) override {
    if (log_probs_) log_probs_->Add(response);
  }

  void Begin(const MessageUsage&) override {
    if (!form_.is_stream) return;
    for (const std::string_view type : {"response.created", "response.in_progress"}) {
      json::Writer out = BeginEvent(type);
      out.Key("response");
      AppendResponse(kInProgress, nullptr, nullptr, out);
      EndEvent(out);
    }
  }

  void Open(Part::Kind kind, std::string_view name) override {
    Item& item = items_.emplace_back(Item{.kind = kind, .name = std::string(name)});
    const bool is_call = kind == Part::Kind::kCall;
    item.id = NewId(is_call ? "fc_" : (kind == Part::Kind::kReasoning ? "rs_" : "msg_"));
    if (is_call) item.call_id = NewCallId(format_, "call_");
    if (is_call && log_probs_) log_probs_->Skip(name);
    if (!form_.is_stream) return;
    json::Writer out = BeginEvent("response.output_item.added");
    out.Key("output_index").Int(Index()).Key("item");
    AppendItem(item, kInProgress, out);
    EndEvent(out);
    if (!is_call) PartEvent("response.content_part.added", /*is_whole=*/false);
  }

  void Append(std::string_view text) override {
    Item& item = items_.back();
    const bool is_text = item.kind == Part::Kind::kContent;
    item.text.append(text);
    std::string log_probs;
    if (log_probs_) is_text ? void(log_probs = log_probs_->Take(text)) : log_probs_->Skip(text);
    held_bytes_ += text.size() + log_probs.size();
    if (!item.log_probs.empty() && !log_probs.empty()) item.log_probs.push_back(',');
    item.log_probs.append(log_probs);
    if (!form_.is_stream) return;
    json::Writer out = BeginEventOfItem(NamesOf(item.kind).delta);
    out.Key("delta").String(text);
    if (is_text) AppendLogProbs(log_probs, out);
    EndEvent(out);
  }

  size_t held_bytes() const override { return held_bytes_; }

  void Close(bool is_cut) override { CloseItem(is_cut ? kIncomplete : kCompleted); }

  void Step() override {
    if (form_.is_stream) sender_.Send();
  }

  void End(const MessageEnd& end) override {
    const std::string_view status = end.reason == "length" ? kIncomplete : kCompleted;
    num_reasoning_tokens_ = NumReasoningTokens();
    receipt_ = end.receipt;
    std::string body;
    json::Writer out(body);
    AppendResponse(status, &end.usage, nullptr, out);
    if (form_.keep && !form_.keep(body, AsChat())) {
      is_kept_ = false;
      body.clear();
      json::Writer again(body);
      AppendResponse(status, &end.usage, nullptr, again);
    }
    if (!form_.is_stream) {
      auto answer = kserve_http::Answer(200, kserve_http::kJson, std::move(body));
      for (auto& header : SeedHeader(seed_)) answer.headers.push_back(std::move(header));
      return responder_->Send(std::move(answer));
    }
    json::Writer last = BeginEvent("response." + std::string(status));
    last.Key("response").Raw(body);
    EndEvent(last);
    sender_.Finish();
  }

  void Fail(const Status& status) override {
    const Status own = ByOwnNames(ResponseFieldNames(), status);
    if (!sender_.has_started()) return responder_->Send(Error(own));
    json::Writer out = BeginEvent("response.failed");
    out.Key("response");
    AppendResponse(kFailed, nullptr, &own, out);
    EndEvent(out);
    sender_.Finish();
  }

 private:
  int64_t Index() const { return std::ssize(items_) - 1; }

  json::Writer BeginEvent(std::string_view type) {
    http_listener::BeginEvent(sender_.text(), type);
    json::Writer out(sender_.text());
    out.BeginObject().Key("type").String(type).Key("sequence_number").Int(sequence_number_++);
    return out;
  }
  void EndEvent(json::Writer& out) {
    out.EndObject();
    http_listener::EndEvent(sender_.text());
  }
  json::Writer BeginEventOfItem(std::string_view type) {
    json::Writer out = BeginEvent(type);
    out.Key("item_id").String(items_.back().id).Key("output_index").Int(Index());
    if (items_.back().kind != Part::Kind::kCall) out.Key("content_index").Int(0);
    return out;
  }
  void PartEvent(std::string_view type, bool is_whole) {
    json::Writer out = BeginEventOfItem(type);
    out.Key("part");
    AppendPart(items_.back(), is_whole, out);
    EndEvent(out);
  }

  void CloseItem(std::string_view status) {
    if (!form_.is_stream) return;
    const Item& item = items_.back();
    const ItemNames& names = NamesOf(item.kind);
    json::Writer done = BeginEventOfItem(names.done);
    done.Key(names.text).String(item.text);
    if (item.kind == Part::Kind::kContent) AppendLogProbs(item.log_probs, done);
    if (item.kind == Part::Kind::kCall) done.Key("name").String(item.name);
    EndEvent(done);
    if (!names.part.empty()) PartEvent("response.content_part.done", /*is_whole=*/true);
    json::Writer out = BeginEvent("response.output_item.done");
    out.Key("output_index").Int(Index()).Key("item");
    AppendItem(item, status, out);
    EndEvent(out);
  }

  void AppendResponse(std::string_view status, const MessageUsage* usage, const Status* error,
                      json::Writer& out) const {
    out.BeginObject().Key("id").String(form_.id).Key("object").String("response");
    out.Key("created_at").Int(form_.created_s).Key("status").String(status);
    out.Key("model").String(form_.model);
    for (const auto& [name, value] : form_.echo) out.Key(name).Raw(value);
    out.Key("background").Bool(false).Key("error");
    if (error == nullptr) {
      out.Null();
    } else {
      const bool is_clients = HttpStatusOf(*error) < 500;
      out.BeginObject().Key("code").String(is_clients ? "invalid_prompt" : "server_error");
      out.Key("message").String(json::ValidText(error->message())).EndObject();
    }
    out.Key("incomplete_details");
    if (status == kIncomplete) {
      out.BeginObject().Key("reason").String("max_output_tokens").EndObject();
    } else {
      out.Null();
    }
    out.Key("output").BeginArray();
    for (size_t i = 0; i < items_.size(); ++i)
      AppendItem(items_[i],
                 i + 1 == items_.size() && status != kCompleted ? kIncomplete : kCompleted, out);
    out.EndArray().Key("usage");
    usage == nullptr ? void(out.Null()) : AppendUsage(*usage, num_reasoning_tokens_, out);
    out.Key("store").Bool(form_.keep != nullptr && is_kept_);
    if (!receipt_.empty()) out.Key("receipt").Raw(receipt_);
    out.EndObject();
  }

  // As many as the reasoning's text has.
  int64_t NumReasoningTokens() const {
    std::string reasoning;
    for (const Item& item : items_)
      if (item.kind == Part::Kind::kReasoning) reasoning += item.text;
    if (reasoning.empty()) return 0;
    const auto ids = form_.tokenizer->Encode(reasoning, /*add_special_tokens=*/false);
    return ids.ok() ? std::ssize(*ids) : 0;
  }

  // As the client would send it back, but for arguments that are none, as of a call that was cut:
  // templates take objects, and the conversation can go on from a call without any.
  std::string AsChat() const {
    ChatTurn turn{.role = "assistant", .content = {}};
    for (const Item& item : items_) {
      if (item.kind == Part::Kind::kReasoning) turn.reasoning += item.text;
      if (item.kind == Part::Kind::kContent) turn.content += item.text;
      if (item.kind == Part::Kind::kCall)
        turn.calls.push_back({.id = item.call_id,
                              .name = item.name,
                              .arguments = IsObject(item.text) ? item.text : "{}"});
    }
    std::string text;
    json::Writer out(text);
    AppendTurn(turn, out);
    return text;
  }

  const ResponseForm form_;
  const answer_parts::AnswerFormat format_;
  const uint64_t seed_;
  const std::shared_ptr<HttpResponder> responder_;
  EventSender sender_;
  std::vector<Item> items_;
  size_t held_bytes_ = 0;                  // of their texts and log-probabilities
  std::optional<TextLogProbs> log_probs_;  // where they are asked for
  int64_t sequence_number_ = 0;
  int64_t num_reasoning_tokens_ = 0;  // at the end
  std::string receipt_;               // at the end
  bool is_kept_ = true;
};

}  // namespace

std::vector<std::pair<std::string_view, std::string>> EchoOf(const Asked& asked) {
  std::vector<std::pair<std::string_view, std::string>> echo;
  const auto raw = [&](std::string_view name, const std::optional<json::Value>& value,
                       std::string_view otherwise) {
    echo.emplace_back(name, json::OnOneLine(value ? value->text() : otherwise));
  };
  raw("instructions", asked.instructions, "null");
  raw("metadata", asked.metadata, "{}");
  raw("tools", asked.tools, "[]");
  raw("tool_choice", asked.tool_choice, "\"auto\"");
  raw("text", asked.text, R"({"format":{"type":"text"}})");
  raw("reasoning", asked.reasoning, R"({"effort":null,"summary":null})");
  echo.emplace_back("parallel_tool_calls", asked.parallel_tool_calls ? "true" : "false");
  std::string& before = echo.emplace_back("previous_response_id", "").second;
  json::AppendString(before, asked.previous_response_id);
  if (asked.previous_response_id.empty()) before = "null";
  echo.emplace_back("max_output_tokens",
                    asked.max_tokens ? std::to_string(*asked.max_tokens) : "null");
  echo.emplace_back("temperature", NumberText(asked.temperature));
  echo.emplace_back("top_p", NumberText(asked.top_p));
  echo.emplace_back("top_logprobs", std::to_string(asked.top_logprobs));
  echo.emplace_back("truncation", asked.truncates ? "\"auto\"" : "\"disabled\"");
  return echo;
}

MakeWriter WriteResponse(ResponseForm form, std::shared_ptr<HttpResponder> responder) {
  return [form = std::move(form), responder = std::move(responder)](
             const Started& started) mutable -> std::unique_ptr<MessageWriter> {
    return std::make_unique<ResponseWriter>(started, std::move(form), std::move(responder));
  };
}

}  // namespace inflight::openai
