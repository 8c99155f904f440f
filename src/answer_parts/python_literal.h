// SPDX-License-Identifier: Apache-2.0
// A literal of Python that comes byte by byte -> JSON, as soon as it is decided: texts, numbers,
// True, False, None, lists, tuples and dicts, whose keys are texts, or become texts as Python's
// json.dumps makes them.
//
// What is not decided yet is held: a name or the first bytes of a number, an escape, quotes of
// which three may stand together, and from a parenthesis on whether it begins a tuple.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answer_parts/python_scalars.h"

namespace inflight::answer_parts {

class PythonLiteral {
 public:
  enum class Step {
    kMore,
    kDoneBefore,  // it ended, with blanks behind it, and this byte is not of it
    kBad,         // no literal, whatever follows
  };

  Step Add(char c);

  std::string TakeJson() { return std::exchange(decided_, {}); }  // decided since the last time
  // What is not decided, as it was written, with the last byte where that was kBad.
  const std::string& written() const { return written_; }
  bool is_in_text() const { return state_ == State::kText && !text_->may_be_over(); }

 private:
  enum class State {
    kValue,
    kValueOrEnd,
    kKeyOrEnd,
    kColon,
    kNumber,
    kWord,
    kText,
    kTextEnded,  // another may follow, which goes on with it
    kAfter       // a value
  };

  Step AddOne(char c);
  Step AddOfNumber(char c);
  Step AddOfWord(char c);
  Step AddOfText(char c);
  Step AddBehindText(char c);
  Step AddBehindValue(char c);
  Step Begin(char c);
  Step Open(char c);
  Step Close(char c);
  Step BeginText(char quote, bool is_raw);
  Step EndScalar(char c);
  Step Again(char c);
  Step DoneBefore();
  void Append(std::string_view json);
  void Decide();

  State state_ = State::kValue;
  std::string open_;                 // brackets; of a tuple "t"
  std::vector<size_t> parentheses_;  // places in json_ of those that may begin tuples
  bool is_key_ = false;              // what comes
  bool has_comma_ = false;           // before it
  std::optional<PythonNumber> number_;
  std::optional<PythonText> text_;
  std::string token_;  // a word as written, a number that is a key
  std::string json_, decided_, written_;
};

}  // namespace inflight::answer_parts
