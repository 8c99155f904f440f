// SPDX-License-Identifier: Apache-2.0
// Writes JSON as Triton does (docs/reference/protocol/http.md, "JSON"): compact, control characters
// as \u001F, bytes from 0x7F on as they are, doubles always with a decimal point or an exponent,
// NaN and Infinity for what is not finite.
//
// The caller nests Begin and End properly; commas are put in where they belong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace inflight::json {

void AppendUtf8(std::string& out, uint32_t code);            // a code point, no surrogate
void AppendString(std::string& out, std::string_view text);  // quoted and escaped
void AppendDouble(std::string& out, double value);           // shortest text that reads back equal

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}  // appends

  Writer& BeginObject() { return Open('{'); }
  Writer& EndObject() { return Close('}'); }
  Writer& BeginArray() { return Open('['); }
  Writer& EndArray() { return Close(']'); }
  Writer& Key(std::string_view name);
  Writer& String(std::string_view text);
  Writer& Int(int64_t value);
  Writer& Uint(uint64_t value);
  Writer& Double(double value);
  Writer& Bool(bool value);
  Writer& Null() { return Raw("null"); }
  Writer& Raw(std::string_view json);  // a value that is JSON already

 private:
  Writer& Open(char bracket);
  Writer& Close(char bracket);
  void Separate();

  std::string& out_;
  bool needs_comma_ = false;
};

// `json` on one line, as events have it: line ends stand between its values alone, and become
// blanks.
std::string OnOneLine(std::string_view json);

// {"error":"<message>"}, whatever bytes of a client the message quotes (valid_text.h).
std::string ErrorBody(std::string_view message);

}  // namespace inflight::json
