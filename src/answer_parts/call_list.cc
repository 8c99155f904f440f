// SPDX-License-Identifier: Apache-2.0
// <|tool_call|>[{"name": "f", "arguments": {...}}]<|/tool_call|>
// Phi-4 mini; without the second marker Granite 3; functools[...] of Phi-4 mini, too.
#include "answer_parts/call_list.h"

#include "answer_parts/call_formats.h"
#include "answer_parts/marker_scan.h"

namespace inflight::answer_parts {

CallList::Step CallList::Add(char c, Parts& out) {
  if (state_ == State::kCall) return AddOfCall(c, out);
  if (state_ == State::kComma && !is_array_) return Step::kDoneBefore;
  text_.push_back(c);
  if (IsBlank(c)) return Step::kMore;
  if (state_ == State::kComma) {
    if (c == ']') return Step::kDone;
    state_ = State::kElement;
    if (c == ',') return Step::kMore;
    text_.pop_back();
    return Step::kDoneBefore;
  }
  if (state_ == State::kBegin && c == '[') {
    is_array_ = true;
    state_ = State::kElement;
    return Step::kMore;
  }
  if (c == ']' && is_array_) return call_ ? Step::kDone : Step::kNone;
  if (c != '{') return Step::kNone;
  text_.pop_back();
  call_.emplace(names_);
  state_ = State::kCall;
  return AddOfCall(c, out);
}

CallList::Step CallList::AddOfCall(char c, Parts& out) {
  switch (call_->Add(c, out)) {
    case JsonCall::Step::kMore:
      return Step::kMore;
    case JsonCall::Step::kDone:
      text_.clear();
      state_ = State::kComma;
      return Step::kMore;
    case JsonCall::Step::kDoneBefore:
      text_.clear();
      state_ = State::kComma;
      return Add(c, out);
    case JsonCall::Step::kNone:
      return Step::kNone;
    case JsonCall::Step::kBroken:
      return Step::kBroken;
  }
  return Step::kNone;
}

std::string CallList::untold() const {
  if (state_ != State::kCall) return text_;
  return call_->has_begun() ? std::string() : text_ + call_->text();
}

namespace {

class ListReader final : public CallReader {
 public:
  explicit ListReader(const FunctionNames& names) : names_(names) {}

  void Add(char c, Parts& out) override {
    if (state_ == State::kList) return AddOfList(c, out);
    std::string passed;
    const auto marker = scan_.Add(c, passed);
    const bool is_broken = state_ == State::kBroken;
    out.Add(is_broken ? Part::Kind::kArguments : Part::Kind::kContent, passed);
    if (!marker || *marker == kEnd) {
      if (marker) state_ = State::kText;
      return;
    }
    marker_ = *marker;
    list_.emplace(names_);
    state_ = State::kList;
    if (marker_ == kFunctools) AddOfList('[', out);
  }

  void Finish(Parts& out) override {
    if (state_ == State::kList) return TellList(out, list_->untold());
    out.Add(state_ == State::kBroken ? Part::Kind::kArguments : Part::Kind::kContent,
            scan_.TakeHeld());
  }

 private:
  enum class State { kText, kList, kBroken };
  static constexpr std::string_view kBegin = "<|tool_call|>";
  static constexpr std::string_view kEnd = "<|/tool_call|>";
  static constexpr std::string_view kFunctools = "functools[";

  void AddOfList(char c, Parts& out) {
    switch (list_->Add(c, out)) {
      case CallList::Step::kMore:
        return;
      case CallList::Step::kDone:
        state_ = State::kText;
        return;
      case CallList::Step::kDoneBefore:
        state_ = State::kText;
        return Add(c, out);
      case CallList::Step::kBroken:
        state_ = State::kBroken;
        return;
      case CallList::Step::kNone: {
        std::string text = list_->untold();
        text.pop_back();
        TellList(out, text);
        state_ = State::kText;
        return Add(c, out);
      }
    }
  }

  void TellList(Parts& out, const std::string& untold) {
    if (untold.find_first_not_of(" \n\r\t") == std::string::npos) return;
    std::string_view marker = marker_;
    if (marker == kFunctools) marker.remove_suffix(1);  // the list has its bracket
    out.Add(Part::Kind::kContent, std::string(marker) + untold);
  }

  const FunctionNames& names_;
  State state_ = State::kText;
  MarkerScan scan_{{kBegin, kEnd, kFunctools}};
  std::string_view marker_;
  std::optional<CallList> list_;
};

}  // namespace

std::unique_ptr<CallReader> MakeListReader(const FunctionNames& names) {
  return std::make_unique<ListReader>(names);
}

}  // namespace inflight::answer_parts
