// SPDX-License-Identifier: Apache-2.0
// The text of one answer, as it comes -> its parts. The parts of all pieces, joined, are the same
// however the text was cut.
//
// Blanks between parts of different kinds are of none.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer_parts/call_formats.h"
#include "answer_parts/marker_scan.h"
#include "answer_parts/part.h"
#include "answer_parts/reasoning_tags.h"

namespace inflight::answer_parts {

struct AnswerFormat {
  const CallFormat* calls = nullptr;                // null: calls are not looked for
  std::shared_ptr<const FunctionNames> names = {};  // with `calls`
  const ReasoningTags* reasoning = nullptr;         // null: nor is reasoning
  bool one_call = false;                            // what follows the first call is left out
  // What answers is guided: calls that BeginsOfCalls begins, or a text that is content, also where
  // it has markers. In channels that text is the first message that answers, and the last one.
  bool is_guided = false;

  bool is_plain() const { return calls == nullptr && reasoning == nullptr; }
  // The format of answers in channels, whose reader tells reasoning and calls; null: of another
  // kind.
  const CallFormat* channels() const;
  // Texts that the parser needs told where they are special tokens.
  std::vector<std::string_view> Markers() const;
};

class AnswerParser {
 public:
  AnswerParser(AnswerFormat format, BeginsIn begin);

  void Add(std::string_view text, Parts& out);
  void Finish(Parts& out);

  int num_calls() const { return num_calls_; }  // that were told

 private:
  enum class State { kBegin, kReasoning, kContent };

  void AddOne(char c);
  void AddOfContent(std::string_view text);
  void AddToReader(char c);
  void AddButContent(const Parts& read);
  void AddToBegin(char c);
  void Pass(Parts& out);
  void Tell(Part::Kind kind, std::string_view text, Parts& out);

  const AnswerFormat format_;
  State state_;
  std::optional<MarkerScan> scan_;               // for the tag that ends the state
  std::optional<MarkerScan> last_message_scan_;  // for what begins it, where one is the last
  bool is_last_message_ = false;
  std::vector<std::string> call_begins_;  // of guided answers, until it is known what begins
  std::string begun_;                     // the text until then
  std::unique_ptr<CallReader> reader_;
  Parts found_;  // before blanks are taken away
  std::optional<Part::Kind> last_;
  std::string blanks_;              // behind a text, until it is known what follows
  std::optional<Part::Kind> read_;  // before reasoning became content
  int num_calls_ = 0;
  bool is_over_ = false;
};

}  // namespace inflight::answer_parts
