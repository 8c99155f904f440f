// SPDX-License-Identifier: Apache-2.0
// Numbers and texts of Python that come byte by byte -> JSON, as soon as it is decided:
// docs.python.org/3/reference/lexical_analysis.html, "Literals".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace inflight::answer_parts {

// -1.5, 1_000, .5, 2., 1e+5, 0x1F, 0b1, 0o7. What is not decimal has at most 64 bits.
class PythonNumber {
 public:
  enum class Step {
    kMore,
    kDoneBefore,  // this byte is not of it; Finish is next
    kBad,
  };

  static bool Begins(char c);

  Step Add(char c, std::string& json);
  bool Finish(std::string& json) const;  // false: it was cut

 private:
  // kLeadingPoint: before it no digit stands, so that one must follow.
  enum class State {
    kBegin,
    kSign,
    kZero,
    kInteger,
    kPoint,
    kLeadingPoint,
    kFraction,
    kExponent,
    kBased
  };

  Step AddDigit(char c, std::string& json);
  Step AddSign(char c);
  Step AddPoint();
  Step AddExponent(char c);
  Step AddGap();
  Step BeginBased(char c);
  Step AddOfBased(char c);
  Step Hold(std::string_view json, State state);
  bool EndsWithDigit() const;

  State state_ = State::kBegin;
  std::string held_;      // of JSON, before it is known whether a digit follows
  bool has_gap_ = false;  // "_" was the last byte
  uint32_t base_ = 10;
  std::string digits_;  // of another base than ten
};

// What stands between quotes, one or three, with escapes of Python; of a raw text they are none.
// JSON is what stands between its quotes.
class PythonText {
 public:
  enum class Step {
    kMore,
    kDone,        // with its last quote
    kDoneBefore,  // it is empty, and this byte is not of it
    kAgain,       // what came before is decided; this byte is to be added once more
    kBad,
  };

  PythonText(char quote, bool is_raw) : quote_(quote), is_raw_(is_raw) {}

  Step Add(char c, std::string& json);
  bool may_be_over() const { return state_ == State::kSecondQuote; }

 private:
  // kFirst: behind the first quote. kSecondQuote: an empty text, or the second of three quotes.
  enum class State { kFirst, kSecondQuote, kBody, kEscape, kRawEscape, kHex, kOctal };

  Step AddOfBody(char c, std::string& json);
  Step AddOfEscape(char c, std::string& json);
  Step AddHexDigit(char c, std::string& json);
  Step AddOctalDigit(char c, std::string& json);
  Step BeginDigits(State state, int num_digits);
  Step EndCode(std::string& json);

  const char quote_;
  const bool is_raw_;
  State state_ = State::kFirst;
  bool is_triple_ = false;
  int num_quotes_ = 0;  // of the three that end it
  int digits_left_ = 0;
  uint32_t code_ = 0;
  uint32_t high_surrogate_ = 0;  // whose other half must follow
};

}  // namespace inflight::answer_parts
