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
        return TellHead(out, head_);
      case State::kList:
        return TellHead(out, list_->untold());
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
    const bool is_empty = head_.find_first_not_of(" \n\r\t") == std::string::npos;
    if ((c == '[' || c == '{') && is_empty) {
      list_.emplace(names_);
      state_ = State::kList;
      return AddOfList(c, out);
    }
    if (c != '{') {
      head_.push_back(c);
      if (head_.size() <= kMaxNameBytes && c != '\n') return;
      TellHead(out, head_);
      state_ = State::kText;
      return;
    }
    std::string name = head_.substr(0, head_.find(kCallId));
    name = name.substr(0, name.find(kArgs));
    while (!name.empty() && IsBlank(name.back())) name.pop_back();
    name.erase(0, name.find_first_not_of(" \n\r\t"));
    if (!names_.contains(name)) {
      TellHead(out, head_);
      state_ = State::kText;
      return Add(c, out);
    }
    out.Add(Part::Kind::kCall, name);
    arguments_.emplace();
    state_ = State::kArguments;
    AddOfArguments(c, out);
  }

  void AddOfArguments(char c, Parts& out) {
    switch (arguments_->Add(c, out)) {
      case JsonScan::Step::kMore:
        return;
      case JsonScan::Step::kDone:
        state_ = State::kText;
        return;
      case JsonScan::Step::kBad:
        state_ = State::kBroken;
        return;
    }
  }

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
        TellHead(out, text);
        state_ = State::kText;
        return Add(c, out);
      }
    }
  }

  void TellHead(Parts& out, const std::string& text) {
    if (text.find_first_not_of(" \n\r\t") != std::string::npos)
      out.Add(Part::Kind::kContent, std::string(kMistralBegin) + text);
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
