// SPDX-License-Identifier: Apache-2.0
#include "chat_template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chat_template/text.h"

namespace inflight::chat_template {
namespace {

using Kind = Token::Kind;

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string NormalizedNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizedNewlines(source)), rest_(source_) {}

  Result<std::vector<Token>> Run() {
    while (!rest_.empty() && error_.empty()) {
      const size_t open = FindTag();
      if (open == std::string_view::npos) {
        Push(Kind::kData, std::string(rest_));
        Skip(rest_.size());
      } else {
        Tag(open);
      }
    }
    if (!error_.empty()) return InvalidArgument(fmt::format("line {}: {}", line_, error_));
    Push(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }
  void Push(Kind kind, std::string text) {
    if (kind != Kind::kData || !text.empty()) tokens_.push_back({kind, std::move(text), line_});
  }
  void Skip(size_t size) {
    line_ += static_cast<int>(std::count(rest_.begin(), rest_.begin() + size, '\n'));
    rest_.remove_prefix(size);
  }
  bool At(std::string_view text) const { return rest_.starts_with(text); }

  size_t FindTag() const {
    for (size_t at = rest_.find('{'); at != std::string_view::npos; at = rest_.find('{', at + 1)) {
      const char next = at + 1 < rest_.size() ? rest_[at + 1] : '\0';
      if (next == '%' || next == '{' || next == '#') return at;
    }
    return std::string_view::npos;
  }

  // What stands before a tag loses its white space at `{%-`, and what indents a block or a comment
  // that begins its line.
  std::string_view TextBefore(size_t open, char tag, char sign) const {
    const std::string_view text = rest_.substr(0, open);
    if (sign == '-') return StripRight(text);
    if (sign == '+' || tag == '{') return text;
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !at_line_start_) return text;
    return Strip(text.substr(begin)).empty() ? text.substr(0, begin) : text;
  }

  void Tag(size_t open) {
    const char tag = rest_[open + 1];
    char sign = open + 2 < rest_.size() ? rest_[open + 2] : '\0';
    if (sign != '-' && (sign != '+' || tag == '{')) sign = '\0';
    Push(Kind::kData, std::string(TextBefore(open, tag, sign)));
    Skip(open + (sign == '\0' ? 2 : 3));
    if (tag == '#') return Comment();
    if (tag == '%' && Raw()) return;
    Push(tag == '{' ? Kind::kVariableBegin : Kind::kBlockBegin, "");
    const std::string_view close = tag == '{' ? "}}" : "%}";
    int depth = 0;
    for (;;) {
      if (rest_.empty()) return Fail(fmt::format("'{}' is missing", close));
      if (depth == 0 && CloseTag(close, tag == '{' ? Kind::kVariableEnd : Kind::kBlockEnd)) return;
      ExpressionToken(depth);
      if (!error_.empty()) return;
    }
  }

  // The size of a tag of this name behind its `{%`, and its sign; 0: it is another one's.
  static std::pair<size_t, char> NamedTag(std::string_view behind, std::string_view name) {
    const std::string_view inner = StripLeft(behind);
    if (!inner.starts_with(name)) return {0, '\0'};
    const std::string_view after = StripLeft(inner.substr(name.size()));
    const char sign = !after.empty() && (after[0] == '-' || after[0] == '+') ? after[0] : '\0';
    const size_t size = sign == '\0' ? 2 : 3;
    if (!after.substr(size - 2).starts_with("%}")) return {0, '\0'};
    return {behind.size() - after.size() + size, sign};
  }

  // {% raw %} is passed, and all up to {% endraw %} is text.
  bool Raw() {
    const auto [opening, opening_sign] = NamedTag(rest_, "raw");
    if (opening == 0 || opening_sign == '+') return false;
    AfterTag(opening, opening_sign == '-', /*trim_newline=*/false);
    for (size_t at = rest_.find("{%"); at != std::string_view::npos;
         at = rest_.find("{%", at + 1)) {
      const size_t behind = at + 2;
      const char before = behind < rest_.size() ? rest_[behind] : '\0';
      const bool has_sign = before == '-' || before == '+';
      const size_t name = behind + (has_sign ? 1 : 0);
      const auto [size, sign] = NamedTag(rest_.substr(std::min(name, rest_.size())), "endraw");
      if (size == 0) continue;
      Push(Kind::kData, std::string(TextBefore(at, '%', has_sign ? before : '\0')));
      Skip(name);
      AfterTag(size, sign == '-', sign == '\0');
      return true;
    }
    Fail("'{% endraw %}' is missing");
    return true;
  }

  void Comment() {
    const size_t end = rest_.find("#}");
    if (end == std::string_view::npos) return Fail("'#}' is missing");
    const bool strip = end > 0 && rest_[end - 1] == '-';
    const bool keep = end > 0 && rest_[end - 1] == '+';
    Skip(end);
    AfterTag(2, strip, !strip && !keep);
  }

  // Consumes `close` with its sign, if it is next.
  bool CloseTag(std::string_view close, Kind kind) {
    const bool has_sign = !rest_.empty() &&
                          (rest_[0] == '-' || (rest_[0] == '+' && kind == Kind::kBlockEnd)) &&
                          rest_.substr(1).starts_with(close);
    if (!has_sign && !At(close)) return false;
    Push(kind, "");
    const bool strip = has_sign && rest_[0] == '-';
    AfterTag(has_sign ? 3 : 2, strip, kind == Kind::kBlockEnd && !has_sign);
    return true;
  }

  void AfterTag(size_t size, bool strip, bool trim_newline) {
    std::string_view after = rest_.substr(size);
    const size_t before = after.size();
    if (strip)
      after = StripLeft(after);
    else if (trim_newline && after.starts_with('\n'))
      after.remove_prefix(1);
    const size_t used = size + before - after.size();
    at_line_start_ = rest_[used - 1] == '\n';
    Skip(used);
  }

  void ExpressionToken(int& depth) {
    const char c = rest_[0];
    if (c == ' ' || (c >= '\t' && c <= '\r')) return Skip(1);
    if (IsNameStart(c)) return Name();
    if (IsDigit(c)) return Number();
    if (c == '\'' || c == '"') return String(c);
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (const std::string_view op : kOperators) {
      if (!At(op)) continue;
      if (op == "(" || op == "[" || op == "{") ++depth;
      if ((op == ")" || op == "]" || op == "}") && depth-- == 0)
        return Fail(fmt::format("'{}' closes nothing", op));
      Push(Kind::kOperator, std::string(op));
      return Skip(op.size());
    }
    Fail(fmt::format("unexpected {}", QuotedText(rest_.substr(0, 1))));
  }

  void Name() {
    size_t size = 1;
    while (size < rest_.size() && (IsNameStart(rest_[size]) || IsDigit(rest_[size]))) ++size;
    Push(Kind::kName, std::string(rest_.substr(0, size)));
    Skip(size);
  }

  void Number() {
    const auto digits = [this](size_t at) {
      while (at < rest_.size() && IsDigit(rest_[at])) ++at;
      return at;
    };
    size_t size = digits(0);
    bool is_float = false;
    if (size + 1 < rest_.size() && rest_[size] == '.' && IsDigit(rest_[size + 1])) {
      is_float = true;
      size = digits(size + 1);
    }
    if (size < rest_.size() && (rest_[size] == 'e' || rest_[size] == 'E')) {
      size_t exponent = size + 1;
      if (exponent < rest_.size() && (rest_[exponent] == '+' || rest_[exponent] == '-')) ++exponent;
      if (digits(exponent) > exponent) {
        is_float = true;
        size = digits(exponent);
      }
    }
    if (size < rest_.size() && IsNameStart(rest_[size]))
      return Fail(fmt::format("'{}' is no number", rest_.substr(0, size + 1)));
    Push(is_float ? Kind::kFloat : Kind::kInteger, std::string(rest_.substr(0, size)));
    Skip(size);
  }

  void String(char quote) {
    std::string text;
    for (size_t at = 1; at < rest_.size(); ++at) {
      if (rest_[at] == quote) {
        Push(Kind::kString, std::move(text));
        return Skip(at + 1);
      }
      if (rest_[at] == '\\')
        at = Escape(at + 1, text);
      else
        text += rest_[at];
    }
    Fail("a text has no closing quote");
  }

  // Python's escapes; `at` follows the backslash. Returns the offset of the last character used.
  size_t Escape(size_t at, std::string& text) {
    if (at >= rest_.size()) return at;
    const char c = rest_[at];
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t known = kNames.find(c); known != std::string_view::npos) {
      text += kMeanings[known];
      return at;
    }
    if (c == '\n') return at;  // a line continues
    const size_t num_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (num_digits > 0) return CodePoint(at, num_digits, text);
    if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t end = at;
      for (; end < std::min(at + 3, rest_.size()) && rest_[end] >= '0' && rest_[end] <= '7'; ++end)
        value = value * 8 + static_cast<uint32_t>(rest_[end] - '0');
      AppendUtf8(value, text);
      return end - 1;
    }
    text += {'\\', c};
    return at;
  }

  size_t CodePoint(size_t at, size_t num_digits, std::string& text) {
    uint32_t value = 0;
    for (size_t i = at + 1; i <= at + num_digits; ++i) {
      const char c = i < rest_.size() ? rest_[i] : '\0';
      const bool is_letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!is_letter && !IsDigit(c)) {
        Fail(fmt::format("\\{} needs {} hexadecimal digits", rest_[at], num_digits));
        return i;
      }
      value = value * 16 + static_cast<uint32_t>(is_letter ? (c | 0x20) - 'a' + 10 : c - '0');
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
      Fail(fmt::format("U+{:04X} is no character", value));
    AppendUtf8(value, text);
    return at + num_digits;
  }

  const std::string source_;
  std::string_view rest_;
  int line_ = 1;
  bool at_line_start_ = true;
  std::string error_;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace inflight::chat_template
