// SPDX-License-Identifier: Apache-2.0
#include "protocol/otlp/span_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "json/json_writer.h"
#include "json/valid_text.h"

namespace inflight::otlp {
namespace {

using serving::FinishedTrace;
using serving::TraceEvent;
using serving::TraceRecord;
using Events = std::vector<TraceEvent>;

// Fields of the W3C header traceparent: 00-<trace id>-<parent id>-<flags>.
struct Parent {
  std::string trace_id;
  std::string span_id;
};

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         text.find_first_not_of('0') != std::string_view::npos;
}

Parent ParentOf(const std::string& header) {
  const std::string_view text = header;
  constexpr size_t kLength = 55;
  if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
  const Parent parent{.trace_id = std::string(text.substr(3, 32)),
                      .span_id = std::string(text.substr(36, 16))};
  return IsHex(parent.trace_id) && IsHex(parent.span_id) ? parent : Parent();
}

bool IsFrontEnd(const TraceEvent& event) {
  return event.name.starts_with("HTTP_") || event.name.starts_with("GRPC_");
}
bool IsCompute(const TraceEvent& event) { return event.name.starts_with("COMPUTE_"); }
bool IsResponse(const TraceEvent& event) { return event.name == "INFER_RESPONSE_COMPLETE"; }

template <typename Wanted>
Events Select(const Events& events, Wanted wanted) {
  Events selected;
  std::copy_if(events.begin(), events.end(), std::back_inserter(selected), wanted);
  std::stable_sort(selected.begin(), selected.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.ns < b.ns; });
  return selected;
}

// What clients, flags and files say goes out as ValidText: a collector drops a whole batch for one
// byte that is no UTF-8.
class Writer {
 public:
  Writer(const FinishedTrace& trace, const SpanOptions& options)
      : options_(options), context_(trace.context), remote_(ParentOf(trace.context.traceparent)) {
    trace_id_ = remote_.trace_id;
    while (trace_id_.size() < 32) trace_id_ += NewId();
  }

  // Returns the span's id; "" where there are no events, and nothing was written.
  std::string Add(const std::string& name, const std::string& parent, const Events& events,
                  const std::function<void(json::Writer&)>& attributes = nullptr) {
    if (events.empty()) return {};
    std::string id = NewId();
    json::Writer out(spans_.emplace_back());
    out.BeginObject();
    out.Key("traceId").String(trace_id_);
    out.Key("spanId").String(id);
    if (!context_.tracestate.empty()) {
      out.Key("traceState").String(json::ValidText(context_.tracestate));
    }
    if (!parent.empty()) out.Key("parentSpanId").String(parent);
    out.Key("name").String(json::ValidText(name));
    out.Key("kind").Int(2);  // server
    out.Key("startTimeUnixNano").String(Time(events.front().ns));
    out.Key("endTimeUnixNano").String(Time(events.back().ns));
    out.Key("attributes").BeginArray();
    if (attributes) attributes(out);
    out.EndArray();
    out.Key("events").BeginArray();
    for (const TraceEvent& event : events) {
      out.BeginObject();
      out.Key("timeUnixNano").String(Time(event.ns));
      out.Key("name").String(event.name);
      out.EndObject();
    }
    out.EndArray();
    out.EndObject();
    return id;
  }

  const std::string& remote_span() const { return remote_.span_id; }
  std::vector<std::string> Take() { return std::move(spans_); }

 private:
  std::string NewId() const {
    const uint64_t id = options_.random();
    return fmt::format("{:016x}", id == 0 ? 1 : id);
  }
  std::string Time(int64_t ns) const { return std::to_string(ns + options_.wall_clock_offset_ns); }

  const SpanOptions& options_;
  const serving::TraceContext& context_;
  const Parent remote_;
  std::string trace_id_;
  std::vector<std::string> spans_;
};

void AddText(json::Writer& out, std::string_view key, std::string_view value) {
  out.BeginObject();
  out.Key("key").String(json::ValidText(key));
  out.Key("value").BeginObject().Key("stringValue").String(json::ValidText(value));
  out.EndObject();
  out.EndObject();
}

// 64-bit integers are texts in the JSON of protobuf.
void AddNumber(json::Writer& out, std::string_view key, const std::string& value) {
  out.BeginObject();
  out.Key("key").String(key);
  out.Key("value").BeginObject().Key("intValue").String(value);
  out.EndObject();
  out.EndObject();
}

// By OpenTelemetry's "Semantic Conventions for Generative AI", "Spans". As in OpenAI's API, a text
// that ends by itself or by a stop word has one reason.
void AddGeneration(const TraceRecord& record, json::Writer& out) {
  AddText(out, "gen_ai.operation.name", record.is_chat ? "chat" : "text_completion");
  AddText(out, "gen_ai.provider.name", "inflight");
  AddText(out, "gen_ai.request.model", record.model_name);
  AddText(out, "gen_ai.response.model", record.model_name);
  if (!record.request_id.empty()) AddText(out, "gen_ai.response.id", record.request_id);
  AddNumber(out, "gen_ai.usage.input_tokens", std::to_string(record.generation->num_input_tokens));
  AddNumber(out, "gen_ai.usage.output_tokens",
            std::to_string(record.generation->num_output_tokens));
  const bool is_cut = record.generation->finish_reason == "length";
  out.BeginObject();
  out.Key("key").String("gen_ai.response.finish_reasons");
  out.Key("value").BeginObject().Key("arrayValue").BeginObject().Key("values").BeginArray();
  out.BeginObject();
  out.Key("stringValue").String(is_cut ? "length" : "stop");
  out.EndObject();
  out.EndArray().EndObject().EndObject().EndObject();
}

void AddAttributes(const TraceRecord& record, json::Writer& out) {
  AddText(out, "triton.model_name", record.model_name);
  AddNumber(out, "triton.model_version",
            record.model_version.empty() ? "-1" : record.model_version);
  AddNumber(out, "triton.trace_id", std::to_string(record.id));
  AddNumber(out, "triton.trace_parent_id", std::to_string(record.parent_id));
  if (!record.request_id.empty()) AddText(out, "triton.request_id", record.request_id);
  if (record.generation) AddGeneration(record, out);
}

}  // namespace

std::vector<std::string> Spans(const FinishedTrace& trace, const SpanOptions& options) {
  Writer writer(trace, options);
  std::map<uint64_t, std::string> span_of;  // by record
  const TraceRecord& top = trace.records.front();
  const std::string root = writer.Add(
      "InferRequest", writer.remote_span(),
      Select(top.events, [](const TraceEvent& e) { return IsFrontEnd(e) || IsResponse(e); }));
  for (const TraceRecord& record : trace.records) {
    if (record.model_name.empty()) continue;
    const auto parent = span_of.find(record.parent_id);
    const Events events = Select(record.events, [](const TraceEvent& e) {
      return !IsFrontEnd(e) && !IsCompute(e) && !IsResponse(e);
    });
    const std::string span =
        writer.Add(record.model_name, parent == span_of.end() ? root : parent->second, events,
                   [&record](json::Writer& out) { AddAttributes(record, out); });
    span_of[record.id] = span;
    writer.Add("compute", span, Select(record.events, IsCompute));
  }
  return writer.Take();
}

std::string ExportBody(const std::vector<std::pair<std::string, std::string>>& resource,
                       const std::vector<std::string>& spans) {
  std::map<std::string, std::string> attributes;  // later ones win
  for (const auto& [key, value] : resource) attributes[key] = value;
  std::string body = R"({"resourceSpans":[{"resource":{"attributes":[)";
  bool is_first = true;
  for (const auto& [key, value] : attributes) {
    if (!std::exchange(is_first, false)) body += ',';
    json::Writer out(body);
    AddText(out, key, value);
  }
  body += R"(]},"scopeSpans":[{"scope":{"name":"inflight"},"spans":[)";
  for (size_t i = 0; i < spans.size(); ++i) body.append(i == 0 ? "" : ",").append(spans[i]);
  return body + "]}]}]}";
}

}  // namespace inflight::otlp
