// SPDX-License-Identifier: Apache-2.0
// Follows a JSON object that comes byte by byte: is it one so far, and where does it end?
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace inflight::answer_parts {

class JsonScan {
 public:
  enum class Step {
    kMore,  // an object so far
    kDone,  // its closing bracket
    kBad,   // no object, whatever follows; the scan is over
  };

  Step Add(char c);

  size_t depth() const { return open_.size(); }  // brackets that are open
  // Of the last byte: it ended a key or the text of a value; `text` is without quotes, as written.
  bool ended_key() const { return ended_key_; }
  bool ended_text() const { return ended_text_; }
  const std::string& text() const { return token_; }

 private:
  enum class State {
    kBegin,
    kKeyOrEnd,
    kKey,
    kColon,
    kValue,
    kValueOrEnd,
    kCommaOrEnd,
    kString,
    kEscape,
    kHex,
    kWord,
    kOver
  };

  Step Bad();
  Step Open(char c);
  Step Close(char c);
  Step AddOfString(char c);
  Step BeginValue(char c);
  Step AddOfWord(char c);
  bool WordIsWhole() const;

  State state_ = State::kBegin;
  std::string open_;   // "{[{"
  std::string token_;  // of a text or a word: a number, true, false, null
  bool is_key_ = false;
  bool ended_key_ = false;
  bool ended_text_ = false;
  int hex_left_ = 0;
};

}  // namespace inflight::answer_parts
