// SPDX-License-Identifier: Apache-2.0
#include "json/json_validator.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "base/hex.h"

namespace inflight::json {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Walks the text once. The first error sets `what_` and `offset_` and ends the walk.
class Validator {
 public:
  explicit Validator(std::string_view text) : text_(text) {
    if (text_.starts_with(kByteOrderMark)) pos_ = kByteOrderMark.size();
  }

  Status Run() {
    if (Document()) return Status::Ok();
    return Internal("failed to parse the request JSON buffer: " + std::string(what_) + " at " +
                    std::to_string(offset_));
  }

 private:
  bool Document() {
    SkipBlanks();
    if (pos_ == text_.size()) return Fail("The document is empty.", pos_);
    if (!ValueAndAfter()) return false;
    SkipBlanks();
    if (pos_ == text_.size()) return true;
    return Fail("The document root must not be followed by other values.", pos_);
  }

  // A value; while containers are open, what may follow in them.
  bool ValueAndAfter() {
    do {
      SkipBlanks();
      const char c = Peek();
      if (c == '{' || c == '[') {
        ++pos_;
        in_object_.push_back(c == '{');
        SkipBlanks();
        if (Peek() != Closing()) {
          if (in_object_.back() && !Name()) return false;
          continue;  // the first value of the container
        }
        ++pos_;
        in_object_.pop_back();
      } else if (!Scalar(c)) {
        return false;
      }
      if (!AfterValue()) return false;
    } while (!in_object_.empty());
    return true;
  }

  // Closes what ends here; otherwise takes the comma and, in an object, the next name.
  bool AfterValue() {
    while (!in_object_.empty()) {
      SkipBlanks();
      if (Peek() == Closing()) {
        ++pos_;
        in_object_.pop_back();
        continue;
      }
      if (Peek() != ',') {
        return Fail(in_object_.back() ? "Missing a comma or '}' after an object member."
                                      : "Missing a comma or ']' after an array element.",
                    pos_);
      }
      ++pos_;
      SkipBlanks();
      return in_object_.back() ? Name() : true;
    }
    return true;
  }

  bool Name() {
    if (Peek() != '"') return Fail("Missing a name for object member.", pos_);
    if (!String()) return false;
    SkipBlanks();
    if (Peek() != ':') return Fail("Missing a colon after a name of object member.", pos_);
    ++pos_;
    return true;
  }

  bool Scalar(char c) {
    switch (c) {
      case '"':
        return String();
      case 't':
        return Word("true");
      case 'f':
        return Word("false");
      case 'n':
        return Word("null");
      default:
        return Number();
    }
  }

  bool Word(std::string_view word) {
    for (const char c : word) {
      if (pos_ == text_.size() || text_[pos_] != c) return Fail("Invalid value.", pos_);
      ++pos_;
    }
    return true;
  }

  bool String() {
    ++pos_;
    while (true) {
      if (pos_ == text_.size()) {
        return Fail("Missing a closing quotation mark in string.", pos_);
      }
      const char c = text_[pos_];
      if (c == '"') {
        ++pos_;
        return true;
      }
      if (c == '\\') {
        if (!Escape()) return false;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        return Fail("Invalid escape character in string.", pos_);
      } else {
        ++pos_;
      }
    }
  }

  bool Escape() {
    const size_t start = pos_++;
    const char c = Peek();
    if (c != 'u') {
      if (c == '\0' || std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos) {
        return Fail("Invalid escape character in string.", start);
      }
      ++pos_;
      return true;
    }
    ++pos_;
    unsigned unit = 0;
    if (!Hex4(start, unit)) return false;
    if (unit < 0xD800 || unit > 0xDFFF) return true;
    const bool is_pair = unit < 0xDC00 && text_.substr(pos_, 2) == "\\u";
    pos_ += 2;
    if (!is_pair || !Hex4(start, unit) || unit < 0xDC00 || unit > 0xDFFF) {
      return Fail("The surrogate pair in string is invalid.", start);
    }
    return true;
  }

  bool Hex4(size_t start, unsigned& unit) {
    unit = 0;
    for (int i = 0; i < 4; ++i) {
      const int digit = HexDigit(Peek());
      if (digit < 0) return Fail("Incorrect hex digit after \\u escape in string.", start);
      unit = unit * 16 + static_cast<unsigned>(digit);
      ++pos_;
    }
    return true;
  }

  bool Number() {
    const size_t start = pos_;
    if (Peek() == '-') ++pos_;
    if (Peek() == 'N' && pos_ == start) return Word("NaN");
    if (Peek() == 'I') {
      if (!Word("Inf")) return false;
      return Peek() == 'i' ? Word("inity") : true;
    }
    if (!IsDigit(Peek())) return Fail("Invalid value.", pos_);
    if (Peek() == '0') {
      ++pos_;
    } else {
      SkipDigits();
    }
    if (Peek() == '.') {
      ++pos_;
      if (!IsDigit(Peek())) return Fail("Miss fraction part in number.", pos_);
      SkipDigits();
    }
    const bool has_exponent = Peek() == 'e' || Peek() == 'E';
    if (has_exponent) {
      ++pos_;
      if (Peek() == '+' || Peek() == '-') ++pos_;
      if (!IsDigit(Peek())) return Fail("Miss exponent in number.", pos_);
      SkipDigits();
    }
    const size_t length = pos_ - start;
    const bool may_overflow = has_exponent || length > std::numeric_limits<double>::max_exponent10;
    if (may_overflow && std::isinf(NumberToDouble(text_.substr(start, length)))) {
      return Fail("Number too big to be stored in double.", start);
    }
    return true;
  }

  void SkipDigits() {
    while (IsDigit(Peek())) ++pos_;
  }
  void SkipBlanks() {
    while (pos_ < text_.size() && IsBlank(text_[pos_])) ++pos_;
  }
  char Peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  char Closing() const { return in_object_.back() ? '}' : ']'; }
  bool Fail(std::string_view what, size_t offset) {
    what_ = what;
    offset_ = offset;
    return false;
  }

  std::string_view text_;
  size_t pos_ = 0;
  std::vector<bool> in_object_;  // open containers, outermost first: object, else array
  std::string_view what_;
  size_t offset_ = 0;
};

}  // namespace

Status Validate(std::string_view text) { return Validator(text).Run(); }

double NumberToDouble(std::string_view token) {
  const bool is_negative = token.starts_with('-');
  const char first = token[is_negative ? 1 : 0];
  if (first == 'N') return std::numeric_limits<double>::quiet_NaN();
  if (first == 'I') return std::copysign(HUGE_VAL, is_negative ? -1.0 : 1.0);
  double value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error == std::errc{}) return value;
  return std::strtod(std::string(token).c_str(), nullptr);  // tells overflow from underflow
}

}  // namespace inflight::json
