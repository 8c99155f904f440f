// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/json_scan.h"

#include "answer_parts/part.h"
#include "json/json_reader.h"

namespace inflight::answer_parts {
namespace {

constexpr size_t kMaxDepth = 1024;  // guides write up to 512
constexpr size_t kMaxWordBytes = 512;

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool IsOfWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' ||
         c == 'E';
}

}  // namespace

JsonScan::Step JsonScan::Bad() {
  state_ = State::kOver;
  return Step::kBad;
}

JsonScan::Step JsonScan::Open(char c) {
  if (open_.size() == kMaxDepth) return Bad();
  open_.push_back(c);
  state_ = c == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
  return Step::kMore;
}

JsonScan::Step JsonScan::Close(char c) {
  if (open_.back() != (c == '}' ? '{' : '[')) return Bad();
  open_.pop_back();
  if (open_.empty()) {
    state_ = State::kOver;
    return Step::kDone;
  }
  state_ = State::kCommaOrEnd;
  return Step::kMore;
}

JsonScan::Step JsonScan::AddOfString(char c) {
  if (state_ == State::kHex) {
    if (!IsHex(c)) return Bad();
    if (--hex_left_ == 0) state_ = State::kString;
  } else if (state_ == State::kEscape) {
    constexpr std::string_view kEscapes = "\"\\/bfnrtu";
    if (kEscapes.find(c) == std::string::npos) return Bad();
    hex_left_ = 4;
    state_ = c == 'u' ? State::kHex : State::kString;
  } else if (c == '"') {
    state_ = is_key_ ? State::kColon : State::kCommaOrEnd;
    (is_key_ ? ended_key_ : ended_text_) = true;
    return Step::kMore;
  } else if (static_cast<unsigned char>(c) < ' ') {
    return Bad();
  } else if (c == '\\') {
    state_ = State::kEscape;
  }
  token_.push_back(c);
  return Step::kMore;
}

JsonScan::Step JsonScan::BeginValue(char c) {
  if (c == '{' || c == '[') return Open(c);
  token_.clear();
  if (c == '"') {
    is_key_ = false;
    state_ = State::kString;
    return Step::kMore;
  }
  if (!IsOfWord(c)) return Bad();
  state_ = State::kWord;
  token_.push_back(c);
  return Step::kMore;
}

bool JsonScan::WordIsWhole() const { return json::Value::Parse("[" + token_ + "]").ok(); }

JsonScan::Step JsonScan::AddOfWord(char c) {
  if (IsOfWord(c)) {
    token_.push_back(c);
    return token_.size() > kMaxWordBytes ? Bad() : Step::kMore;
  }
  if (!WordIsWhole()) return Bad();
  state_ = State::kCommaOrEnd;
  return Add(c);
}

JsonScan::Step JsonScan::Add(char c) {
  ended_key_ = ended_text_ = false;
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kHex:
      return AddOfString(c);
    case State::kWord:
      return AddOfWord(c);
    default:
      break;
  }
  if (IsBlank(c) && state_ != State::kBegin && state_ != State::kOver) return Step::kMore;
  switch (state_) {
    case State::kBegin:
      return c == '{' ? Open(c) : Bad();
    case State::kKeyOrEnd:
    case State::kKey:
      if (c == '}' && state_ == State::kKeyOrEnd) return Close(c);
      if (c != '"') return Bad();
      is_key_ = true;
      token_.clear();
      state_ = State::kString;
      return Step::kMore;
    case State::kColon:
      state_ = State::kValue;
      return c == ':' ? Step::kMore : Bad();
    case State::kValueOrEnd:
      return c == ']' ? Close(c) : BeginValue(c);
    case State::kValue:
      return BeginValue(c);
    case State::kCommaOrEnd:
      if (c == '}' || c == ']') return Close(c);
      if (c != ',') return Bad();
      state_ = open_.back() == '{' ? State::kKey : State::kValue;
      return Step::kMore;
    default:
      return Bad();
  }
}

}  // namespace inflight::answer_parts
