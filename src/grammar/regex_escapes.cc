// SPDX-License-Identifier: Apache-2.0
#include "grammar/regex_escapes.h"

#include <fmt/format.h>

#include <charconv>

#include "base/status_macros.h"

namespace inflight::grammar {
namespace {

CharSet Single(uint32_t c) { return CharSet({{c, c}}); }

bool IsAsciiLetterOrDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The digits behind \u: of \uXXXX, two of them for a character above U+FFFF, or of \u{X...}.
Result<uint32_t> TakeUnicodeDigits(std::string_view& rest) {
  if (rest.starts_with('{')) {
    const size_t end = rest.find('}');
    std::string_view digits = rest.substr(1, end == std::string_view::npos ? 0 : end - 1);
    const uint32_t c = digits.size() > 6 ? kNoChar : TakeHex(digits, digits.size());
    if (c == kNoChar || c > kMaxChar) {
      return InvalidArgument("\\u{...} needs one to six hexadecimal digits of a character");
    }
    rest.remove_prefix(end + 1);
    return c;
  }
  const uint32_t c = TakeHex(rest, 4);
  if (c == kNoChar) return InvalidArgument("\\u needs four hexadecimal digits");
  if (c >= 0xD800 && c < 0xDC00 && rest.starts_with("\\u")) {
    std::string_view behind = rest.substr(2);
    const uint32_t low = TakeHex(behind, 4);
    if (low != kNoChar && low >= 0xDC00 && low < 0xE000) {
      rest = behind;
      return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  return c;
}

// Of one character always.
Result<CharSet> TakeUnicodeEscape(std::string_view& rest) {
  ASSIGN_OR_RETURN(const uint32_t c, TakeUnicodeDigits(rest));
  if (c >= 0xD800 && c < 0xE000) return InvalidArgument("half of a surrogate pair is no character");
  return Single(c);
}

}  // namespace

CharSet RegexDigits() { return CharSet({{'0', '9'}}); }

CharSet RegexWordChars() { return CharSet({{'0', '9'}, {'a', 'z'}, {'A', 'Z'}, {'_', '_'}}); }

CharSet RegexBlanks() {
  return CharSet({{'\t', '\r'},
                  {' ', ' '},
                  {0xA0, 0xA0},
                  {0x1680, 0x1680},
                  {0x2000, 0x200A},
                  {0x2028, 0x2029},
                  {0x202F, 0x202F},
                  {0x205F, 0x205F},
                  {0x3000, 0x3000},
                  {0xFEFF, 0xFEFF}});
}

CharSet RegexNotLineEnds() {
  return CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement();
}

uint32_t TakeHex(std::string_view& rest, size_t digits) {
  uint32_t value = 0;
  if (rest.size() < digits || digits == 0) return kNoChar;
  const char* end = rest.data() + digits;
  if (std::from_chars(rest.data(), end, value, 16).ptr != end) return kNoChar;
  rest.remove_prefix(digits);
  return value;
}

Result<CharSet> TakeRegexEscape(std::string_view& rest, bool is_in_class) {
  std::string_view behind = rest;
  const uint32_t c = TakeChar(behind);
  if (c == kNoChar) return InvalidArgument("\\ needs a character behind it");
  const char name = c < 0x80 ? static_cast<char>(c) : '\0';
  rest = behind;
  switch (name) {
    case 'd':
      return RegexDigits();
    case 'D':
      return RegexDigits().Complement();
    case 'w':
      return RegexWordChars();
    case 'W':
      return RegexWordChars().Complement();
    case 's':
      return RegexBlanks();
    case 'S':
      return RegexBlanks().Complement();
    case 'n':
      return Single('\n');
    case 'r':
      return Single('\r');
    case 't':
      return Single('\t');
    case 'f':
      return Single('\f');
    case 'v':
      return Single('\v');
    case 'u':
      return TakeUnicodeEscape(rest);
    case 'x': {
      const uint32_t value = TakeHex(rest, 2);
      if (value == kNoChar) return InvalidArgument("\\x needs two hexadecimal digits");
      return Single(value);
    }
    case '0':
      if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') break;  // an octal escape, or \0 and 1
      return Single(0);
    case 'b':
      if (is_in_class) return Single('\b');
      break;
    default:
      if (!IsAsciiLetterOrDigit(name)) return Single(c);
  }
  return InvalidArgument(fmt::format(
      "\\{} is not supported{}; supported are \\d \\D \\w \\W \\s \\S \\n \\r \\t \\f \\v \\0 \\x "
      "\\u and a backslash before what is no letter or digit",
      name,
      name == 'p' || name == 'P'   ? " (properties of characters; list their ranges)"
      : name == 'b' || name == 'B' ? " (ends of words)"
      : name >= '1' && name <= '9' ? " (a reference to a group)"
                                   : ""));
}

}  // namespace inflight::grammar
