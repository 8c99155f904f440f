// SPDX-License-Identifier: Apache-2.0
// <tool_call>
// <function=f>
// <parameter=city>
// Paris
// </parameter>
// </function>
// </tool_call>
// Qwen3-Coder. A value is a text where the request's schema says so, else as ValueOf reads it; the
// line ends around it are not of it. <tool_call> may be left out.
//
// Seed-OSS has <seed:tool_call> in its place, and values without line ends around them.
#include <optional>

#include "answer_parts/call_formats.h"
#include "answer_parts/marker_scan.h"
#include "answer_parts/value_text.h"

namespace inflight::answer_parts {
namespace {

struct CallTags {
  std::string_view opens, closes;
  bool has_bare_values = false;  // a line end behind a value is of it, if none stands before it
};
constexpr CallTags kQwenTags = {.opens = "<tool_call>", .closes = "</tool_call>"};
constexpr CallTags kSeedTags = {
    .opens = "<seed:tool_call>", .closes = "</seed:tool_call>", .has_bare_values = true};
constexpr std::string_view kFunctionOpens = "<function=";
constexpr std::string_view kFunctionCloses = "</function>";
constexpr std::string_view kParameterOpens = "<parameter=";
constexpr std::string_view kParameterCloses = "</parameter>";
constexpr size_t kMaxTagBytes = 512;

class QwenCoderReader final : public CallReader {
 public:
  QwenCoderReader(const FunctionNames& names, const CallTags& tags)
      : names_(names), tags_(tags), scan_({tags.opens, tags.closes, kFunctionOpens}) {}

  void Add(char c, Parts& out) override {
    if (state_ == State::kFunction || state_ == State::kParameter) return AddOfName(c, out);
    std::string passed;
    const auto marker = scan_.Add(c, passed);
    switch (state_) {
      case State::kText:
        return AddOfText(passed, marker, out);
      case State::kBetween:
        return AddBetween(passed, marker, out);
      default:
        AddOfValue(passed, out);
        if (marker) EndValue(out);
    }
  }

  void Finish(Parts& out) override {
    const std::string held = scan_.TakeHeld();
    switch (state_) {
      case State::kText:
        return AddOfText(held, {}, out), TellOpening(out);
      case State::kFunction:
        return out.Add(Part::Kind::kContent, opening_ + std::string(kFunctionOpens) + name_);
      case State::kValue:
        return AddOfValue(held, out);
      case State::kBetween:
        return TellBetween(held, out);
      case State::kParameter:
        return;
    }
  }

 private:
  // kFunction, kParameter: the name in a tag. kBetween: among parameters.
  enum class State { kText, kFunction, kBetween, kParameter, kValue };

  void Enter(State state) {
    state_ = state;
    if (state == State::kText) scan_ = MarkerScan({tags_.opens, tags_.closes, kFunctionOpens});
    if (state == State::kBetween)
      scan_ =
          MarkerScan({kParameterOpens, kFunctionCloses, tags_.closes, kFunctionOpens, tags_.opens});
    if (state == State::kValue) scan_ = MarkerScan({kParameterCloses});
    name_.clear();
  }

  // Behind <tool_call> blanks may stand; anything else makes it a text.
  void AddOfText(std::string_view text, std::optional<std::string_view> marker, Parts& out) {
    if (!opening_.empty() && IsBlank(text)) {
      opening_.append(text);
    } else {
      TellOpening(out);
      out.Add(Part::Kind::kContent, text);
      if (!IsBlank(text)) is_behind_ = false;
    }
    if (!marker) return;
    if (*marker == kFunctionOpens) return Enter(State::kFunction);
    TellOpening(out);
    if (*marker == tags_.opens) {
      opening_ = tags_.opens;
    } else if (!std::exchange(is_behind_, false)) {
      out.Add(Part::Kind::kContent, tags_.closes);
    }
  }

  void TellOpening(Parts& out) { out.Add(Part::Kind::kContent, std::exchange(opening_, {})); }

  void AddOfName(char c, Parts& out) {
    if (c != '>' && name_.size() < kMaxTagBytes) return name_.push_back(c);
    const std::string name(Trimmed(name_));
    if (state_ == State::kParameter) return BeginValue(name, out);
    const auto found = c == '>' ? names_.find(name) : names_.end();
    if (found == names_.end()) {
      TellOpening(out);
      out.Add(Part::Kind::kContent, std::string(kFunctionOpens) + name_ + c);
      return Enter(State::kText);
    }
    opening_.clear();
    texts_ = &found->second;
    num_values_ = 0;
    out.Add(Part::Kind::kCall, name);
    out.Add(Part::Kind::kArguments, '{');
    Enter(State::kBetween);
  }

  void BeginValue(const std::string& name, Parts& out) {
    if (num_values_++ > 0) out.Add(Part::Kind::kArguments, ", ");
    out.Add(Part::Kind::kArguments, '"' + EscapedText(name) + "\": ");
    is_text_ = texts_->contains(name);
    if (is_text_) out.Add(Part::Kind::kArguments, '"');
    value_.clear();
    is_first_ = true;
    is_bare_ = tags_.has_bare_values;
    Enter(State::kValue);
  }

  // Of a text all but a line end that may be the last is told.
  void AddOfValue(std::string_view text, Parts& out) {
    for (const char c : text) {
      if (std::exchange(is_first_, false) && c == '\n') {
        is_bare_ = false;
        continue;
      }
      if (is_text_ && !value_.empty()) {
        out.Add(Part::Kind::kArguments, EscapedText(value_));
        value_.clear();
      }
      if (is_text_ && c != '\n') {
        out.Add(Part::Kind::kArguments, EscapedText({&c, 1}));
      } else {
        value_.push_back(c);
      }
    }
  }

  void EndValue(Parts& out) {
    if (is_text_ && is_bare_) out.Add(Part::Kind::kArguments, EscapedText(value_));
    out.Add(Part::Kind::kArguments, is_text_ ? "\"" : ValueOf(value_));
    Enter(State::kBetween);
  }

  void AddBetween(std::string_view text, std::optional<std::string_view> marker, Parts& out) {
    between_.append(text);
    if (!marker) return;
    if (*marker == kParameterOpens) {
      between_.clear();  // no format has words there
      return Enter(State::kParameter);
    }
    out.Add(Part::Kind::kArguments, '}');
    TellBetween({}, out);
    // The end may be left out where another call begins.
    if (*marker == kFunctionOpens) return Enter(State::kFunction);
    if (*marker == tags_.opens) opening_ = tags_.opens;
    is_behind_ = *marker == kFunctionCloses;
    Enter(State::kText);
  }

  void TellBetween(std::string_view rest, Parts& out) {
    between_.append(rest);
    if (!IsBlank(between_)) out.Add(Part::Kind::kContent, between_);
    between_.clear();
  }

  const FunctionNames& names_;
  const CallTags& tags_;
  State state_ = State::kText;
  MarkerScan scan_;
  std::string opening_;     // <tool_call> and blanks behind it
  bool is_behind_ = false;  // a call: its </tool_call> may follow
  std::string name_;
  const TextParameters* texts_ = nullptr;  // of the function
  int num_values_ = 0;
  bool is_text_ = false;
  bool is_first_ = false;  // byte of the value
  bool is_bare_ = false;   // no line ends stand around it
  std::string value_;      // of a text a line end, else all
  std::string between_;
};

}  // namespace

std::unique_ptr<CallReader> MakeQwenCoderReader(const FunctionNames& names) {
  return std::make_unique<QwenCoderReader>(names, kQwenTags);
}

std::unique_ptr<CallReader> MakeSeedReader(const FunctionNames& names) {
  return std::make_unique<QwenCoderReader>(names, kSeedTags);
}

}  // namespace inflight::answer_parts
