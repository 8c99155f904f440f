// SPDX-License-Identifier: Apache-2.0
// Finds the calls in a model's text, as one format writes them.
//
// A call begins where its function's name is known and its arguments begin; from there on arguments
// are told as they come. What turns out to be no call before that, or names a function that the
// request does not have, is content, as it was written. Where arguments stop being JSON behind it,
// the rest of them is told as it is.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "answer_parts/part.h"

namespace inflight::answer_parts {

// The functions of a request by name, each with its parameters that are texts.
using TextParameters = std::set<std::string, std::less<>>;
using FunctionNames = std::map<std::string, TextParameters, std::less<>>;

class CallReader {
 public:
  virtual ~CallReader() = default;

  // The next byte of the text; any number of parts come of it.
  virtual void Add(char c, Parts& out) = 0;
  // The text ended.
  virtual void Finish(Parts& out) = 0;
};

}  // namespace inflight::answer_parts
