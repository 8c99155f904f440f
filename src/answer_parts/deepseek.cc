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
      if (const std::string_view name = NameOf(separator); names_.contains(name)) {
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
  std::string_view NameOf(size_t separator) const {
    const std::string_view head = head_;
    const std::string_view before = Trimmed(head.substr(0, separator));
    std::string_view behind = Trimmed(head.substr(separator + kSeparator.size()));
    if (behind.empty()) return before;
    constexpr std::string_view kFence = "```json";
    if (behind.ends_with(kFence)) behind.remove_suffix(kFence.size());
    return Trimmed(behind);
  }

  void AddOfArguments(char c, Parts& out) {
    const JsonScan::Step step = arguments_->Add(c, out);
    if (step == JsonScan::Step::kMore) return;
    state_ = step == JsonScan::Step::kBad ? State::kBroken : State::kBetween;
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
