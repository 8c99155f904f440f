// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/answer_parser.h"

#include <algorithm>
#include <utility>

#include "answer_parts/call_guide.h"

namespace inflight::answer_parts {
namespace {

using Kind = Part::Kind;

// Of formats whose reader finds reasoning as well: it is needed for either of the two.
const CallFormat* ReaderOf(const AnswerFormat& format) {
  if (format.reasoning == nullptr || !format.reasoning->has_channels) return format.calls;
  return *CallFormatNamed(format.reasoning->name);
}

const FunctionNames& NamesOf(const AnswerFormat& format) {
  static const FunctionNames none;
  return format.calls == nullptr ? none : *format.names;
}

}  // namespace

const CallFormat* AnswerFormat::channels() const {
  const CallFormat* const format = ReaderOf(*this);
  return format != nullptr && format->has_channels ? format : nullptr;
}

std::vector<std::string_view> AnswerFormat::Markers() const {
  std::vector<std::string_view> markers;
  const auto add = [&](std::string_view text) {
    if (!text.empty()) markers.push_back(text);
  };
  if (const CallFormat* const format = ReaderOf(*this); format != nullptr)
    std::ranges::for_each(format->markers, add);
  if (reasoning == nullptr) return markers;
  add(reasoning->begin);
  add(reasoning->end);
  return markers;
}

AnswerParser::AnswerParser(AnswerFormat format, BeginsIn begin)
    : format_(std::move(format)), state_(State::kContent) {
  if (const CallFormat* const format = ReaderOf(format_); format != nullptr) {
    reader_ = format->make(NamesOf(format_));
    if (format_.is_guided && format->has_channels)
      last_message_scan_.emplace(std::vector{format->written.otherwise});
    if (format_.is_guided && !format->has_channels)
      call_begins_ = BeginsOfCalls(*format, NamesOf(format_));
  }
  if (format_.reasoning != nullptr && format_.reasoning->has_channels) {
    if (begin == BeginsIn::kReasoning) AddOfContent(format_.reasoning->begin);
    if (begin == BeginsIn::kContent) AddOfContent(format_.reasoning->end);
    return;
  }
  if (format_.reasoning == nullptr || begin == BeginsIn::kContent) return;
  state_ = begin == BeginsIn::kReasoning ? State::kReasoning : State::kBegin;
  scan_.emplace(
      std::vector{state_ == State::kReasoning ? format_.reasoning->end : format_.reasoning->begin});
}

void AnswerParser::Add(std::string_view text, Parts& out) {
  if (state_ == State::kContent) {
    AddOfContent(text);
  } else {
    for (const char c : text) AddOne(c);
  }
  Pass(out);
}

void AnswerParser::AddOfContent(std::string_view text) {
  for (; !text.empty() && !call_begins_.empty(); text.remove_prefix(1)) AddToBegin(text.front());
  if (reader_ == nullptr) return found_.Add(Kind::kContent, text);
  for (const char c : text) AddToReader(c);
}

// A guided answer is what it begins as.
void AnswerParser::AddToBegin(char c) {
  begun_.push_back(c);
  bool is_call = false;
  std::erase_if(call_begins_, [&](const std::string& begin) {
    is_call |= begin == begun_;
    return !begin.starts_with(begun_);
  });
  if (!is_call && !call_begins_.empty()) return;
  if (!is_call) reader_ = nullptr;
  call_begins_.clear();
  AddOfContent(std::exchange(begun_, {}));
}

void AnswerParser::AddToReader(char c) {
  if (is_last_message_) return found_.Add(Kind::kContent, c);
  if (!last_message_scan_) return reader_->Add(c, found_);
  Parts read;
  reader_->Add(c, read);
  AddButContent(read);
  std::string passed;
  is_last_message_ = last_message_scan_->Add(c, passed).has_value();
}

// Before the last message a reader finds none, but in headers that were cut.
void AnswerParser::AddButContent(const Parts& read) {
  for (const Part& part : read.items())
    if (part.kind != Kind::kContent) found_.Add(part.kind, part.text);
}

void AnswerParser::AddOne(char c) {
  if (state_ == State::kContent) return AddOfContent({&c, 1});
  std::string passed;
  const bool is_tag = scan_->Add(c, passed).has_value();
  if (state_ == State::kReasoning) {
    found_.Add(Kind::kReasoning, passed);
    if (is_tag) state_ = State::kContent;
    return;
  }
  if (is_tag) {
    state_ = State::kReasoning;
    scan_.emplace(std::vector{format_.reasoning->end});
    return;
  }
  if (!IsBlank(passed)) state_ = State::kContent;
  AddOfContent(passed);
}

void AnswerParser::Finish(Parts& out) {
  if (scan_ && state_ == State::kReasoning) {
    found_.Add(Kind::kReasoning, scan_->TakeHeld());
  } else if (scan_ && state_ == State::kBegin) {
    AddOfContent(scan_->TakeHeld());
  }
  if (!call_begins_.empty()) found_.Add(Kind::kContent, begun_);  // of a call that was cut
  Parts read;
  if (reader_ != nullptr) reader_->Finish(last_message_scan_ ? read : found_);
  AddButContent(read);
  Pass(out);
  if (last_ != Kind::kReasoning && !is_over_) out.Add(Kind::kContent, blanks_);
}

void AnswerParser::Pass(Parts& out) {
  for (const Part& part : found_.items()) {
    if (format_.one_call && num_calls_ == 1 && part.kind != Kind::kArguments) is_over_ = true;
    if (is_over_) continue;
    const bool is_split = part.kind != Kind::kReasoning || format_.reasoning != nullptr;
    const bool is_next = !is_split || (read_ == Kind::kReasoning && part.kind == Kind::kContent);
    if (format_.reasoning == nullptr && is_next && read_ && read_ != part.kind)
      Tell(Kind::kContent, "\n\n", out);
    read_ = part.kind;
    Tell(is_split ? part.kind : Kind::kContent, part.text, out);
  }
  found_.clear();
}

void AnswerParser::Tell(Kind kind, std::string_view text, Parts& out) {
  if (kind == Kind::kCall || kind == Kind::kArguments) {
    if (kind == Kind::kCall) ++num_calls_;
    blanks_.clear();
    last_ = kind;
    return out.Add(kind, text);
  }
  const bool follows_another = last_ ? *last_ != kind : kind == Kind::kReasoning;
  if (follows_another) {
    blanks_.clear();
    text.remove_prefix(std::min(text.find_first_not_of(kBlankBytes), text.size()));
    if (text.empty()) return;
  }
  const size_t end = WithoutBlanksBehind(text).size();
  if (end > 0) {
    out.Add(kind, blanks_);
    out.Add(kind, text.substr(0, end));
    blanks_.clear();
    last_ = kind;
  }
  blanks_.append(text.substr(end));
}

}  // namespace inflight::answer_parts
