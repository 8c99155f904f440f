// SPDX-License-Identifier: Apache-2.0
// <tool_call>
// {"name": "f", "arguments": {...}}
// </tool_call>
// Hermes 2 Pro and 3, Qwen 2.5 and 3, SmolLM3, Granite 4.
#include <optional>

#include "answer_parts/call_formats.h"
#include "answer_parts/json_call.h"
#include "answer_parts/marker_scan.h"

namespace inflight::answer_parts {
namespace {

constexpr std::string_view kHermesBegin = "<tool_call>";
constexpr std::string_view kHermesEnd = "</tool_call>";

class HermesReader final : public CallReader {
 public:
  explicit HermesReader(const FunctionNames& names) : names_(names) {}

  void Add(char c, Parts& out) override {
    switch (state_) {
      case State::kText: {
        std::string passed;
        if (scan_.Add(c, passed)) Enter(State::kBlanks);
        return out.Add(Part::Kind::kContent, passed);
      }
      case State::kBlanks:
        if (IsBlank(c)) return blanks_.push_back(c);
        call_.emplace(names_);
        state_ = State::kCall;
        [[fallthrough]];
      case State::kCall:
        return AddOfCall(c, out);
      case State::kBroken:
      case State::kBehind:
        return AddBehind(c, out);
    }
  }

  void Finish(Parts& out) override {
    switch (state_) {
      case State::kText:
        return out.Add(Part::Kind::kContent, scan_.TakeHeld());
      case State::kBlanks:
        return out.Add(Part::Kind::kContent, std::string(kHermesBegin) + blanks_);
      case State::kCall:
        if (!call_->has_begun())
          out.Add(Part::Kind::kContent, std::string(kHermesBegin) + blanks_ + call_->text());
        return;
      case State::kBroken:
        return out.Add(Part::Kind::kArguments, scan_.TakeHeld());
      case State::kBehind:
        return TellBehind(out, scan_.TakeHeld());
    }
  }

 private:
  enum class State { kText, kBlanks, kCall, kBroken, kBehind };

  void Enter(State state) {
    state_ = state;
    blanks_.clear();
    behind_.clear();
    scan_ =
        state == State::kText ? MarkerScan({kHermesBegin}) : MarkerScan({kHermesEnd, kHermesBegin});
  }

  void AddOfCall(char c, Parts& out) {
    switch (call_->Add(c, out)) {
      case JsonCall::Step::kMore:
        return;
      case JsonCall::Step::kDone:
        return Enter(State::kBehind);
      case JsonCall::Step::kDoneBefore:
        Enter(State::kBehind);
        return Add(c, out);
      case JsonCall::Step::kBroken:
        return Enter(State::kBroken);
      case JsonCall::Step::kNone:
        out.Add(Part::Kind::kContent, std::string(kHermesBegin) + blanks_ + call_->text());
        Enter(State::kText);
        return Add(c, out);  // it may begin a marker
    }
  }

  // Of a call that is told.
  void AddBehind(char c, Parts& out) {
    std::string passed;
    const auto marker = scan_.Add(c, passed);
    if (state_ == State::kBroken) {
      out.Add(Part::Kind::kArguments, passed);
    } else {
      behind_.append(passed);
    }
    if (!marker) return;
    if (state_ == State::kBehind) TellBehind(out, {});
    Enter(*marker == kHermesBegin ? State::kBlanks : State::kText);
  }

  void TellBehind(Parts& out, const std::string& rest) {
    behind_.append(rest);
    if (!IsBlank(behind_)) out.Add(Part::Kind::kContent, behind_);
  }

  const FunctionNames& names_;
  State state_ = State::kText;
  MarkerScan scan_{{kHermesBegin}};
  std::string blanks_;  // behind the marker
  std::optional<JsonCall> call_;
  std::string behind_;
};

}  // namespace

std::unique_ptr<CallReader> MakeHermesReader(const FunctionNames& names) {
  return std::make_unique<HermesReader>(names);
}

}  // namespace inflight::answer_parts
