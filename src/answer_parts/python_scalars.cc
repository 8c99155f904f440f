// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/python_scalars.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "answer_parts/value_text.h"
#include "json/json_writer.h"

namespace inflight::answer_parts {
namespace {

constexpr size_t kMaxBasedDigits = 64;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsOfNumber(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

bool IsLetterE(char c) { return c == 'e' || c == 'E'; }

std::optional<uint32_t> DigitOf(char c) {
  if (IsDigit(c)) return static_cast<uint32_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint32_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<uint32_t>(c - 'A' + 10);
  return std::nullopt;
}

uint32_t BaseOf(char c) {
  constexpr std::string_view kLetters = "xXoObB";
  constexpr uint32_t kBases[] = {16, 8, 2};
  const size_t at = kLetters.find(c);
  return at == std::string_view::npos ? 0 : kBases[at / 2];
}

bool IsSurrogate(uint32_t code) { return code >= 0xD800 && code < 0xE000; }
bool IsHighSurrogate(uint32_t code) { return code >= 0xD800 && code < 0xDC00; }

}  // namespace

bool PythonNumber::Begins(char c) { return IsDigit(c) || c == '.' || c == '-' || c == '+'; }

PythonNumber::Step PythonNumber::Hold(std::string_view json, State state) {
  held_.append(json);
  state_ = state;
  return Step::kMore;
}

bool PythonNumber::EndsWithDigit() const {
  if (has_gap_) return false;
  switch (state_) {
    case State::kZero:
    case State::kInteger:
    case State::kFraction:
      return true;
    case State::kExponent:
      return held_.empty();
    case State::kBased:
      return !digits_.empty();
    default:
      return false;
  }
}

PythonNumber::Step PythonNumber::Add(char c, std::string& json) {
  if (c == '-' || c == '+') return AddSign(c);
  if (!IsOfNumber(c)) return Step::kDoneBefore;
  if (c == '_') return AddGap();
  if (state_ == State::kBased) return AddOfBased(c);
  if (IsDigit(c)) return AddDigit(c, json);
  if (has_gap_) return Step::kBad;
  if (c == '.') return AddPoint();
  return IsLetterE(c) ? AddExponent(c) : BeginBased(c);
}

PythonNumber::Step PythonNumber::AddSign(char c) {
  if (state_ == State::kBegin) return Hold(c == '-' ? "-" : "", State::kSign);
  const bool is_behind_e = state_ == State::kExponent && !held_.empty() && IsLetterE(held_.back());
  return is_behind_e ? Hold({&c, 1}, State::kExponent) : Step::kDoneBefore;
}

PythonNumber::Step PythonNumber::AddPoint() {
  switch (state_) {
    case State::kBegin:
    case State::kSign:
      return Hold("0.", State::kLeadingPoint);
    case State::kZero:
    case State::kInteger:
      return Hold(".", State::kPoint);
    default:
      return Step::kBad;
  }
}

PythonNumber::Step PythonNumber::AddExponent(char c) {
  if (state_ == State::kPoint) Hold("0", State::kFraction);
  const bool may_follow = EndsWithDigit() && state_ != State::kExponent;
  return may_follow ? Hold({&c, 1}, State::kExponent) : Step::kBad;
}

PythonNumber::Step PythonNumber::AddGap() {
  const bool is_behind_prefix = state_ == State::kBased && digits_.empty() && !has_gap_;
  if (!EndsWithDigit() && !is_behind_prefix) return Step::kBad;
  has_gap_ = true;
  return Step::kMore;
}

PythonNumber::Step PythonNumber::BeginBased(char c) {
  base_ = BaseOf(c);
  if (state_ != State::kZero || base_ == 0) return Step::kBad;
  held_.pop_back();
  state_ = State::kBased;
  return Step::kMore;
}

PythonNumber::Step PythonNumber::AddDigit(char c, std::string& json) {
  has_gap_ = false;
  switch (state_) {
    case State::kBegin:
    case State::kSign:
      if (c == '0') return Hold("0", State::kZero);
      state_ = State::kInteger;
      break;
    case State::kZero:  // 00 is one, 01 is none
      return c == '0' ? Step::kMore : Step::kBad;
    case State::kPoint:
    case State::kLeadingPoint:
      state_ = State::kFraction;
      break;
    default:
      break;
  }
  json.append(held_).push_back(c);
  held_.clear();
  return Step::kMore;
}

PythonNumber::Step PythonNumber::AddOfBased(char c) {
  has_gap_ = false;
  const auto digit = DigitOf(c);
  if (!digit || *digit >= base_ || digits_.size() == kMaxBasedDigits) return Step::kBad;
  digits_.push_back(c);
  return Step::kMore;
}

bool PythonNumber::Finish(std::string& json) const {
  if (state_ == State::kPoint) {
    json.append(held_).push_back('0');
    return true;
  }
  if (!EndsWithDigit()) return false;
  json.append(held_);
  if (state_ != State::kBased) return true;
  uint64_t value = 0;
  const char* const end = digits_.data() + digits_.size();
  const auto read = std::from_chars(digits_.data(), end, value, static_cast<int>(base_));
  json.append(std::to_string(value));
  return read.ec == std::errc();
}

PythonText::Step PythonText::Add(char c, std::string& json) {
  switch (state_) {
    case State::kFirst:
      state_ = c == quote_ ? State::kSecondQuote : State::kBody;
      return c == quote_ ? Step::kMore : AddOfBody(c, json);
    case State::kSecondQuote:
      if (c != quote_) return Step::kDoneBefore;
      is_triple_ = true;
      state_ = State::kBody;
      return Step::kMore;
    case State::kBody:
      return AddOfBody(c, json);
    case State::kEscape:
      return AddOfEscape(c, json);
    case State::kRawEscape:
      json.append(EscapedText({&c, 1}));
      state_ = State::kBody;
      return Step::kMore;
    case State::kHex:
      return AddHexDigit(c, json);
    case State::kOctal:
      return AddOctalDigit(c, json);
  }
  return Step::kBad;
}

PythonText::Step PythonText::AddOfBody(char c, std::string& json) {
  if (high_surrogate_ != 0 && c != '\\') return Step::kBad;
  if (c == quote_) {
    if (!is_triple_ || ++num_quotes_ == 3) return Step::kDone;
    return Step::kMore;
  }
  if (num_quotes_ > 0) {
    json.append(EscapedText(std::string(static_cast<size_t>(num_quotes_), quote_)));
    num_quotes_ = 0;
    return Step::kAgain;
  }
  if (c == '\\') state_ = is_raw_ ? State::kRawEscape : State::kEscape;
  if (c != '\\' || is_raw_) json.append(EscapedText({&c, 1}));
  return Step::kMore;
}

PythonText::Step PythonText::BeginDigits(State state, int num_digits) {
  state_ = state;
  code_ = 0;
  digits_left_ = num_digits;
  return Step::kMore;
}

// Behind the backslash.
PythonText::Step PythonText::AddOfEscape(char c, std::string& json) {
  if (high_surrogate_ != 0 && c != 'u') return Step::kBad;
  if (c == 'x') return BeginDigits(State::kHex, 2);
  if (c == 'u') return BeginDigits(State::kHex, 4);
  if (c == 'U') return BeginDigits(State::kHex, 8);
  if (c >= '0' && c <= '7') {
    BeginDigits(State::kOctal, 3);
    return AddOctalDigit(c, json);
  }
  state_ = State::kBody;
  if (c == '\n') return Step::kMore;  // the line goes on
  constexpr std::string_view kNames = "nrtbfva\\'\"";
  constexpr std::string_view kValues = "\n\r\t\b\f\v\a\\'\"";
  if (const size_t at = kNames.find(c); at != std::string_view::npos) {
    json.append(EscapedText(kValues.substr(at, 1)));
  } else {  // Python keeps the backslash
    json.append("\\\\").append(EscapedText({&c, 1}));
  }
  return Step::kMore;
}

PythonText::Step PythonText::AddHexDigit(char c, std::string& json) {
  const auto digit = DigitOf(c);
  if (!digit) return Step::kBad;
  code_ = code_ * 16 + *digit;
  if (--digits_left_ > 0) return Step::kMore;
  if (IsHighSurrogate(code_) && high_surrogate_ == 0) {
    high_surrogate_ = code_;
    state_ = State::kBody;
    return Step::kMore;
  }
  if (high_surrogate_ != 0) {
    if (!IsSurrogate(code_) || IsHighSurrogate(code_)) return Step::kBad;
    code_ = 0x10000 + ((high_surrogate_ - 0xD800) << 10) + (code_ - 0xDC00);
    high_surrogate_ = 0;
  }
  return EndCode(json);
}

PythonText::Step PythonText::AddOctalDigit(char c, std::string& json) {
  if (c < '0' || c > '7') {
    EndCode(json);
    return Step::kAgain;
  }
  code_ = code_ * 8 + static_cast<uint32_t>(c - '0');
  return --digits_left_ > 0 ? Step::kMore : EndCode(json);
}

PythonText::Step PythonText::EndCode(std::string& json) {
  if (code_ > 0x10FFFF || IsSurrogate(code_)) return Step::kBad;
  std::string character;
  json::AppendUtf8(character, code_);
  json.append(EscapedText(character));
  state_ = State::kBody;
  return Step::kMore;
}

}  // namespace inflight::answer_parts
