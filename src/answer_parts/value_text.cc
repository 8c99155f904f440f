// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/value_text.h"

#include "answer_parts/part.h"
#include "json/json_reader.h"
#include "json/json_writer.h"

namespace inflight::answer_parts {

std::string EscapedText(std::string_view text) {
  std::string quoted;
  json::AppendString(quoted, text);
  return quoted.substr(1, quoted.size() - 2);
}

namespace {

// NaN and Infinity, which are no JSON, may stand outside its texts.
bool HasSpecialNumber(std::string_view value) {
  bool is_in_text = false;
  for (size_t i = 0; i < value.size(); ++i) {
    const char c = value[i];
    if (is_in_text && c == '\\') {
      ++i;
    } else if (c == '"') {
      is_in_text = !is_in_text;
    } else if (!is_in_text && (c == 'N' || c == 'I')) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string ValueOf(std::string_view word) {
  word = Trimmed(word);
  if (word == "True") return "true";
  if (word == "False") return "false";
  if (word == "None") return "null";
  if (json::Value::Parse(word).ok() && !HasSpecialNumber(word)) return std::string(word);
  return '"' + EscapedText(word) + '"';
}

}  // namespace inflight::answer_parts
