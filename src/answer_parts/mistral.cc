// SPDX-License-Identifier: Apache-2.0
// [TOOL_CALLS][{"name": "f", "arguments": {...}}]
// [TOOL_CALLS]f[ARGS]{...}, with [CALL_ID] and an id before [ARGS] in some
// Mistral, Mixtral, Ministral, Magistral, Devstral.
#include <optional>

#include "answer_parts/call_formats.h"
#include "answer_parts/call_list.h"
#include "answer_parts/marker_scan.h"

namespace inflight::answer_parts {
namespace {

constexpr std::string_view kMistralBegin = "[TOOL_CALLS]";
constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";
constexpr size_t kMaxNameBytes = 256;

class MistralReader final : public CallReader {
 public:
  explicit MistralReader(const FunctionNames& names) : names_(names) {}

  void Add(char c, Parts& out) override {
    switch (state_) {
      case State::kText:
      case State::kBroken: {
        std::string passed;
        const bool begins = scan_.Add(c, passed).has_value();
        out.Add(state_ == State::kText ? Part::Kind::kContent : Part::Kind::kArguments, passed);
        if (begins) Begin();
        return;
      }
      case State::kHead:
        return AddOfHead(c, out);
      case State::kList:
        return AddOfList(c, out);
      case State::kArguments:
        return AddOfArguments(c, out);
    }
  }

  void Finish(Parts& out) override {
    switch (state_) {
      case State::kText:
        return out.Add(Part::Kind::kContent, scan_.TakeHeld());
      case State::kBroken:
        return out.Add(Part::Kind::kArguments, scan_.TakeHeld());
      case State::kHead:
        return TellHead(out);
      case State::kList:
        return list_->Finish(out);
      case State::kArguments:
        return;
    }
  }

 private:
  enum class State { kText, kHead, kList, kArguments, kBroken };

  void Begin() {
    state_ = State::kHead;
    head_.clear();
  }

  // What stands between the marker and a list or arguments.
  void AddOfHead(char c, Parts& out) {
    if ((c == '[' || c == '{') && IsBlank(head_)) {
      list_.emplace(names_, kMistralBegin);
      state_ = State::kList;
      return AddOfList(c, out);
    }
    if (c != '{') {
      head_.push_back(c);
      if (head_.size() <= kMaxNameBytes && c != '\n') return;
      TellHead(out);
      state_ = State::kText;
      return;
    }
    std::string_view name = head_;
    name = name.substr(0, name.find(kCallId));
    name = Trimmed(name.substr(0, name.find(kArgs)));
    if (!names_.contains(name)) {
      TellHead(out);
      state_ = State::kText;
      return Add(c, out);
    }
    out.Add(Part::Kind::kCall, name);
    arguments_.emplace();
    state_ = State::kArguments;
    AddOfArguments(c, out);
  }

  void AddOfArguments(char c, Parts& out) {
    const JsonScan::Step step = arguments_->Add(c, out);
    if (step == JsonScan::Step::kMore) return;
    state_ = step == JsonScan::Step::kBad ? State::kBroken : State::kText;
  }

  void AddOfList(char c, Parts& out) {
    const CallList::Step step = list_->Add(c, out);
    if (step == CallList::Step::kMore) return;
    state_ = step == CallList::Step::kBroken ? State::kBroken : State::kText;
    if (step == CallList::Step::kDoneBefore) Add(c, out);
  }

  void TellHead(Parts& out) {
    if (!IsBlank(head_)) out.Add(Part::Kind::kContent, std::string(kMistralBegin) + head_);
  }

  const FunctionNames& names_;
  State state_ = State::kText;
  MarkerScan scan_{{kMistralBegin}};
  std::string head_;
  std::optional<CallList> list_;
  std::optional<ArgumentsObject> arguments_;
};

}  // namespace

std::unique_ptr<CallReader> MakeMistralReader(const FunctionNames& names) {
  return std::make_unique<MistralReader>(names);
}

}  // namespace inflight::answer_parts
