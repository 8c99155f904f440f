// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/conversation.h"

#include <array>
#include <utility>

#include "base/status_macros.h"
#include "json/json_writer.h"
#include "json/valid_text.h"

namespace inflight::openai {
namespace {

using json::Value;
using Kind = Value::Kind;

constexpr int kMaxDepth = 32;
// Variables that the request has members for.
constexpr std::array<std::string_view, 5> kOwnVariables = {
    "messages", "tools", "documents", "add_generation_prompt", "continue_final_message"};

// U+FDD0 to U+FDEF, which are no characters and stand in no text that is exchanged. As JSON may
// write them escaped, those are looked for, too.
Result<std::string> UnusedMark(std::string_view body) {
  for (int i = 0; i < 32; ++i) {
    const std::string mark = {'\xEF', '\xB7', static_cast<char>(0x90 + i)};
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string escaped = "\\ufdd0";
    escaped[4] = i < 16 ? 'd' : 'e';
    escaped[5] = kHex[static_cast<size_t>(i) % 16];
    const auto has_escaped = [&] {
      for (size_t at = body.find('\\'); at != body.npos; at = body.find('\\', at + 1)) {
        std::string part(body.substr(at, escaped.size()));
        for (char& c : part)
          if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
        if (part == escaped) return true;
      }
      return false;
    };
    if (body.find(mark) == body.npos && !has_escaped()) return mark;
  }
  return InvalidArgument("messages", "have all of U+FDD0 to U+FDEF, which are no characters");
}

class Reader {
 public:
  Reader(const Tokenizer& tokenizer, std::string mark, std::string& out)
      : tokenizer_(tokenizer), mark_(std::move(mark)), writer_(out) {}

  Status Read(const Asked& asked) {
    writer_.BeginObject().Key("messages").BeginArray();
    size_t index = 0;
    RETURN_IF_ERROR(asked.messages->ForEachElement([&](const Value& message) {
      return ReadMessage(message, "messages[" + std::to_string(index++) + "]");
    }));
    if (index == 0) return InvalidArgument("messages", "is empty; at least one is needed");
    writer_.EndArray();
    writer_.Key("tools").Null().Key("documents").Null();
    writer_.Key("add_generation_prompt").Bool(asked.add_generation_prompt);
    if (asked.chat_template_kwargs) RETURN_IF_ERROR(CopyVariables(*asked.chat_template_kwargs));
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
          writer_.Key(name);
          return Copy(member, depth - 1, where);
        }));
        writer_.EndObject();
        return Status::Ok();
      case Kind::kNumber: {
        const std::string_view text = value.text();
        if (text.find_first_not_of("+-.0123456789eE") != text.npos)
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
    std::optional<std::string> role, content;
    bool is_null = false;
    writer_.BeginObject();
    RETURN_IF_ERROR(message.ForEachMember([&](std::string_view key, const Value& value) -> Status {
      const std::string member = name + "." + std::string(key.substr(0, 64));
      if (key == "content" && value.kind() == Kind::kNull) is_null = true;
      if (value.kind() == Kind::kNull) return Status::Ok();
      if (key == "role") return ReadInto(value, member, role);
      if (key == "content") return ReadContent(value, member, content);
      if (key == "name") return CopyText("name", value, member);
      if (key == "reasoning_content") return CopyText("reasoning_content", value, member);
      if (key == "refusal" || key == "audio" || key == "tool_calls" || key == "tool_call_id" ||
          key == "function_call") {
        const bool is_empty = value.text() == "[]" || value.text() == "\"\"";
        if (is_empty) return Status::Ok();
        return Unimplemented(member, "is not supported; leave it out");
      }
      return InvalidArgument(member,
                             "is not a member of a message; those are role, content, name "
                             "and reasoning_content");
    }));
    if (!role) return InvalidArgument(name + ".role", "is missing");
    if (role->empty()) return InvalidArgument(name + ".role", "is empty");
    if (*role == "tool" || *role == "function")
      return Unimplemented(name + ".role", "got '" + *role + "': this server calls no tools");
    if (!content)
      return InvalidArgument(name + ".content",
                             is_null ? "got null, must be a text" : "is missing");
    writer_.Key("role");
    Write(*role == "developer" ? std::string_view("system") : std::string_view(*role));
    writer_.Key("content");
    Write(*content);
    writer_.EndObject();
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

  // A text, or parts that are texts: the lines of one.
  static Status ReadContent(const Value& value, const std::string& member,
                            std::optional<std::string>& content) {
    if (value.kind() == Kind::kString) return ReadInto(value, member, content);
    if (content) return InvalidArgument(member, "is given twice");
    if (value.kind() != Kind::kArray)
      return InvalidArgument(member, "must be a string or an array of parts");
    content.emplace();
    size_t index = 0;
    return value.ForEachElement([&](const Value& part) -> Status {
      const std::string name = member + "[" + std::to_string(index) + "]";
      constexpr std::array<std::string_view, 2> kNames = {"type", "text"};
      const auto [type, text] = part.Pick(kNames);
      if (part.kind() != Kind::kObject || !type || type->kind() != Kind::kString)
        return InvalidArgument(name, "must be an object with a type, such as text");
      ASSIGN_OR_RETURN(const std::string kind, type->AsString());
      if (kind != "text" && kind != "input_text")
        return Unimplemented(
            name, "got a part of type '" + kind.substr(0, 64) + "': this model takes text alone");
      if (!text || text->kind() != Kind::kString)
        return InvalidArgument(name + ".text", "must be a string");
      ASSIGN_OR_RETURN(const std::string line, text->AsString());
      if (index++ > 0) *content += '\n';
      *content += line;
      return Status::Ok();
    });
  }

  // With the mark before each special token in it.
  void Write(std::string_view text) {
    const std::vector<size_t> places = tokenizer_.FindSpecialTokens(text);
    if (places.empty()) {
      writer_.String(text);
      return;
    }
    std::string marked;
    size_t begin = 0;
    for (const size_t place : places) {
      marked.append(text.substr(begin, place - begin)).append(mark_);
      begin = place;
    }
    writer_.String(marked.append(text.substr(begin)));
  }

  const Tokenizer& tokenizer_;
  const std::string mark_;
  json::Writer writer_;
};

}  // namespace

Result<Conversation> ReadConversation(const Asked& asked, std::string_view body,
                                      const Tokenizer& tokenizer) {
  Conversation conversation;
  ASSIGN_OR_RETURN(conversation.mark, UnusedMark(body));
  Reader reader(tokenizer, conversation.mark, conversation.variables);
  RETURN_IF_ERROR(reader.Read(asked));
  if (json::ValidText(conversation.variables) != conversation.variables)
    return InvalidArgument("messages", "have half of a surrogate pair, which is no character");
  return conversation;
}

Result<serving::PromptText> Render(const ChatTemplate& chat_template,
                                   const Conversation& conversation) {
  auto rendered = chat_template.RenderJson(conversation.variables);
  if (!rendered.ok())
    return Status(StatusCode::kFailedPrecondition,
                  "messages: the model's chat template refuses "
                  "them: " +
                      rendered.status().message())
        .WithField("messages");
  serving::PromptText prompt = {.text = {}, .plain_at = {}, .add_special_tokens = false};
  const std::string& mark = conversation.mark;
  size_t begin = 0;
  for (size_t at = rendered->find(mark); at != std::string::npos;
       at = rendered->find(mark, begin)) {
    prompt.text.append(*rendered, begin, at - begin);
    prompt.plain_at.push_back(prompt.text.size());
    begin = at + mark.size();
  }
  if (begin == 0) {
    prompt.text = *std::move(rendered);
  } else {
    prompt.text.append(*rendered, begin);
  }
  return prompt;
}

}  // namespace inflight::openai
