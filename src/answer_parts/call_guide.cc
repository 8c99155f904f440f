// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/call_guide.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/status_macros.h"
#include "json/json_reader.h"
#include "json/json_writer.h"

namespace inflight::answer_parts {
namespace {

constexpr std::string_view kAnyObject = R"({"type":"object"})";

std::string_view Behind(std::string_view text, std::string_view trigger) {
  const size_t at = text.find(trigger);
  return at == std::string_view::npos ? text : text.substr(at + trigger.size());
}

bool Has(std::string_view text, std::string_view trigger) {
  return text.find(trigger) != std::string_view::npos;
}

// The schema with a type: arguments are an object, also where it does not say so.
std::string OfObjects(std::string_view schema) {
  constexpr std::array<std::string_view, 1> kType = {"type"};
  const auto parsed = json::Value::Parse(schema);
  if (!parsed.ok() || std::get<0>(parsed->Pick(kType))) return std::string(schema);
  schema = Trimmed(schema);
  const bool is_empty = Trimmed(schema.substr(1, schema.size() - 2)).empty();
  return std::string(R"({"type":"object")") + (is_empty ? "" : ",") + std::string(schema.substr(1));
}

// What ends a call that is written behind a trigger, with free text behind it.
std::string_view EndOfTriggered(const WrittenCalls& written) {
  return written.end_of_call.empty() ? written.behind_arguments : written.end_of_call;
}

// How a call of the function begins.
std::string BeginOf(const WrittenCalls& written, std::string_view name) {
  std::string begin(written.before_name);
  return begin.append(name).append(written.behind_name);
}

// Arguments that may be any and are no JSON have an end of their own only where the answer ends
// with the call: else they are part of the free text up to the next trigger.
void WriteTag(const WrittenCalls& written, const GuidedFunction& function, bool is_triggered,
              bool is_last, json::Writer& writer) {
  const std::string begin = BeginOf(written, function.name);
  std::string_view end = is_triggered ? EndOfTriggered(written) : written.behind_arguments;
  writer.BeginObject();
  writer.Key("begin").String(is_triggered ? Behind(begin, written.trigger) : begin);
  if (!function.schema.empty()) {
    writer.Key("schema").Raw(OfObjects(function.schema));
  } else if (written.arguments == "json" || !is_triggered) {
    writer.Key("schema").Raw(kAnyObject);
  } else if (!is_last) {
    writer.Key("choice").Raw(R"([""])");
    end = {};
  }
  writer.Key("end").String(end);
  if (function.texts != nullptr && !function.texts->empty() && written.arguments == "parameters") {
    writer.Key("texts").BeginArray();
    for (const std::string& name : *function.texts) writer.String(name);
    writer.EndArray();
  }
  writer.EndObject();
}

void WriteTexts(std::string_view key, std::span<const std::string_view> texts,
                json::Writer& writer) {
  writer.Key(key).BeginArray();
  for (const std::string_view text : texts)
    if (!text.empty()) writer.String(text);
  writer.EndArray();
}

// Messages of these kinds may stand before all.
void WritePreambles(const CallFormat& format, bool reasoning_alone, json::Writer& writer) {
  writer.Key("preambles").BeginArray();
  for (const std::string_view begin : format.written.preambles) {
    writer.BeginObject().Key("begin").String(begin);
    writer.Key("end").String(format.written.preamble_end).EndObject();
    if (reasoning_alone) break;
  }
  writer.EndArray();
  WriteTexts("never", format.markers, writer);
}

// What may stand before calls, and in their place, where an answer is messages in channels.
void WriteMessages(const CallFormat& format, bool must_call, json::Writer& writer) {
  const WrittenCalls& written = format.written;
  if (written.preamble_end.empty()) return;
  WritePreambles(format, /*reasoning_alone=*/must_call, writer);
  if (!must_call) writer.Key("otherwise").String(written.otherwise);
}

Status WriteGuide(const GuideSpec& guide, json::Writer& writer) {
  const auto write_json = [&](std::string_view key) -> Status {
    const auto parsed = json::Value::Parse(guide.text);
    if (!parsed.ok()) return InvalidArgument(key, parsed.status().message());
    writer.Key(key).Raw(parsed->text());
    return Status::Ok();
  };
  switch (guide.kind) {
    case GuideSpec::Kind::kJson:
      writer.Key("schema").Raw(kAnyObject);
      return Status::Ok();
    case GuideSpec::Kind::kJsonSchema:
      return write_json("schema");
    case GuideSpec::Kind::kChoice:
      return write_json("choice");
    case GuideSpec::Kind::kRegex:
      writer.Key("regex").String(guide.text);
      return Status::Ok();
    case GuideSpec::Kind::kGrammar:
      writer.Key("grammar").String(guide.text);
      return Status::Ok();
    case GuideSpec::Kind::kTagged:
      break;
  }
  return Internal("a guide of sections within another");
}

// The message that is the last, or all of the text where there are no messages.
Status WriteAnswer(const CallFormat& format, const GuideSpec& guide, json::Writer& writer) {
  writer.BeginObject().Key("begin").String(format.written.otherwise);
  RETURN_IF_ERROR(WriteGuide(guide, writer));
  writer.Key("end").String("").EndObject();
  return Status::Ok();
}

}  // namespace

std::vector<std::string> BeginsOfCalls(const CallFormat& format, const FunctionNames& names) {
  std::vector<std::string> begins;
  for (const auto& [name, texts] : names)
    begins.push_back(std::string(format.written.before) + BeginOf(format.written, name));
  return begins;
}

Result<std::string> CallGuideText(const CallFormat& format,
                                  std::span<const GuidedFunction> functions,
                                  const CallGuideOptions& options) {
  const WrittenCalls& written = format.written;
  const bool has_trigger = !options.must_call && !written.trigger.empty();
  // Else each call has it.
  const bool is_of_all = has_trigger && Has(written.before, written.trigger);
  const bool is_of_each = has_trigger && !is_of_all;
  const size_t max_calls = written.is_single || is_of_each ? 1 : options.max_calls;
  std::string text;
  json::Writer writer(text);
  writer.BeginObject().Key("tags").BeginArray();
  for (const GuidedFunction& function : functions)
    WriteTag(written, function, is_of_each, /*is_last=*/options.max_calls == 1, writer);
  writer.EndArray();
  const auto add = [&](std::string_view key, std::string_view value) {
    if (!value.empty()) writer.Key(key).String(value);
  };
  if (written.arguments != "json") add("arguments", written.arguments);
  if (!is_of_each) {
    add("before", is_of_all ? Behind(written.before, written.trigger) : written.before);
    add("between", written.between);
    add("after", written.after);
  }
  writer.Key("min").Int(1).Key("max").Int(static_cast<int64_t>(max_calls));
  if (has_trigger) {
    add("trigger", written.trigger);
    if (options.max_calls == 1) writer.Key("once").Bool(true);
    if (!written.other_trigger.empty())
      WriteTexts("never", std::array{written.other_trigger}, writer);
  }
  if (!options.must_call && !written.instead.empty()) {
    add("instead", written.instead);
    WriteTexts("never", format.markers, writer);
  }
  WriteMessages(format, options.must_call, writer);
  if (options.answer != nullptr) {
    writer.Key("answer");
    RETURN_IF_ERROR(WriteAnswer(format, *options.answer, writer));
  }
  writer.EndObject();
  return text;
}

Result<std::string> LastMessageGuideText(const CallFormat& format, const GuideSpec& guide,
                                         bool reasons) {
  std::string text;
  json::Writer writer(text);
  writer.BeginObject().Key("tags").BeginArray();
  RETURN_IF_ERROR(WriteAnswer(format, guide, writer));
  writer.EndArray().Key("max").Int(1);
  if (reasons) WritePreambles(format, /*reasoning_alone=*/true, writer);
  writer.EndObject();
  return text;
}

}  // namespace inflight::answer_parts
