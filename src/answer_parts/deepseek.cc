// SPDX-License-Identifier: Apache-2.0
// <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
// ```json
// {...}
// ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
// DeepSeek V3 and R1; V3.1 writes f<｜tool▁sep｜>{...} in place of the lines.
#include <optional>

#include "answer_parts/call_formats.h"
#include "answer_parts/json_call.h"
#include "answer_parts/marker_scan.h"

namespace inflight::answer_parts {
namespace {

constexpr std::string_view kCallsBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kCallsEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
constexpr size_t kMaxHeadBytes = 512;

class DeepSeekReader final : public CallReader {
 public:
  explicit DeepSeekReader(const FunctionNames& names) : names_(names) {}

  void Add(char c, Parts& out) override {
    if (state_ == State::kHead) return AddOfHead(c, out);
    if (state_ == State::kArguments) return AddOfArguments(c, out);
    std::string passed;
    const auto marker = scan_.Add(c, passed);
    if (state_ == State::kBroken) {
      out.Add(Part::Kind::kArguments, passed);
    } else if (state_ == State::kText) {
      out.Add(Part::Kind::kContent, passed);
    } else {
      between_.append(passed);
    }
    if (!marker) return;
    TellBetween(out);
    if (*marker == kCallBegin) {
      state_ = State::kHead;
      head_.clear();
    } else {
      state_ = *marker == kCallsEnd ? State::kText : State::kBetween;
    }
  }

  void Finish(Parts& out) override {
    switch (state_) {
      case State::kText:
        return out.Add(Part::Kind::kContent, scan_.TakeHeld());
      case State::kBetween:
        between_.append(scan_.TakeHeld());
        return TellBetween(out);
      case State::kBroken:
        return out.Add(Part::Kind::kArguments, scan_.TakeHeld());
      case State::kHead:
        return out.Add(Part::Kind::kContent, std::string(kCallBegin) + head_);
      case State::kArguments:
        return;
    }
  }

 private:
  // kBetween: among calls, where blanks and fences say nothing.
  enum class State { kText, kBetween, kHead, kArguments, kBroken };

  void AddOfHead(char c, Parts& out) {
    const size_t separator = head_.find(kSeparator);
    const bool ends = c == '{' && separator != std::string::npos;
    if (ends) {
      if (const std::string name = NameOf(separator); names_.contains(name)) {
        out.Add(Part::Kind::kCall, name);
        arguments_.emplace();
        state_ = State::kArguments;
        return AddOfArguments(c, out);
      }
    } else {
      head_.push_back(c);
      if (head_.size() <= kMaxHeadBytes) return;
    }
    out.Add(Part::Kind::kContent, std::string(kCallBegin) + head_);
    state_ = State::kText;
    if (ends) Add(c, out);
  }

  // "function<sep>f\n```json\n" or "f<sep>".
  std::string NameOf(size_t separator) const {
    std::string before = Trimmed(head_.substr(0, separator));
    std::string behind = head_.substr(separator + kSeparator.size());
    if (Trimmed(behind).empty()) return before;
    constexpr std::string_view kFence = "```json";
    const size_t fence = behind.find(kFence);
    if (fence != std::string::npos && Trimmed(behind.substr(fence + kFence.size())).empty())
      behind.resize(fence);
    return Trimmed(behind);
  }

  static std::string Trimmed(const std::string& text) {
    const size_t begin = text.find_first_not_of(" \n\r\t");
    if (begin == std::string::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \n\r\t") + 1 - begin);
  }

  void AddOfArguments(char c, Parts& out) {
    switch (arguments_->Add(c, out)) {
      case JsonScan::Step::kMore:
        return;
      case JsonScan::Step::kDone:
        state_ = State::kBetween;
        return;
      case JsonScan::Step::kBad:
        state_ = State::kBroken;
        return;
    }
  }

  void TellBetween(Parts& out) {
    if (between_.find_first_not_of("` \n\r\t") != std::string::npos)
      out.Add(Part::Kind::kContent, between_);
    between_.clear();
  }

  const FunctionNames& names_;
  State state_ = State::kText;
  MarkerScan scan_{{kCallsBegin, kCallsEnd, kCallBegin, kCallEnd}};
  std::string head_;
  std::string between_;
  std::optional<ArgumentsObject> arguments_;
};

}  // namespace

std::unique_ptr<CallReader> MakeDeepSeekReader(const FunctionNames& names) {
  return std::make_unique<DeepSeekReader>(names);
}

}  // namespace inflight::answer_parts
