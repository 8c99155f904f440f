// SPDX-License-Identifier: Apache-2.0
#include "conversation/conversation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>
#include <vector>

#include "answer_parts/part.h"
#include "base/status_macros.h"
#include "json/json_writer.h"
#include "json/valid_text.h"

namespace inflight::conversation {
namespace {

using json::Value;
using Kind = Value::Kind;

constexpr int kMaxDepth = 32;
constexpr size_t kQuotedBytes = 64;  // of a client's text in an error; gRPC has UTF-8 alone
// Variables that the request has members for.
constexpr std::array<std::string_view, 5> kOwnVariables = {
    "messages", "tools", "documents", "add_generation_prompt", "continue_final_message"};

// The marks are U+FDD0 to U+FDEF, which are no characters and stand in no text that is exchanged.
constexpr int kNumMarks = 32;
constexpr uint32_t kFirstMark = 0xFDD0;
constexpr std::string_view kMarkBegin = "\xEF\xB7";  // 0x90 and more follow
constexpr std::string_view kHex = "0123456789abcdef";

std::string MarkAt(int index) { return std::string(kMarkBegin) + static_cast<char>(0x90 + index); }

// As JSON may write it, and as Python does what it does not print: \ufdd0.
std::string EscapedMarkAt(int index) {
  std::string escaped = index < 16 ? "\\ufdd" : "\\ufde";
  escaped += kHex[static_cast<size_t>(index) % 16];
  return escaped;
}

// Of a mark that stands at the beginning of `text`, in either form; -1: none does.
int IndexOfMark(std::string_view text) {
  if (text.starts_with(kMarkBegin) && text.size() > kMarkBegin.size()) {
    const int index = static_cast<unsigned char>(text[kMarkBegin.size()]) - 0x90;
    return index >= 0 && index < kNumMarks ? index : -1;
  }
  constexpr std::string_view kEscape = "\\u";
  constexpr size_t kEscapedBytes = 6;
  if (!text.starts_with(kEscape) || text.size() < kEscapedBytes) return -1;
  uint32_t code = 0;
  const char* const end = text.data() + kEscapedBytes;
  const auto [rest, error] = std::from_chars(text.data() + kEscape.size(), end, code, 16);
  if (error != std::errc{} || rest != end || code < kFirstMark) return -1;
  const auto index = static_cast<int>(code - kFirstMark);
  return index < kNumMarks ? index : -1;
}

// The marks that `text` has in either form: a bit of each.
uint32_t MarksIn(std::string_view text) {
  uint32_t marks = 0;
  for (const std::string_view begin : {kMarkBegin, std::string_view("\\u")}) {
    for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
      const int index = IndexOfMark(text.substr(at));
      if (index >= 0) marks |= uint32_t{1} << index;
    }
  }
  return marks;
}

// What templates differ in.
struct MessageForm {
  bool arguments_are_texts = false;
  bool has_thinking = false;  // as of conversation::Read
};

class Reader {
 public:
  Reader(const Tokenizer& tokenizer, std::string mark, MessageForm form, std::string& out)
      : tokenizer_(tokenizer), mark_(std::move(mark)), form_(form), writer_(out) {}

  bool has_calls() const { return has_calls_; }
  uint32_t marks() const { return marks_; }  // MarksIn all texts, as they are read
  std::string TakeLastText() { return std::move(last_text_); }  // marked

  Status Read(const Said& said, const TemplateVariables& variables) {
    continues_ = said.continues;
    writer_.BeginObject().Key("messages").BeginArray();
    size_t index = 0;
    RETURN_IF_ERROR(said.messages.ForEachElement([&](const Value& message) {
      return ReadMessage(message, "messages[" + std::to_string(index++) + "]");
    }));
    if (index == 0) return InvalidArgument("messages", "is empty; at least one is needed");
    writer_.EndArray();
    writer_.Key("tools");
    if (said.tools) {
      RETURN_IF_ERROR(WriteTools(*said.tools));
    } else {
      writer_.Null();
    }
    writer_.Key("documents").Null();
    writer_.Key("add_generation_prompt").Bool(said.add_generation_prompt && !said.continues);
    if (said.continues && (last_text_.empty() || last_role_ != "assistant"))
      return InvalidArgument("messages",
                             "must end with a text of the assistant, which is to be continued");
    if (said.chat_template_kwargs) RETURN_IF_ERROR(CopyVariables(*said.chat_template_kwargs));
    for (const auto& [name, value] : variables) writer_.Key(name).Raw(value);
    writer_.EndObject();
    return Status::Ok();
  }

 private:
  Status CopyVariables(const Value& variables) {
    return variables.ForEachMember([&](std::string_view name, const Value& value) -> Status {
      for (const std::string_view own : kOwnVariables) {
        if (name == own)
          return InvalidArgument("chat_template_kwargs." + std::string(name),
                                 "is made of other members of the request; leave it out");
      }
      writer_.Key(name);
      return Copy(value, kMaxDepth, "chat_template_kwargs");
    });
  }

  Status Copy(const Value& value, int depth, std::string_view where) {
    if (depth == 0)
      return InvalidArgument(where, "is nested deeper than " + std::to_string(kMaxDepth));
    switch (value.kind()) {
      case Kind::kString: {
        ASSIGN_OR_RETURN(const std::string text, value.AsString());
        Write(text);
        return Status::Ok();
      }
      case Kind::kArray:
        writer_.BeginArray();
        RETURN_IF_ERROR(value.ForEachElement(
            [&](const Value& element) { return Copy(element, depth - 1, where); }));
        writer_.EndArray();
        return Status::Ok();
      case Kind::kObject:
        writer_.BeginObject();
        RETURN_IF_ERROR(value.ForEachMember([&](std::string_view name, const Value& member) {
          WriteKey(name);
          return Copy(member, depth - 1, where);
        }));
        writer_.EndObject();
        return Status::Ok();
      case Kind::kNumber: {
        const std::string_view text = value.text();
        if (text.find_first_not_of("+-.0123456789eE") != std::string::npos)
          return InvalidArgument(where, "has a number that is none");
        writer_.Raw(text);
        return Status::Ok();
      }
      case Kind::kBool:
      case Kind::kNull:
        writer_.Raw(value.text());
        return Status::Ok();
    }
    return Status::Ok();
  }

  Status ReadMessage(const Value& message, const std::string& name) {
    if (message.kind() != Kind::kObject) return InvalidArgument(name, "must be an object");
    std::optional<std::string> role, content, reasoning;
    bool is_null = false;
    bool calls = false;
    writer_.BeginObject();
    RETURN_IF_ERROR(message.ForEachMember([&](std::string_view key, const Value& value) -> Status {
      const std::string member = name + "." + json::ValidText(key.substr(0, kQuotedBytes));
      if (key == "content" && value.kind() == Kind::kNull) is_null = true;
      if (value.kind() == Kind::kNull) return Status::Ok();
      if (key == "role") return ReadInto(value, member, role);
      if (key == "content") return ReadContent(value, member, content);
      if (key == "name") return CopyText("name", value, member);
      if (key == "reasoning_content") return ReadInto(value, member, reasoning);
      if (key == "tool_call_id") return CopyText("tool_call_id", value, member);
      if (key == "tool_calls" && value.text() != "[]") {
        if (std::exchange(calls, true)) return InvalidArgument(member, "is given twice");
        return ReadCalls(value, member);
      }
      if (key == "refusal" || key == "audio" || key == "tool_calls" || key == "function_call") {
        const bool is_empty = value.text() == "[]" || value.text() == "\"\"";
        if (is_empty) return Status::Ok();
        return Unimplemented(member, "is not supported; leave it out");
      }
      return InvalidArgument(member,
                             "is not a member of a message; those are role, content, name, "
                             "reasoning_content, tool_calls and tool_call_id");
    }));
    if (!role) return InvalidArgument(name + ".role", "is missing");
    if (role->empty()) return InvalidArgument(name + ".role", "is empty");
    if (*role == "function")
      return Unimplemented(name + ".role", "got 'function', the older name of 'tool'");
    if (calls && *role != "assistant")
      return InvalidArgument(name + ".tool_calls", "are of the role assistant");
    if (!content && !calls)
      return InvalidArgument(name + ".content",
                             is_null ? "got null, must be a text" : "is missing");
    writer_.Key("role");
    Write(*role == "developer" ? std::string_view("system") : std::string_view(*role));
    if (continues_) {
      last_role_ = *role;
      last_text_ = content && !calls ? Marked(*content) : std::string();
    }
    WriteTexts(std::move(content), std::move(reasoning), calls);
    writer_.EndObject();
    return Status::Ok();
  }

  void WriteTexts(std::optional<std::string> content, std::optional<std::string> reasoning,
                  bool has_calls) {
    if (has_calls && content && content->empty()) content.reset();
    if (form_.has_thinking && has_calls && content && reasoning)
      reasoning->append("\n\n").append(*std::exchange(content, {}));
    if (reasoning) {
      writer_.Key(form_.has_thinking ? "thinking" : "reasoning_content");
      Write(*reasoning);
    }
    if (content) {
      writer_.Key("content");
      Write(*content);
    } else if (!form_.has_thinking) {
      writer_.Key("content").Null();  // as templates that look for it expect
    }
  }

  Status ReadCalls(const Value& value, const std::string& member) {
    if (value.kind() != Kind::kArray) return InvalidArgument(member, "must be an array");
    has_calls_ = true;
    writer_.Key("tool_calls").BeginArray();
    size_t index = 0;
    RETURN_IF_ERROR(value.ForEachElement([&](const Value& call) {
      return ReadCall(call, member + "[" + std::to_string(index++) + "]");
    }));
    writer_.EndArray();
    return Status::Ok();
  }

  Status ReadCall(const Value& call, const std::string& where) {
    constexpr std::array<std::string_view, 3> kNames = {"id", "type", "function"};
    if (call.kind() != Kind::kObject) return InvalidArgument(where, "must be an object");
    const auto [id, type, function] = call.Pick(kNames);
    if (type && type->text() != "\"function\"")
      return Unimplemented(where + ".type", "calls are of functions alone");
    if (!function || function->kind() != Kind::kObject)
      return InvalidArgument(where + ".function", "must be an object");
    writer_.BeginObject();
    if (id) RETURN_IF_ERROR(CopyText("id", *id, where + ".id"));
    writer_.Key("type").String("function").Key("function").BeginObject();
    constexpr std::array<std::string_view, 2> kMembers = {"name", "arguments"};
    const auto [name, arguments] = function->Pick(kMembers);
    if (!name) return InvalidArgument(where + ".function.name", "is missing");
    RETURN_IF_ERROR(CopyText("name", *name, where + ".function.name"));
    RETURN_IF_ERROR(WriteArguments(arguments, where + ".function.arguments"));
    writer_.EndObject().EndObject();
    return Status::Ok();
  }

  // Templates take an object, as transformers gives them, or its text.
  Status WriteArguments(const std::optional<Value>& arguments, const std::string& where) {
    writer_.Key("arguments");
    std::string text = "{}";
    if (arguments && arguments->kind() == Kind::kString) {
      ASSIGN_OR_RETURN(text, arguments->AsString());
      if (text.empty()) text = "{}";
    } else if (arguments) {
      text = arguments->text();
    }
    const auto object = Value::Parse(text);
    if (!object.ok() || object->kind() != Kind::kObject)
      return InvalidArgument(where, "must be the text of a JSON object");
    if (!form_.arguments_are_texts) return Copy(*object, kMaxDepth, where);
    Write(text);
    return Status::Ok();
  }

  // What models are told of them.
  Status WriteTools(const Value& tools) {
    writer_.BeginArray();
    RETURN_IF_ERROR(tools.ForEachElement([&](const Value& tool) -> Status {
      constexpr std::array<std::string_view, 1> kNames = {"function"};
      const auto [function] = tool.Pick(kNames);
      if (!function) return InvalidArgument("tools", "must have functions");
      writer_.BeginObject().Key("type").String("function").Key("function").BeginObject();
      RETURN_IF_ERROR(
          function->ForEachMember([&](std::string_view key, const Value& value) -> Status {
            if (key == "strict" || value.kind() == Kind::kNull) return Status::Ok();
            WriteKey(key);
            return Copy(value, kMaxDepth, "tools");
          }));
      writer_.EndObject().EndObject();
      return Status::Ok();
    }));
    writer_.EndArray();
    return Status::Ok();
  }

  static Status ReadInto(const Value& value, const std::string& member,
                         std::optional<std::string>& text) {
    if (text) return InvalidArgument(member, "is given twice");
    if (value.kind() != Kind::kString) return InvalidArgument(member, "must be a string");
    ASSIGN_OR_RETURN(text, value.AsString());
    return Status::Ok();
  }

  Status CopyText(std::string_view key, const Value& value, const std::string& member) {
    std::optional<std::string> text;
    RETURN_IF_ERROR(ReadInto(value, member, text));
    writer_.Key(key);
    Write(*text);
    return Status::Ok();
  }

  static Status ReadContent(const Value& value, const std::string& member,
                            std::optional<std::string>& content) {
    if (content) return InvalidArgument(member, "is given twice");
    ASSIGN_OR_RETURN(content, TextOrLines(member, value, "parts", LineOf));
    return Status::Ok();
  }

  static Result<std::string> LineOf(const std::string& where, const Value& part) {
    constexpr std::array<std::string_view, 2> kNames = {"type", "text"};
    const auto [type, text] = part.Pick(kNames);
    if (part.kind() != Kind::kObject || !type || type->kind() != Kind::kString)
      return InvalidArgument(where, "must be an object with a type, such as text");
    ASSIGN_OR_RETURN(const std::string kind, type->AsString());
    if (kind != "text" && kind != "input_text")
      return Unimplemented(where,
                           "got a part of type '" +
                               json::ValidText(std::string_view(kind).substr(0, kQuotedBytes)) +
                               "': this model takes text alone");
    if (!text || text->kind() != Kind::kString)
      return InvalidArgument(where + ".text", "must be a string");
    return text->AsString();
  }

  void WriteKey(std::string_view name) { writer_.Key(Marked(name)); }
  void Write(std::string_view text) { writer_.String(Marked(text)); }

  // With the mark before each special token in it.
  std::string Marked(std::string_view text) {
    marks_ |= MarksIn(text);
    const std::vector<size_t> places = tokenizer_.FindSpecialTokens(text);
    if (places.empty()) return std::string(text);
    std::string marked;
    size_t begin = 0;
    for (const size_t place : places) {
      marked.append(text.substr(begin, place - begin)).append(mark_);
      begin = place;
    }
    return marked.append(text.substr(begin));
  }

  const Tokenizer& tokenizer_;
  const std::string mark_;
  const MessageForm form_;
  uint32_t marks_ = 0;
  bool has_calls_ = false;
  bool continues_ = false;
  std::string last_role_, last_text_;  // of one that continues: of the messages so far
  json::Writer writer_;
};

}  // namespace

Result<Conversation> Read(const Said& said, const TemplateVariables& variables,
                          std::string_view body, const Tokenizer& tokenizer,
                          const ChatTemplate& chat_template) {
  MessageForm form;
  form.has_thinking = chat_template.source().find("message.thinking") != std::string::npos;
  MessageForm with_texts = form;
  with_texts.arguments_are_texts = true;
  // Those of a text that the body spells otherwise, such as \u005cufdd0, are known once it is read.
  uint32_t used = MarksIn(body);
  while (true) {
    const int mark = std::countr_one(used);
    if (mark == kNumMarks)
      return InvalidArgument("messages", "have all of U+FDD0 to U+FDEF, which are no characters");
    Conversation conversation;
    conversation.mark = MarkAt(mark);
    Reader reader(tokenizer, conversation.mark, form, conversation.variables);
    RETURN_IF_ERROR(reader.Read(said, variables));
    used |= reader.marks();
    if (reader.has_calls()) {
      Reader again(tokenizer, conversation.mark, with_texts, conversation.with_texts);
      RETURN_IF_ERROR(again.Read(said, variables));
      used |= again.marks();
    }
    if (((used >> mark) & 1U) != 0) continue;  // with another, which none of all these texts has
    if (said.continues) conversation.continued = reader.TakeLastText();
    if (json::ValidText(conversation.variables) != conversation.variables)
      return InvalidArgument("messages", "have half of a surrogate pair, which is no character");
    return conversation;
  }
}

namespace {

// Where `part`, which is not empty, stands in `text` for the last time, as rfind: but in a time
// that grows with their bytes alone, whatever clients repeat in them (Knuth, Morris and Pratt 1977,
// from the end).
size_t LastOf(std::string_view text, std::string_view part) {
  const auto from_end = [part](size_t i) { return part[part.size() - 1 - i]; };
  std::vector<uint32_t> borders(part.size());
  for (size_t i = 1, length = 0; i < part.size(); ++i) {
    while (length > 0 && from_end(i) != from_end(length)) length = borders[length - 1];
    if (from_end(i) == from_end(length)) ++length;
    borders[i] = static_cast<uint32_t>(length);
  }
  size_t length = 0;  // of the end of `part` that begins at text[i]
  for (size_t i = text.size(); i-- > 0;) {
    while (length > 0 && text[i] != from_end(length)) length = borders[length - 1];
    if (text[i] == from_end(length)) ++length;
    if (length == part.size()) return i;
  }
  return std::string::npos;
}

// The text up to the end of what is continued, as transformers' continue_final_message has it: a
// template may have taken the blanks around it away.
Status CutBehind(const std::string& continued, std::string& rendered) {
  const std::string_view trimmed = answer_parts::Trimmed(continued);
  const size_t begin = trimmed.empty() ? std::string::npos : LastOf(rendered, trimmed);
  if (begin == std::string::npos)
    return Status(StatusCode::kFailedPrecondition,
                  "messages: the model's chat template does not show the text that is to be "
                  "continued as it is")
        .WithField("messages");
  const std::string_view whole =
      std::string_view(continued).substr(static_cast<size_t>(trimmed.data() - continued.data()));
  const bool is_whole = std::string_view(rendered).substr(begin).starts_with(whole);
  rendered.resize(begin + (is_whole ? whole : trimmed).size());
  return Status::Ok();
}

}  // namespace

Result<Prompt> Render(const ChatTemplate& chat_template, const Conversation& conversation) {
  auto rendered = chat_template.RenderJson(conversation.variables);
  if (!rendered.ok() && !conversation.with_texts.empty()) {
    if (auto again = chat_template.RenderJson(conversation.with_texts); again.ok())
      rendered = std::move(again);
  }
  if (!rendered.ok())
    return Status(StatusCode::kFailedPrecondition,
                  "messages: the model's chat template refuses "
                  "them: " +
                      rendered.status().message())
        .WithField("messages");
  if (!conversation.continued.empty())
    RETURN_IF_ERROR(CutBehind(conversation.continued, *rendered));
  Prompt prompt;
  // Where a template shows an object as Python would, marks in it are escaped.
  const std::string& mark = conversation.mark;
  const std::string escaped = EscapedMarkAt(IndexOfMark(mark));
  size_t begin = 0;
  size_t plain = rendered->find(mark);
  size_t as_escaped = rendered->find(escaped);
  while (plain != std::string::npos || as_escaped != std::string::npos) {
    const size_t at = std::min(plain, as_escaped);
    prompt.text.append(*rendered, begin, at - begin);
    prompt.plain_at.push_back(prompt.text.size());
    begin = at + (at == plain ? mark : escaped).size();
    if (at == plain) {
      plain = rendered->find(mark, begin);
    } else {
      as_escaped = rendered->find(escaped, begin);
    }
  }
  if (begin == 0) {
    prompt.text = *std::move(rendered);
  } else {
    prompt.text.append(*rendered, begin);
  }
  return prompt;
}

bool KnowsWord(std::string_view source, std::string_view name) {
  const auto is_of_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (size_t at = source.find(name); at != std::string::npos; at = source.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_of_name(source[at - 1])) &&
        (end == source.size() || !is_of_name(source[end])))
      return true;
  }
  return false;
}

Status NoTemplate(const Status& why, std::string_view otherwise) {
  const bool has_none = why.code() == StatusCode::kNotFound;
  return InvalidArgument(
      "messages", std::string(has_none ? "this model has no chat template"
                                       : "this model's chat template cannot be used, and the "
                                         "server's log says why") +
                      "; use " + std::string(otherwise) +
                      ", or start the server with --chat-template FILE");
}

Result<std::string> TextOrLines(
    const std::string& where, const Value& value, std::string_view parts,
    const std::function<Result<std::string>(const std::string& where, const Value& part)>&
        line_of) {
  if (value.kind() == Kind::kString) return value.AsString();
  if (value.kind() != Kind::kArray)
    return InvalidArgument(where, "must be a string or an array of " + std::string(parts));
  std::string text;
  size_t index = 0;
  RETURN_IF_ERROR(value.ForEachElement([&](const Value& part) -> Status {
    ASSIGN_OR_RETURN(const std::string line,
                     line_of(where + "[" + std::to_string(index) + "]", part));
    if (index++ > 0) text += '\n';
    text += line;
    return Status::Ok();
  }));
  return text;
}

}  // namespace inflight::conversation
