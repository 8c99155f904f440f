// SPDX-License-Identifier: Apache-2.0
// {"name": "f", "parameters": {...}}, several behind one another, at the beginning of the text or
// behind <|python_tag|>.
// Llama 3.1, 3.2 and 3.3.
#include <optional>

#include "answer_parts/call_formats.h"
#include "answer_parts/json_call.h"
#include "answer_parts/marker_scan.h"

namespace inflight::answer_parts {
namespace {

constexpr std::string_view kTag = "<|python_tag|>";

class LlamaReader final : public CallReader {
 public:
  explicit LlamaReader(const FunctionNames& names) : names_(names) {}

  void Add(char c, Parts& out) override {
    if (state_ == State::kCall) return AddOfCall(c, out);
    if (state_ == State::kBroken) return out.Add(Part::Kind::kArguments, c);
    std::string passed;
    const bool is_tag = scan_.Add(c, passed).has_value();
    for (const char one : passed) AddOutside(one, out);
    if (!is_tag || state_ == State::kCall) return;
    if (state_ == State::kText) state_ = State::kBegin;
  }

  void Finish(Parts& out) override {
    if (state_ == State::kCall) {
      if (!call_->has_begun()) out.Add(Part::Kind::kContent, between_ + call_->text());
      return;
    }
    for (const char one : scan_.TakeHeld()) AddOutside(one, out);
    if (state_ == State::kBegin) out.Add(Part::Kind::kContent, between_);
  }

 private:
  // kBegin: a call may stand here. kBetween: so it may, and one stood before.
  enum class State { kBegin, kText, kCall, kBetween, kBroken };

  void AddOutside(char c, Parts& out) {
    if (state_ == State::kText) return out.Add(Part::Kind::kContent, c);
    const bool separates = state_ == State::kBetween && (c == ';' || c == ',');
    if (IsBlank(c) || separates) return between_.push_back(c);
    if (c == '{') {
      call_.emplace(names_);
      state_ = State::kCall;
      return AddOfCall(c, out);
    }
    TellText(out);
    out.Add(Part::Kind::kContent, c);
  }

  void AddOfCall(char c, Parts& out) {
    switch (call_->Add(c, out)) {
      case JsonCall::Step::kMore:
        return;
      case JsonCall::Step::kDone:
        state_ = State::kBetween;
        return between_.clear();
      case JsonCall::Step::kDoneBefore:
        state_ = State::kBetween;
        between_.clear();
        return Add(c, out);
      case JsonCall::Step::kBroken:
        state_ = State::kBroken;
        return;
      case JsonCall::Step::kNone:
        TellText(out);
        out.Add(Part::Kind::kContent, call_->text());
        return Add(c, out);
    }
  }

  void TellText(Parts& out) {
    out.Add(Part::Kind::kContent, between_);
    between_.clear();
    state_ = State::kText;
  }

  const FunctionNames& names_;
  State state_ = State::kBegin;
  MarkerScan scan_{{kTag}};
  std::string between_;  // blanks and separators before what comes
  std::optional<JsonCall> call_;
};

}  // namespace

std::unique_ptr<CallReader> MakeLlamaReader(const FunctionNames& names) {
  return std::make_unique<LlamaReader>(names);
}

}  // namespace inflight::answer_parts
