// SPDX-License-Identifier: Apache-2.0
// <|tool_call>call:f{city:<|"|>Paris<|"|>,days:[1,2],on:{a:true}}<tool_call|>
// Gemma 4; <start_function_call>call:f{city:<escape>Paris<escape>}<end_function_call>
// FunctionGemma. Texts stand between marks, as they are; keys have none.
#include <array>

#include "answer_parts/call_formats.h"
#include "answer_parts/marker_scan.h"
#include "answer_parts/value_text.h"

namespace inflight::answer_parts {
namespace {

struct GemmaMarkers {
  std::string_view begin, end, quote;
};
constexpr std::array<GemmaMarkers, 2> kGemmaMarkers = {{
    {"<|tool_call>", "<tool_call|>", "<|\"|>"},
    {"<start_function_call>", "<end_function_call>", "<escape>"},
}};
constexpr std::string_view kGemmaCall = "call:";
constexpr size_t kMaxGemmaHead = 512;
constexpr size_t kMaxGemmaDepth = 1024;  // guides write up to 512

class GemmaReader final : public CallReader {
 public:
  explicit GemmaReader(const FunctionNames& names) : names_(names) {}

  void Add(char c, Parts& out) override {
    if (state_ == State::kHead) return AddOfHead(c, out);
    std::string passed;
    const auto marker = scan_.Add(c, passed);
    for (const char p : passed) AddPlain(p, out);
    if (marker) AddMarker(*marker, out);
  }

  void Finish(Parts& out) override {
    for (const char p : scan_.TakeHeld()) AddPlain(p, out);
    if (state_ == State::kHead) TellHead(out);
    if (state_ == State::kBody && !IsBlank(word_)) out.Add(Part::Kind::kArguments, Trimmed(word_));
    if (state_ == State::kBehind) TellBehind(out);
  }

 private:
  enum class State { kText, kHead, kBody, kQuoted, kBroken, kBehind };

  static std::vector<std::string_view> Begins() {
    return {kGemmaMarkers[0].begin, kGemmaMarkers[1].begin};
  }

  void Enter(State state) {
    state_ = state;
    if (state == State::kBody) scan_ = MarkerScan({markers_->quote, markers_->end});
    if (state == State::kQuoted) scan_ = MarkerScan({markers_->quote});
    if (state == State::kBroken) scan_ = MarkerScan({markers_->end});
    if (state == State::kBehind) scan_ = MarkerScan({markers_->end, markers_->begin});
    if (state == State::kText) scan_ = MarkerScan(Begins());
  }

  void BeginHead(std::string_view marker) {
    markers_ = marker == kGemmaMarkers[0].begin ? kGemmaMarkers.data() : &kGemmaMarkers[1];
    head_.clear();
    state_ = State::kHead;
  }

  void AddMarker(std::string_view marker, Parts& out) {
    switch (state_) {
      case State::kText:
        return BeginHead(marker);
      case State::kQuoted:
        out.Add(Part::Kind::kArguments, '"');
        return Enter(State::kBody);
      case State::kBody:
        if (marker != markers_->quote) return Enter(State::kText);  // it was cut
        out.Add(Part::Kind::kArguments, '"');
        return Enter(State::kQuoted);
      case State::kBehind:
        TellBehind(out);
        if (marker == markers_->begin) return BeginHead(marker);
        return Enter(State::kText);
      default:
        return Enter(State::kText);
    }
  }

  void AddPlain(char c, Parts& out) {
    switch (state_) {
      case State::kText:
        return out.Add(Part::Kind::kContent, c);
      case State::kHead:
        return AddOfHead(c, out);
      case State::kQuoted:
        return out.Add(Part::Kind::kArguments, EscapedText({&c, 1}));
      case State::kBroken:
        return out.Add(Part::Kind::kArguments, c);
      case State::kBehind:
        return behind_.push_back(c);
      case State::kBody:
        return AddOfBody(c, out);
    }
  }

  // "call:f" before the bracket.
  void AddOfHead(char c, Parts& out) {
    const std::string_view head = Trimmed(head_);
    const std::string_view name =
        head.starts_with(kGemmaCall) ? Trimmed(head.substr(kGemmaCall.size())) : head;
    if (c == '{' && head.starts_with(kGemmaCall) && names_.contains(name)) {
      out.Add(Part::Kind::kCall, name);
      open_.clear();
      word_.clear();
      Enter(State::kBody);
      return AddOfBody(c, out);
    }
    const bool may_be = c != '{' && c != '<' && head_.size() < kMaxGemmaHead;
    if (may_be) return head_.push_back(c);
    TellHead(out);
    Enter(State::kText);
    Add(c, out);
  }

  void TellHead(Parts& out) {
    out.Add(Part::Kind::kContent, std::string(markers_->begin) + head_);
    head_.clear();
  }

  void AddOfBody(char c, Parts& out) {
    switch (c) {
      case '{':
      case '[':
        if (!IsBlank(word_) || open_.size() == kMaxGemmaDepth) return Break(c, out);
        open_.push_back(c);
        return out.Add(Part::Kind::kArguments, c);
      case ':': {
        if (open_.back() != '{') return Break(c, out);
        const std::string_view key = Trimmed(std::string_view(word_));
        // A key between marks is told already.
        if (!key.empty()) out.Add(Part::Kind::kArguments, '"' + EscapedText(key) + '"');
        word_.clear();
        return out.Add(Part::Kind::kArguments, ": ");
      }
      case ',':
        TellWord(out);
        return out.Add(Part::Kind::kArguments, ", ");
      case '}':
      case ']':
        if (open_.back() != (c == '}' ? '{' : '[')) return Break(c, out);
        TellWord(out);
        out.Add(Part::Kind::kArguments, c);
        open_.pop_back();
        if (open_.empty()) Enter(State::kBehind);
        return;
      default:
        return word_.push_back(c);
    }
  }

  void TellWord(Parts& out) {
    if (!IsBlank(word_)) out.Add(Part::Kind::kArguments, ValueOf(word_));
    word_.clear();
  }

  void Break(char c, Parts& out) {
    out.Add(Part::Kind::kArguments, std::exchange(word_, {}) + c);
    Enter(State::kBroken);
  }

  void TellBehind(Parts& out) {
    if (!IsBlank(behind_)) out.Add(Part::Kind::kContent, behind_);
    behind_.clear();
  }

  const FunctionNames& names_;
  const GemmaMarkers* markers_ = kGemmaMarkers.data();
  State state_ = State::kText;
  MarkerScan scan_{Begins()};
  std::string head_;
  std::string open_;  // brackets
  std::string word_;  // a key, or a value that is no text
  std::string behind_;
};

}  // namespace

std::unique_ptr<CallReader> MakeGemmaReader(const FunctionNames& names) {
  return std::make_unique<GemmaReader>(names);
}

}  // namespace inflight::answer_parts
