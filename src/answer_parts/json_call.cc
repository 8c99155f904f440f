// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/json_call.h"

#include "json/json_reader.h"

namespace inflight::answer_parts {
namespace {

// Of a text without its quotes; as it is where it is none.
std::string Unescaped(const std::string& text) {
  const std::string quoted = "\"" + text + "\"";
  const auto value = json::Value::Parse(quoted);
  if (!value.ok()) return text;
  auto decoded = value->AsString();
  return decoded.ok() ? *std::move(decoded) : text;
}

bool IsArguments(std::string_view key) { return key == "arguments" || key == "parameters"; }

}  // namespace

JsonCall::Step JsonCall::Add(char c, Parts& out) {
  text_.push_back(c);
  const Step step = Take(c, out);
  if (step == Step::kNone) text_.pop_back();
  return step;
}

JsonCall::Step JsonCall::Take(char c, Parts& out) {
  const size_t depth = scan_.depth();
  const JsonScan::Step step = scan_.Add(c);
  if (is_in_arguments_) {
    if (has_begun_) out.Add(Part::Kind::kArguments, c);
    if (step == JsonScan::Step::kBad) return has_begun_ ? Step::kBroken : Step::kNone;
    if (scan_.depth() == 1) {
      is_in_arguments_ = false;
      arguments_end_ = text_.size();
    }
    return Step::kMore;
  }
  // Behind its arguments the object need not go on well: the call is known.
  if (step == JsonScan::Step::kBad) return has_begun_ ? Step::kDoneBefore : Step::kNone;
  if (step == JsonScan::Step::kDone) return End(out);
  if (depth == 1) return Follow(c, out);
  return Step::kMore;
}

JsonCall::Step JsonCall::Follow(char c, Parts& out) {
  if (scan_.ended_key()) {
    key_ = Unescaped(scan_.text());
    return Step::kMore;
  }
  if (scan_.ended_text()) {
    if (key_ == "name" && !has_name_ && !TakeName()) return Step::kNone;
    if (IsArguments(key_)) {
      arguments_end_ = text_.size();
      arguments_begin_ = arguments_end_ - scan_.text().size() - 2;
    }
    return Step::kMore;
  }
  if (scan_.depth() == 2 && c == '{' && IsArguments(key_) && !has_begun_) {
    is_in_arguments_ = true;
    arguments_begin_ = text_.size() - 1;
    if (has_name_) {
      has_begun_ = true;
      out.Add(Part::Kind::kCall, name_);
      out.Add(Part::Kind::kArguments, c);
    }
  }
  return Step::kMore;
}

bool JsonCall::TakeName() {
  name_ = Unescaped(scan_.text());
  has_name_ = names_.contains(name_);
  return has_name_;
}

JsonCall::Step JsonCall::End(Parts& out) {
  if (has_begun_) return Step::kDone;
  if (!has_name_) return Step::kNone;
  has_begun_ = true;
  out.Add(Part::Kind::kCall, name_);
  out.Add(Part::Kind::kArguments, WholeArguments());
  return Step::kDone;
}

std::string JsonCall::WholeArguments() const {
  if (arguments_end_ <= arguments_begin_) return "{}";
  std::string written = text_.substr(arguments_begin_, arguments_end_ - arguments_begin_);
  if (written.front() == '{') return written;
  return Unescaped(written.substr(1, written.size() - 2));  // JSON in a text
}

}  // namespace inflight::answer_parts
