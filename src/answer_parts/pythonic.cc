// SPDX-License-Identifier: Apache-2.0
// [f(a=1, b="x"), g()]: calls of Python whose arguments are named literals, as the whole text.
// Llama 3.2 and 4, where their templates ask for it. A call is told once the list is whole.
#include <algorithm>
#include <optional>
#include <vector>

#include "answer_parts/call_formats.h"
#include "answer_parts/marker_scan.h"
#include "json/json_reader.h"
#include "json/json_writer.h"

namespace inflight::answer_parts {
namespace {

struct Call {
  std::string name;
  std::string arguments;
};

// The calls of a list, with arguments as JSON; nothing where it is none.
class ListParser {
 public:
  explicit ListParser(std::string_view text) : text_(text) {}

  std::optional<std::vector<Call>> Parse() {
    std::vector<Call> calls;
    if (!Take('[')) return std::nullopt;
    while (!Take(']')) {
      if (!calls.empty() && (!Take(',') || Take(']'))) return std::nullopt;
      if (!ParseCall(calls.emplace_back())) return std::nullopt;
    }
    if (calls.empty()) return std::nullopt;
    return calls;
  }

 private:
  static constexpr int kMaxDepth = 1024;  // guides write up to 512

  void SkipBlanks() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
  }

  bool Take(char c) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string_view TakeName() {
    SkipBlanks();
    const size_t begin = at_;
    const auto is_of_name = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             c == '_' || c == '-' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
    };
    while (at_ < text_.size() && is_of_name(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  bool ParseCall(Call& call) {
    call.name = TakeName();
    if (call.name.empty() || !Take('(')) return false;
    call.arguments = "{";
    while (!Take(')')) {
      if (call.arguments.size() > 1) {
        if (!Take(',')) return false;
        if (Take(')')) break;
        call.arguments += ", ";
      }
      const std::string_view key = TakeName();
      if (key.empty() || !Take('=')) return false;
      json::AppendString(call.arguments, key);
      call.arguments += ": ";
      if (!ParseValue(call.arguments, kMaxDepth)) return false;
    }
    call.arguments += "}";
    return true;
  }

  bool ParseValue(std::string& out, int depth) {
    if (depth == 0) return false;
    SkipBlanks();
    if (at_ == text_.size()) return false;
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      std::string text;
      if (!ParseString(text)) return false;
      json::AppendString(out, text);
      return true;
    }
    if (c == '[' || c == '(') return ParseItems(out, c == '[' ? ']' : ')', depth);
    if (c == '{') return ParseDict(out, depth);
    return ParseWord(out);
  }

  bool ParseItems(std::string& out, char close, int depth) {
    ++at_;
    out += '[';
    bool is_first = true;
    while (!Take(close)) {
      if (!is_first) {
        if (!Take(',')) return false;
        if (Take(close)) break;
        out += ", ";
      }
      is_first = false;
      if (!ParseValue(out, depth - 1)) return false;
    }
    out += ']';
    return true;
  }

  bool ParseDict(std::string& out, int depth) {
    ++at_;
    out += '{';
    bool is_first = true;
    while (!Take('}')) {
      if (!is_first) {
        if (!Take(',')) return false;
        if (Take('}')) break;
        out += ", ";
      }
      is_first = false;
      SkipBlanks();
      std::string key;
      if (at_ == text_.size() || (text_[at_] != '"' && text_[at_] != '\'') || !ParseString(key))
        return false;
      json::AppendString(out, key);
      if (!Take(':')) return false;
      out += ": ";
      if (!ParseValue(out, depth - 1)) return false;
    }
    out += '}';
    return true;
  }

  // A number, or one of the names of Python.
  bool ParseWord(std::string& out) {
    const size_t begin = at_;
    if (text_[at_] == '+' || text_[at_] == '-') ++at_;
    std::string word(text_.substr(begin, at_ - begin));
    word += TakeName();
    if (at_ < text_.size() && text_[at_] == '+' && !word.empty() &&
        (word.back() == 'e' || word.back() == 'E')) {
      ++at_;
      word.append("+").append(TakeName());
    }
    if (word == "True" || word == "true") {
      out += "true";
    } else if (word == "False" || word == "false") {
      out += "false";
    } else if (word == "None" || word == "null") {
      out += "null";
    } else {
      if (!word.empty() && word.front() == '+') word.erase(0, 1);
      const auto value = json::Value::Parse("[" + word + "]");
      const bool is_number = word.find_first_not_of("0123456789+-.eE") == std::string::npos;
      if (word.empty() || !is_number || !value.ok()) return false;
      out += word;
    }
    return true;
  }

  bool ParseString(std::string& text) {
    const char quote = text_[at_++];
    for (; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == quote) {
        ++at_;
        return true;
      }
      if (c == '\\' && at_ + 1 < text_.size()) {
        c = text_[++at_];
        if (c == 'x' || c == 'u' || c == 'U') {
          if (!ParseCodePoint(c == 'x' ? 2 : (c == 'u' ? 4 : 8), text)) return false;
          continue;
        }
        constexpr std::string_view kNames = "nrtbfv0a";
        constexpr std::string_view kValues("\n\r\t\b\f\v\0\a", 8);
        if (const size_t index = kNames.find(c); index != std::string::npos) {
          c = kValues[index];
        } else if (c != '\\' && c != '\'' && c != '"') {
          text += '\\';  // Python keeps the backslash
        }
      }
      text += c;
    }
    return false;
  }

  bool ParseCodePoint(size_t digits, std::string& text) {
    uint32_t code = 0;
    if (at_ + digits >= text_.size()) return false;
    for (size_t i = 0; i < digits; ++i) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      char c = text_[++at_];
      if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
      const size_t digit = kDigits.find(c);
      if (digit == std::string::npos) return false;
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
    if (code < 0x80) {
      add(code);
    } else if (code < 0x800) {
      add(0xC0 | (code >> 6));
      add(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      add(0xE0 | (code >> 12));
      add(0x80 | ((code >> 6) & 0x3F));
      add(0x80 | (code & 0x3F));
    } else {
      add(0xF0 | (code >> 18));
      add(0x80 | ((code >> 12) & 0x3F));
      add(0x80 | ((code >> 6) & 0x3F));
      add(0x80 | (code & 0x3F));
    }
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

class PythonicReader final : public CallReader {
 public:
  explicit PythonicReader(const FunctionNames& names) : names_(names) {}

  void Add(char c, Parts& out) override {
    std::string passed;
    const auto marker = scan_.Add(c, passed);
    for (const char one : passed) AddOne(one, out);
    if (!marker) return;
    if (state_ == State::kText) {
      state_ = State::kBegin;
      list_.clear();
    } else if (quote_ != 0) {  // it is of a string
      for (const char one : *marker) AddOne(one, out);
    }
  }

  void Finish(Parts& out) override {
    for (const char one : scan_.TakeHeld()) AddOne(one, out);
    if (state_ == State::kList || !has_calls_) out.Add(Part::Kind::kContent, list_);
  }

 private:
  enum class State { kBegin, kText, kList };

  void AddOne(char c, Parts& out) {
    if (state_ == State::kText) return out.Add(Part::Kind::kContent, c);
    list_.push_back(c);
    if (state_ == State::kBegin) {
      if (IsBlank(c)) return;
      state_ = c == '[' ? State::kList : State::kText;
      if (state_ == State::kText) return Tell(out);
    }
    if (!Closes(c)) return;
    const auto calls = ListParser(list_).Parse();
    const auto is_known = [this](const Call& call) { return names_.contains(call.name); };
    if (!calls || !std::ranges::all_of(*calls, is_known)) {
      state_ = State::kText;
      return Tell(out);
    }
    for (const Call& call : *calls) {
      out.Add(Part::Kind::kCall, call.name);
      out.Add(Part::Kind::kArguments, call.arguments);
    }
    has_calls_ = true;
    list_.clear();
    state_ = State::kBegin;
  }

  // The list, with its last bracket.
  bool Closes(char c) {
    if (quote_ != 0) {
      if (is_escaped_) {
        is_escaped_ = false;
      } else if (c == '\\') {
        is_escaped_ = true;
      } else if (c == quote_) {
        quote_ = 0;
      }
    } else if (c == '"' || c == '\'') {
      quote_ = c;
    } else if (c == '[' || c == '(' || c == '{') {
      ++depth_;
    } else if (c == ']' || c == ')' || c == '}') {
      return --depth_ <= 0;
    }
    return false;
  }

  void Tell(Parts& out) {
    out.Add(Part::Kind::kContent, list_);
    list_.clear();
    depth_ = 0;
    quote_ = 0;
  }

  const FunctionNames& names_;
  State state_ = State::kBegin;
  MarkerScan scan_{{"<|python_start|>", "<|python_end|>", "<|python_tag|>"}};
  std::string list_;
  int depth_ = 0;
  char quote_ = 0;
  bool is_escaped_ = false;
  bool has_calls_ = false;
};

}  // namespace

std::unique_ptr<CallReader> MakePythonicReader(const FunctionNames& names) {
  return std::make_unique<PythonicReader>(names);
}

}  // namespace inflight::answer_parts
