// SPDX-License-Identifier: Apache-2.0
// <|channel|>analysis<|message|>what it thinks<|end|>
// <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
// <|start|>assistant<|channel|>final<|message|>what it says<|return|>
// gpt-oss (openai/harmony, "OpenAI harmony response format"). The prompt ends with the first
// <|start|>assistant; the recipient may stand before the channel, too. Analysis is reasoning,
// messages to nobody in other channels are content.
#include <algorithm>
#include <optional>

#include "answer_parts/call_formats.h"
#include "answer_parts/json_scan.h"
#include "answer_parts/marker_scan.h"

namespace inflight::answer_parts {
namespace {

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kEndOfMessage = "<|end|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kConstrain = "<|constrain|>";
constexpr std::string_view kEndOfCall = "<|call|>";
constexpr std::string_view kReturn = "<|return|>";
constexpr std::string_view kRole = "assistant";
constexpr std::string_view kTo = "to=";
constexpr std::string_view kFunctions = "functions.";
constexpr size_t kMaxHeaderBytes = 512;

// The word behind `mark`, up to a blank or a marker.
std::string_view WordBehind(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + mark.size());
  return header.substr(0, header.find_first_of(" \n\r\t<"));
}

class HarmonyReader final : public CallReader {
 public:
  explicit HarmonyReader(const FunctionNames& names) : names_(names) {}

  void Add(char c, Parts& out) override {
    if (state_ == State::kArguments) return AddOfArguments(c, out);
    std::string passed;
    const auto marker = scan_.Add(c, passed);
    if (state_ == State::kHeader)
      AddOfHeader(passed, out);
    else
      Tell(passed, out);
    if (marker) AddMarker(*marker, out);
  }

  void Finish(Parts& out) override {
    const std::string held = scan_.TakeHeld();
    if (state_ == State::kHeader) {
      header_.append(held);
      TellHeader(out);
    } else if (state_ == State::kBody) {
      Tell(held, out);
    }
    EndMessage(out);
  }

 private:
  // kHeader: what stands before <|message|>.
  enum class State { kHeader, kBody, kArguments };

  void AddOfHeader(std::string_view text, Parts& out) {
    header_.append(text);
    if (!MayBeHeader()) TellHeader(out);
  }

  // A text without a header is content: a prompt may have ended with one.
  bool MayBeHeader() const {
    if (header_.size() > kMaxHeaderBytes) return false;
    std::string_view text = header_;
    if (text.starts_with(kStart)) return true;
    text = text.substr(0, text.find("<|"));
    if (IsBlank(text)) return true;
    text = Trimmed(text);
    if (text.starts_with(kRole)) text = Trimmed(text.substr(kRole.size()));
    return std::ranges::any_of(std::array{kRole, kTo}, [&](std::string_view word) {
      return word.starts_with(text) || (word == kTo && text.starts_with(word));
    });
  }

  void TellHeader(Parts& out) {
    Begin(Part::Kind::kContent);
    if (!IsBlank(header_)) Tell(header_, out);
    header_.clear();
  }

  void AddMarker(std::string_view marker, Parts& out) {
    if (state_ == State::kHeader) {
      if (marker == kMessage) return BeginMessage(out);
      if (marker == kEndOfMessage || marker == kEndOfCall || marker == kReturn) {
        TellHeader(out);
        return EndMessage(out);
      }
      header_.append(marker);
      return;
    }
    if (marker == kMessage || marker == kConstrain) return Tell(marker, out);
    EndMessage(out);
    if (marker == kStart || marker == kChannel) header_ = marker;
  }

  void BeginMessage(Parts& out) {
    const std::string header = std::exchange(header_, {});
    const std::string_view channel = WordBehind(header, kChannel);
    const std::string_view recipient = WordBehind(header, kTo);
    std::string_view name = recipient;
    if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
    if (names_.contains(name)) {
      out.Add(Part::Kind::kCall, name);
      Begin(Part::Kind::kArguments);
      arguments_.emplace();
      state_ = State::kArguments;
      return;
    }
    Begin(channel == "analysis" ? Part::Kind::kReasoning : Part::Kind::kContent);
    if (kind_ == Part::Kind::kContent && !recipient.empty())
      Tell(header + std::string(kMessage), out);
  }

  void Begin(Part::Kind kind) {
    has_gap_ = kind == last_kind_;
    kind_ = kind;
    state_ = State::kBody;
    has_text_ = false;
  }

  void Tell(std::string_view text, Parts& out) {
    if (text.empty()) return;
    if (std::exchange(has_gap_, false) && kind_ != Part::Kind::kArguments) out.Add(kind_, "\n\n");
    out.Add(kind_, text);
    has_text_ = true;
  }

  void AddOfArguments(char c, Parts& out) {
    const JsonScan::Step step = arguments_->Add(c);
    if (step != JsonScan::Step::kBad) Tell({&c, 1}, out);
    if (step == JsonScan::Step::kMore) return;
    state_ = State::kBody;
    if (step == JsonScan::Step::kBad) return Add(c, out);  // it may begin a marker
    last_kind_ = kind_;
    Begin(Part::Kind::kContent);  // what follows belongs to no call
  }

  void EndMessage(Parts& out) {
    if (state_ != State::kHeader && kind_ == Part::Kind::kArguments && !has_text_) Tell("{}", out);
    if (state_ != State::kHeader && has_text_) last_kind_ = kind_;
    state_ = State::kHeader;
    header_.clear();
  }

  const FunctionNames& names_;
  State state_ = State::kHeader;
  MarkerScan scan_{{kStart, kEndOfMessage, kMessage, kChannel, kConstrain, kEndOfCall, kReturn}};
  std::string header_;
  Part::Kind kind_ = Part::Kind::kContent;  // of the message
  bool has_text_ = false;                   // of the message
  bool has_gap_ = false;                    // stands before it: the last one was of its kind
  std::optional<Part::Kind> last_kind_;
  std::optional<JsonScan> arguments_;
};

}  // namespace

std::unique_ptr<CallReader> MakeHarmonyReader(const FunctionNames& names) {
  return std::make_unique<HarmonyReader>(names);
}

}  // namespace inflight::answer_parts
