// SPDX-License-Identifier: Apache-2.0
#include "json/json_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "json/valid_text.h"

namespace inflight::json {
namespace {

// Decimal exponents from here to there are written as plain digits, others with an exponent.
constexpr int kMinPlainExponent = -6;  // 0.000001
constexpr int kMaxPlainExponent = 20;  // 100000000000000000000.0

// By character.
constexpr std::array<bool, 256> kIsEscaped = [] {
  std::array<bool, 256> is_escaped{};
  for (size_t c = 0; c < 0x20; ++c) is_escaped[c] = true;
  is_escaped['"'] = is_escaped['\\'] = true;
  return is_escaped;
}();

template <typename T>
void AppendInteger(std::string& out, T value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

}  // namespace

void AppendUtf8(std::string& out, uint32_t code) {
  const auto push = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | code >> 6);
    push(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    push(0xE0 | code >> 12);
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  } else {
    push(0xF0 | code >> 18);
    push(0x80 | (code >> 12 & 0x3F));
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  }
}

void AppendString(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  out.push_back('"');
  size_t run = 0;  // start of the characters that stand for themselves
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (!kIsEscaped[c]) continue;
    out.append(text.substr(run, i - run)).push_back('\\');
    run = i + 1;
    switch (c) {
      case '"':
      case '\\':
        out.push_back(static_cast<char>(c));
        break;
      case '\b':
        out.push_back('b');
        break;
      case '\f':
        out.push_back('f');
        break;
      case '\n':
        out.push_back('n');
        break;
      case '\r':
        out.push_back('r');
        break;
      case '\t':
        out.push_back('t');
        break;
      default:
        out.append("u00").push_back(kHex[c >> 4]);
        out.push_back(kHex[c & 15]);
    }
  }
  out.append(text.substr(run)).push_back('"');
}

void AppendDouble(std::string& out, double value) {
  if (std::isnan(value)) {
    out.append("NaN");
    return;
  }
  if (std::signbit(value)) out.push_back('-');
  if (std::isinf(value)) {
    out.append("Infinity");
    return;
  }
  if (value == 0) {
    out.append("0.0");
    return;
  }
  // d.ddde[+-]xx, from which come the digits and the exponent of the first.
  char text[40];
  const char* end =
      std::to_chars(text, text + sizeof(text), std::fabs(value), std::chars_format::scientific).ptr;
  std::string_view mantissa(text, static_cast<size_t>(end - text));
  const size_t e = mantissa.find('e');
  int exponent = 0;
  const char* exponent_text = text + e + 1 + (text[e + 1] == '+' ? 1 : 0);
  std::from_chars(exponent_text, end, exponent);
  std::string digits(1, mantissa[0]);
  if (e > 2) digits.append(mantissa.substr(2, e - 2));
  const auto num_digits = static_cast<int>(digits.size());

  if (exponent > kMaxPlainExponent || exponent < kMinPlainExponent) {
    out.push_back(digits[0]);
    if (num_digits > 1) out.append(".").append(digits, 1);
    out.push_back('e');
    AppendInteger(out, exponent);
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else if (num_digits <= exponent + 1) {
    out.append(digits).append(static_cast<size_t>(exponent + 1 - num_digits), '0').append(".0");
  } else {
    const auto whole = static_cast<size_t>(exponent + 1);
    out.append(digits, 0, whole).append(".").append(digits, whole);
  }
}

Writer& Writer::Open(char bracket) {
  Separate();
  out_.push_back(bracket);
  needs_comma_ = false;
  return *this;
}

Writer& Writer::Close(char bracket) {
  out_.push_back(bracket);
  needs_comma_ = true;
  return *this;
}

Writer& Writer::Key(std::string_view name) {
  Separate();
  AppendString(out_, name);
  out_.push_back(':');
  needs_comma_ = false;
  return *this;
}

Writer& Writer::String(std::string_view text) {
  Separate();
  AppendString(out_, text);
  return *this;
}

Writer& Writer::Int(int64_t value) {
  Separate();
  AppendInteger(out_, value);
  return *this;
}

Writer& Writer::Uint(uint64_t value) {
  Separate();
  AppendInteger(out_, value);
  return *this;
}

Writer& Writer::Double(double value) {
  Separate();
  AppendDouble(out_, value);
  return *this;
}

Writer& Writer::Bool(bool value) {
  Separate();
  out_.append(value ? "true" : "false");
  return *this;
}

Writer& Writer::Raw(std::string_view json) {
  Separate();
  out_.append(json);
  return *this;
}

void Writer::Separate() {
  if (needs_comma_) out_.push_back(',');
  needs_comma_ = true;
}

std::string OnOneLine(std::string_view json) {
  std::string line(json);
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

std::string ErrorBody(std::string_view message) {
  std::string body;
  Writer(body).BeginObject().Key("error").String(ValidText(message)).EndObject();
  return body;
}

}  // namespace inflight::json
