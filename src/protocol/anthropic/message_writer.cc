// SPDX-License-Identifier: Apache-2.0
#include "protocol/anthropic/message_writer.h"

#include <string_view>
#include <utility>
#include <vector>

#include "answer_parts/part.h"
#include "json/json_reader.h"
#include "json/json_writer.h"
#include "protocol/anthropic/conversation.h"
#include "protocol/anthropic/error.h"
#include "protocol/http_listener/event_stream.h"
#include "protocol/kserve/http/response.h"
#include "protocol/openai/event_sender.h"
#include "protocol/openai/field_names.h"
#include "protocol/openai/new_id.h"

namespace inflight::anthropic {
namespace {

using answer_parts::Part;
using http_listener::HttpResponder;
using openai::MessageEnd;
using openai::MessageUsage;
using openai::Started;

std::string_view StopReason(const MessageEnd& end) {
  if (end.reason == "tool_calls") return "tool_use";
  if (end.reason == "length") return "max_tokens";
  return end.stop_text.empty() ? "end_turn" : "stop_sequence";
}

// Tokens that were found in the KV cache are not counted as input, as this API has it.
void AppendUsage(const MessageUsage& usage, json::Writer& out) {
  out.BeginObject().Key("input_tokens").Int(usage.prompt_tokens - usage.cached_tokens);
  out.Key("cache_creation_input_tokens").Int(0);
  out.Key("cache_read_input_tokens").Int(usage.cached_tokens);
  out.Key("output_tokens").Int(usage.completion_tokens).EndObject();
}

void AppendStop(const MessageEnd* end, json::Writer& out) {
  out.Key("stop_reason");
  end == nullptr ? out.Null() : out.String(StopReason(*end));
  out.Key("stop_sequence");
  const bool is_told = end != nullptr && StopReason(*end) == "stop_sequence";
  is_told ? out.String(end->stop_text) : out.Null();
}

// Up to the content, which follows as an array.
void BeginMessage(const std::string& id, const std::string& model, json::Writer& out) {
  out.BeginObject().Key("id").String(id).Key("type").String("message");
  out.Key("role").String("assistant").Key("model").String(model).Key("content").BeginArray();
}

class WholeMessage final : public openai::MessageWriter {
 public:
  WholeMessage(const Started& started, std::string model, std::shared_ptr<HttpResponder> responder)
      : format_(started.format),
        seed_(started.seed),
        model_(std::move(model)),
        responder_(std::move(responder)) {}

  void Begin(const MessageUsage&) override {}
  void Open(Part::Kind kind, std::string_view name) override {
    blocks_.push_back({kind, {}, std::string(name)});
  }
  void Append(std::string_view text) override {
    blocks_.back().text.append(text);
    held_bytes_ += text.size();
  }
  void Close(bool /*is_cut*/) override {}
  void Step() override {}
  size_t held_bytes() const override { return held_bytes_; }

  void End(const MessageEnd& end) override {
    std::string body;
    json::Writer out(body);
    BeginMessage(openai::NewId("msg_"), model_, out);
    for (const Block& block : blocks_) AppendBlock(block, out);
    out.EndArray();
    AppendStop(&end, out);
    out.Key("usage");
    AppendUsage(end.usage, out);
    if (!end.receipt.empty()) out.Key("receipt").Raw(end.receipt);
    out.EndObject();
    auto answer = kserve_http::Answer(200, kserve_http::kJson, std::move(body));
    for (auto& header : openai::SeedHeader(seed_)) answer.headers.push_back(std::move(header));
    responder_->Send(std::move(answer));
  }
  void Fail(const Status& status) override {
    responder_->Send(Error(openai::ByOwnNames(FieldNames(), status)));
  }

 private:
  struct Block {
    Part::Kind kind;
    std::string text;  // of a call its arguments
    std::string name;  // of a call
  };

  void AppendBlock(const Block& block, json::Writer& out) const {
    out.BeginObject().Key("type");
    if (block.kind == Part::Kind::kContent) {
      out.String("text").Key("text").String(block.text);
    } else if (block.kind == Part::Kind::kReasoning) {
      out.String("thinking").Key("thinking").String(block.text).Key("signature").String("");
    } else {
      out.String("tool_use").Key("id").String(openai::NewCallId(format_, "toolu_"));
      out.Key("name").String(block.name).Key("input");
      // Arguments that max_tokens cut are no object.
      const auto input = json::Value::Parse(block.text);
      const bool is_object = input.ok() && input->kind() == json::Value::Kind::kObject;
      out.Raw(is_object ? std::string_view(block.text) : "{}");
    }
    out.EndObject();
  }

  const answer_parts::AnswerFormat format_;
  const uint64_t seed_;
  const std::string model_;
  const std::shared_ptr<HttpResponder> responder_;
  std::vector<Block> blocks_;
  size_t held_bytes_ = 0;  // of their texts
};

class MessageEvents final : public openai::MessageWriter {
 public:
  MessageEvents(const Started& started, std::string model, std::shared_ptr<HttpResponder> responder)
      : format_(started.format),
        model_(std::move(model)),
        responder_(responder),
        sender_(std::move(responder), openai::SeedHeader(started.seed)) {}

  void Begin(const MessageUsage& usage) override {
    json::Writer out = BeginEvent("message_start");
    out.Key("message");
    BeginMessage(openai::NewId("msg_"), model_, out);
    out.EndArray();
    AppendStop(nullptr, out);
    out.Key("usage");
    AppendUsage(usage, out);
    out.EndObject();
    EndEvent(out);
    json::Writer ping = BeginEvent("ping");
    EndEvent(ping);
  }

  void Open(Part::Kind kind, std::string_view name) override {
    kind_ = kind;
    json::Writer out = BeginEvent("content_block_start");
    out.Key("index").Int(index_).Key("content_block").BeginObject().Key("type");
    if (kind == Part::Kind::kContent) {
      out.String("text").Key("text").String("");
    } else if (kind == Part::Kind::kReasoning) {
      out.String("thinking").Key("thinking").String("").Key("signature").String("");
    } else {
      out.String("tool_use").Key("id").String(openai::NewCallId(format_, "toolu_"));
      out.Key("name").String(name).Key("input").BeginObject().EndObject();
    }
    out.EndObject();
    EndEvent(out);
  }

  void Append(std::string_view text) override {
    json::Writer out = BeginEvent("content_block_delta");
    out.Key("index").Int(index_).Key("delta").BeginObject().Key("type");
    if (kind_ == Part::Kind::kContent) {
      out.String("text_delta").Key("text");
    } else if (kind_ == Part::Kind::kReasoning) {
      out.String("thinking_delta").Key("thinking");
    } else {
      out.String("input_json_delta").Key("partial_json");
    }
    out.String(text).EndObject();
    EndEvent(out);
  }

  void Close(bool /*is_cut*/) override {
    json::Writer out = BeginEvent("content_block_stop");
    out.Key("index").Int(index_++);
    EndEvent(out);
  }

  void Step() override { sender_.Send(); }

  void End(const MessageEnd& end) override {
    json::Writer out = BeginEvent("message_delta");
    out.Key("delta").BeginObject();
    AppendStop(&end, out);
    out.EndObject().Key("usage");
    AppendUsage(end.usage, out);
    if (!end.receipt.empty()) out.Key("receipt").Raw(end.receipt);
    EndEvent(out);
    json::Writer stop = BeginEvent("message_stop");
    EndEvent(stop);
    sender_.Finish();
  }

  void Fail(const Status& status) override {
    const Status own = openai::ByOwnNames(FieldNames(), status);
    if (!sender_.has_started()) return responder_->Send(Error(own));
    http_listener::BeginEvent(sender_.text(), "error");
    AppendError(own, sender_.text());
    http_listener::EndEvent(sender_.text());
    sender_.Finish();
  }

 private:
  json::Writer BeginEvent(std::string_view type) {
    http_listener::BeginEvent(sender_.text(), type);
    json::Writer out(sender_.text());
    out.BeginObject().Key("type").String(type);
    return out;
  }
  void EndEvent(json::Writer& out) {
    out.EndObject();
    http_listener::EndEvent(sender_.text());
  }

  const answer_parts::AnswerFormat format_;
  const std::string model_;
  const std::shared_ptr<HttpResponder> responder_;
  openai::EventSender sender_;
  int index_ = 0;                           // of the block that is open, or of the next
  Part::Kind kind_ = Part::Kind::kContent;  // of the open block
};

}  // namespace

openai::MakeWriter WriteMessage(bool is_stream, std::string model,
                                std::shared_ptr<HttpResponder> responder) {
  return [is_stream, model = std::move(model), responder = std::move(responder)](
             const Started& started) -> std::unique_ptr<openai::MessageWriter> {
    if (is_stream) return std::make_unique<MessageEvents>(started, model, responder);
    return std::make_unique<WholeMessage>(started, model, responder);
  };
}

}  // namespace inflight::anthropic
