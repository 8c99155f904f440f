// SPDX-License-Identifier: Apache-2.0
// [f(a=1, b="x"), g()]: calls of Python whose arguments are named literals, as the whole text.
// Llama 3.2 and 4, where their templates ask for it. A call is told where its first argument's
// value begins, and its arguments as soon as their JSON is decided.
#include <optional>

#include "answer_parts/call_formats.h"
#include "answer_parts/marker_scan.h"
#include "answer_parts/python_literal.h"
#include "answer_parts/value_text.h"

namespace inflight::answer_parts {
namespace {

constexpr std::string_view kPythonEnd = "<|python_end|>";

bool IsOfPythonName(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
}

class PythonicReader final : public CallReader {
 public:
  explicit PythonicReader(const FunctionNames& names) : names_(names) {}

  void Add(char c, Parts& out) override {
    std::string passed;
    const auto marker = scan_.Add(c, passed);
    for (const char one : passed) AddOne(one, out);
    if (marker) AddMarker(*marker, out);
  }

  void Finish(Parts& out) override {
    for (const char one : scan_.TakeHeld()) AddOne(one, out);
    Cut(out);
  }

 private:
  // kBegin: before a list. kElement: before a call. kArgument: before a parameter's name. kBroken:
  // arguments that are no literals.
  enum class State {
    kBegin,
    kText,
    kElement,
    kFunction,
    kArgument,
    kParameter,
    kValue,
    kBehindCall,
    kBroken
  };

  void AddMarker(std::string_view marker, Parts& out) {
    const bool is_of_text = state_ == State::kValue && literal_->is_in_text();
    if (is_of_text || (state_ == State::kBroken && marker != kPythonEnd)) {
      for (const char one : marker) AddOne(one, out);
    } else if (state_ == State::kText) {
      state_ = State::kBegin;
    } else if (state_ != State::kBegin && marker == kPythonEnd) {
      Cut(out);
      written_.clear();
      state_ = State::kText;
    }
  }

  void AddOne(char c, Parts& out) {
    if (state_ == State::kText) return out.Add(Part::Kind::kContent, c);
    if (state_ == State::kBroken) return out.Add(Part::Kind::kArguments, c);
    if (state_ == State::kValue) return AddOfValue(c, out);
    written_.push_back(c);
    if (state_ == State::kFunction || state_ == State::kParameter) return AddOfName(c, out);
    if (IsBlank(c)) return;
    switch (state_) {
      case State::kBegin:
        has_call_ = false;
        return c == '[' ? Enter(State::kElement) : TellText(out);
      case State::kElement:
        if (c == ']' && has_call_) return EndList();
        return BeginName(c, State::kFunction, out);
      case State::kArgument:
        if (c == ')') return EndCall(out);
        return BeginName(c, State::kParameter, out);
      default:  // kBehindCall
        if (c == ']') return EndList();
        return c == ',' ? Enter(State::kElement) : TellText(out);
    }
  }

  void Enter(State state) { state_ = state; }

  void BeginName(char c, State state, Parts& out) {
    if (!IsOfPythonName(c)) return Break(out);
    name_ = c;
    is_name_over_ = false;
    state_ = state;
  }

  void AddOfName(char c, Parts& out) {
    if (IsBlank(c)) {
      is_name_over_ = true;
    } else if (IsOfPythonName(c) && !is_name_over_) {
      name_.push_back(c);
    } else if (state_ == State::kFunction && c == '(' && names_.contains(name_)) {
      function_ = name_;
      is_told_ = false;
      state_ = State::kArgument;
    } else if (state_ == State::kParameter && c == '=') {
      json_ = (is_told_ ? ", \"" : "{\"") + EscapedText(name_) + "\": ";
      literal_.emplace();
      state_ = State::kValue;
    } else {
      Break(out);
    }
  }

  void AddOfValue(char c, Parts& out) {
    const PythonLiteral::Step step = literal_->Add(c);
    if (const std::string json = literal_->TakeJson(); !json.empty())
      Tell(std::exchange(json_, {}) + json, out);
    if (step == PythonLiteral::Step::kMore) return;
    if (step == PythonLiteral::Step::kBad) return Break(out);
    written_ = literal_->written() + c;
    literal_.reset();
    if (c == ')') return EndCall(out);
    return c == ',' ? Enter(State::kArgument) : Break(out);
  }

  void EndCall(Parts& out) {
    Tell(is_told_ ? "}" : "{}", out);
    has_call_ = true;
    state_ = State::kBehindCall;
  }

  void EndList() {
    written_.clear();
    had_list_ = true;
    state_ = State::kBegin;
  }

  void Tell(std::string_view json, Parts& out) {
    if (!std::exchange(is_told_, true)) out.Add(Part::Kind::kCall, function_);
    out.Add(Part::Kind::kArguments, json);
    written_.clear();
  }

  bool IsInArguments() const {
    return state_ == State::kArgument || state_ == State::kParameter || state_ == State::kValue;
  }

  // What is no literal belongs to a call that is told.
  void Break(Parts& out) {
    if (!IsInArguments() || !is_told_) return TellText(out);
    out.Add(Part::Kind::kArguments, TakeWritten());
    state_ = State::kBroken;
  }

  void TellText(Parts& out) {
    out.Add(Part::Kind::kContent, TakeWritten());
    state_ = State::kText;
  }

  std::string TakeWritten() {
    std::string written = std::exchange(written_, {});
    if (literal_) written.append(literal_->written());
    literal_.reset();
    return written;
  }

  // The text ended, or a marker says that the list has. What is not decided of arguments is none.
  void Cut(Parts& out) {
    const bool is_cut_call = IsInArguments() && is_told_;
    const bool is_behind = state_ == State::kBehindCall ||
                           (state_ == State::kElement && has_call_) ||
                           (state_ == State::kBegin && had_list_);
    const std::string written = TakeWritten();
    if (!is_cut_call && !is_behind) out.Add(Part::Kind::kContent, written);
  }

  const FunctionNames& names_;
  State state_ = State::kBegin;
  MarkerScan scan_{{"<|python_start|>", kPythonEnd, "<|python_tag|>"}};
  std::string written_;  // and not told; of a literal it has that itself
  std::string name_;     // of a function or a parameter
  bool is_name_over_ = false;
  std::string function_;  // of the call
  bool is_told_ = false;  // the call
  std::string json_;      // before the value
  std::optional<PythonLiteral> literal_;
  bool has_call_ = false;  // the list
  bool had_list_ = false;  // the text
};

}  // namespace

std::unique_ptr<CallReader> MakePythonicReader(const FunctionNames& names) {
  return std::make_unique<PythonicReader>(names);
}

}  // namespace inflight::answer_parts
