// SPDX-License-Identifier: Apache-2.0
// <|tool_call|>[{"name": "f", "arguments": {...}}]<|/tool_call|>
// Phi-4 mini; without the second marker Granite 3; functools[...] of Phi-4 mini, too.
#include "answer_parts/call_list.h"

#include "answer_parts/call_formats.h"
#include "answer_parts/marker_scan.h"

namespace inflight::answer_parts {

CallList::Step CallList::Add(char c, Parts& out) {
  if (state_ == State::kCall) return AddOfCall(c, out);
  if (state_ == State::kComma && !is_array_) return EndBefore(out);
  const bool opens = state_ == State::kBegin && c == '[';
  const bool separates = state_ == State::kComma && c == ',';
  if (IsBlank(c) || opens || separates) {
    text_.push_back(c);
    if (opens) is_array_ = true;
    if (opens || separates) state_ = State::kElement;
    return Step::kMore;
  }
  if (c == ']' && is_array_ && call_) return Step::kDone;
  if (c != '{' || state_ == State::kComma) return EndBefore(out);
  call_.emplace(names_);
  state_ = State::kCall;
  return AddOfCall(c, out);
}

CallList::Step CallList::AddOfCall(char c, Parts& out) {
  const JsonCall::Step step = call_->Add(c, out);
  if (step == JsonCall::Step::kMore) return Step::kMore;
  if (step == JsonCall::Step::kBroken) return Step::kBroken;
  if (step == JsonCall::Step::kNone) return EndBefore(out);
  text_.clear();
  state_ = State::kComma;
  return step == JsonCall::Step::kDone ? Step::kMore : Add(c, out);
}

CallList::Step CallList::EndBefore(Parts& out) const {
  Finish(out);
  return Step::kDoneBefore;
}

void CallList::Finish(Parts& out) const {
  if (state_ == State::kCall && call_->has_begun()) return;
  const std::string untold = state_ == State::kCall ? text_ + call_->text() : text_;
  if (!IsBlank(untold)) out.Add(Part::Kind::kContent, std::string(marker_) + untold);
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
    std::string_view before = *marker;
    const bool has_bracket = before == kFunctools;
    if (has_bracket) before.remove_suffix(1);  // it is the list's
    list_.emplace(names_, before);
    state_ = State::kList;
    if (has_bracket) AddOfList('[', out);
  }

  void Finish(Parts& out) override {
    if (state_ == State::kList) return list_->Finish(out);
    out.Add(state_ == State::kBroken ? Part::Kind::kArguments : Part::Kind::kContent,
            scan_.TakeHeld());
  }

 private:
  enum class State { kText, kList, kBroken };
  static constexpr std::string_view kBegin = "<|tool_call|>";
  static constexpr std::string_view kEnd = "<|/tool_call|>";
  static constexpr std::string_view kFunctools = "functools[";

  void AddOfList(char c, Parts& out) {
    const CallList::Step step = list_->Add(c, out);
    if (step == CallList::Step::kMore) return;
    state_ = step == CallList::Step::kBroken ? State::kBroken : State::kText;
    if (step == CallList::Step::kDoneBefore) Add(c, out);
  }

  const FunctionNames& names_;
  State state_ = State::kText;
  MarkerScan scan_{{kBegin, kEnd, kFunctools}};
  std::optional<CallList> list_;
};

}  // namespace

std::unique_ptr<CallReader> MakeListReader(const FunctionNames& names) {
  return std::make_unique<ListReader>(names);
}

}  // namespace inflight::answer_parts
