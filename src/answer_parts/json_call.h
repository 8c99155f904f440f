// SPDX-License-Identifier: Apache-2.0
// A call that is a JSON object: {"name": ..., "arguments": {...}}, in any order, with "parameters"
// as the other name of the arguments and members of other names passed over.
#pragma once

#include <cstddef>
#include <string>

#include "answer_parts/call_reader.h"
#include "answer_parts/json_scan.h"

namespace inflight::answer_parts {

class JsonCall {
 public:
  enum class Step {
    kMore,
    kDone,        // the call is told
    kDoneBefore,  // it is, and this byte is not of it
    kNone,        // it is no call, and this byte is not of `text`
    kBroken,      // its arguments were no JSON; what follows belongs to them
  };

  explicit JsonCall(const FunctionNames& names) : names_(names) {}

  Step Add(char c, Parts& out);

  const std::string& text() const { return text_; }  // what was added
  bool has_begun() const { return has_begun_; }      // its name is told

 private:
  Step Take(char c, Parts& out);
  Step Follow(char c, Parts& out);
  Step End(Parts& out);
  bool TakeName();
  std::string WholeArguments() const;

  const FunctionNames& names_;
  JsonScan scan_;
  std::string text_;
  std::string key_;   // the last one of the object itself
  std::string name_;  // of the function
  bool has_name_ = false;
  bool has_begun_ = false;
  bool is_in_arguments_ = false;
  size_t arguments_begin_ = 0;  // [begin, end) of text_, where they came before the name
  size_t arguments_end_ = 0;
};

// An object of arguments alone, behind a name that is known.
class ArgumentsObject {
 public:
  JsonScan::Step Add(char c, Parts& out) {
    out.Add(Part::Kind::kArguments, c);
    return scan_.Add(c);
  }

 private:
  JsonScan scan_;
};

}  // namespace inflight::answer_parts
