// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/python_literal.h"

#include <string_view>

#include "answer_parts/part.h"

namespace inflight::answer_parts {
namespace {

constexpr size_t kMaxPythonDepth = 1024;  // guides write up to 512
constexpr size_t kMaxPythonWord = 5;      // False

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsQuote(char c) { return c == '"' || c == '\''; }

// Of a word's own JSON; models write that, too. Empty: it is none.
std::string_view JsonOfWord(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  return {};
}

bool IsRawPrefix(std::string_view word) { return word == "r" || word == "R"; }
bool IsTextPrefix(std::string_view word) { return IsRawPrefix(word) || word == "u" || word == "U"; }

}  // namespace

PythonLiteral::Step PythonLiteral::Add(char c) {
  const Step step = AddOne(c);
  if (step != Step::kBad) Decide();
  return step;
}

void PythonLiteral::Decide() {
  if (!parentheses_.empty() || json_.empty()) return;
  decided_.append(json_);
  json_.clear();
  written_.clear();
}

void PythonLiteral::Append(std::string_view json) {
  if (json.empty()) return;
  if (std::exchange(has_comma_, false)) json_.append(", ");
  json_.append(json);
}

// What came before the byte is whole, so that nothing of it is held with the byte.
PythonLiteral::Step PythonLiteral::Again(char c) {
  written_.pop_back();
  Decide();
  return AddOne(c);
}

PythonLiteral::Step PythonLiteral::DoneBefore() {
  written_.pop_back();
  return Step::kDoneBefore;
}

PythonLiteral::Step PythonLiteral::AddOne(char c) {
  written_.push_back(c);
  switch (state_) {
    case State::kNumber:
      return AddOfNumber(c);
    case State::kWord:
      return AddOfWord(c);
    case State::kText:
      return AddOfText(c);
    default:
      break;
  }
  if (IsBlank(c)) return Step::kMore;
  switch (state_) {
    case State::kTextEnded:
      return AddBehindText(c);
    case State::kAfter:
      return AddBehindValue(c);
    case State::kColon:
      if (c != ':') return Step::kBad;
      json_.append(": ");
      state_ = State::kValue;
      return Step::kMore;
    case State::kValueOrEnd:
      return c == ']' || c == ')' ? Close(c) : Begin(c);
    case State::kKeyOrEnd:
      if (c == '}') return Close(c);
      is_key_ = true;
      return Begin(c);
    default:
      return Begin(c);
  }
}

PythonLiteral::Step PythonLiteral::Begin(char c) {
  if (IsQuote(c)) return BeginText(c, /*is_raw=*/false);
  token_.clear();
  if (PythonNumber::Begins(c)) {
    number_.emplace();
    state_ = State::kNumber;
    return AddOfNumber(c);
  }
  if (IsLetter(c)) {
    state_ = State::kWord;
    return AddOfWord(c);
  }
  const bool is_bracket = c == '[' || c == '{' || c == '(';
  return is_bracket && !is_key_ ? Open(c) : Step::kBad;
}

PythonLiteral::Step PythonLiteral::Open(char c) {
  if (open_.size() == kMaxPythonDepth) return Step::kBad;
  open_.push_back(c);
  state_ = c == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
  if (c != '(') {
    Append({&c, 1});
    return Step::kMore;
  }
  if (std::exchange(has_comma_, false)) json_.append(", ");
  parentheses_.push_back(json_.size());
  return Step::kMore;
}

PythonLiteral::Step PythonLiteral::Close(char c) {
  const char open = open_.empty() ? '\0' : open_.back();
  const bool is_parenthesis = open == '(' && c == ')';
  const bool is_tuple = open == 't' && c == ')';
  if (!is_parenthesis && !is_tuple && !(open == '[' && c == ']') && !(open == '{' && c == '}'))
    return Step::kBad;
  // One around a value is none of JSON.
  const bool is_around_value = is_parenthesis && state_ == State::kAfter;
  if (is_parenthesis && !is_around_value) json_.push_back('[');
  if (is_parenthesis) parentheses_.pop_back();
  if (!is_around_value) json_.push_back(c == '}' ? '}' : ']');
  has_comma_ = false;
  open_.pop_back();
  state_ = State::kAfter;
  return Step::kMore;
}

PythonLiteral::Step PythonLiteral::AddBehindValue(char c) {
  if (open_.empty()) return DoneBefore();
  if (c != ',') return Close(c);
  if (open_.back() == '(') {
    json_.insert(parentheses_.back(), 1, '[');
    parentheses_.pop_back();
    open_.back() = 't';
  }
  has_comma_ = true;
  state_ = open_.back() == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
  return Step::kMore;
}

PythonLiteral::Step PythonLiteral::BeginText(char quote, bool is_raw) {
  text_.emplace(quote, is_raw);
  state_ = State::kText;
  Append("\"");
  return Step::kMore;
}

PythonLiteral::Step PythonLiteral::AddOfText(char c) {
  switch (text_->Add(c, json_)) {
    case PythonText::Step::kMore:
      return Step::kMore;
    case PythonText::Step::kDone:
      state_ = State::kTextEnded;
      return Step::kMore;
    case PythonText::Step::kDoneBefore:
      state_ = State::kTextEnded;
      written_.pop_back();
      return AddOne(c);
    case PythonText::Step::kAgain:
      return Again(c);
    case PythonText::Step::kBad:
      break;
  }
  return Step::kBad;
}

PythonLiteral::Step PythonLiteral::AddBehindText(char c) {
  if (IsQuote(c)) {
    text_.emplace(c, /*is_raw=*/false);
    state_ = State::kText;
    return Step::kMore;
  }
  json_.push_back('"');
  return EndScalar(c);
}

PythonLiteral::Step PythonLiteral::AddOfNumber(char c) {
  std::string piece;
  const PythonNumber::Step step = number_->Add(c, piece);
  if (step == PythonNumber::Step::kBad) return Step::kBad;
  const bool is_over = step == PythonNumber::Step::kDoneBefore;
  if (is_over && !number_->Finish(piece)) return Step::kBad;
  if (is_key_) {
    token_.append(piece);
    if (is_over) Append('"' + token_ + '"');
  } else {
    Append(piece);
  }
  return is_over ? EndScalar(c) : Step::kMore;
}

PythonLiteral::Step PythonLiteral::AddOfWord(char c) {
  if (IsLetter(c)) {
    token_.push_back(c);
    return token_.size() > kMaxPythonWord ? Step::kBad : Step::kMore;
  }
  if (IsQuote(c) && IsTextPrefix(token_)) return BeginText(c, IsRawPrefix(token_));
  std::string json(JsonOfWord(token_));
  if (json.empty()) return Step::kBad;
  if (is_key_) json = '"' + json + '"';
  Append(json);
  return EndScalar(c);
}

// The byte behind it is the next one's.
PythonLiteral::Step PythonLiteral::EndScalar(char c) {
  state_ = std::exchange(is_key_, false) ? State::kColon : State::kAfter;
  return Again(c);
}

}  // namespace inflight::answer_parts
