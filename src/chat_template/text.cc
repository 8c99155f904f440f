// SPDX-License-Identifier: Apache-2.0
#include "chat_template/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <utility>

namespace inflight::chat_template {
namespace {

struct Character {
  int32_t code_point;  // -1: a byte that forms no character
  size_t num_bytes;
};

Character At(std::string_view text, size_t offset) {
  utf8proc_int32_t code_point = -1;
  const utf8proc_ssize_t used =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + offset,
                       static_cast<utf8proc_ssize_t>(text.size() - offset), &code_point);
  if (used <= 0) return {-1, 1};
  return {code_point, static_cast<size_t>(used)};
}

Character Last(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(4, text.size()); ++size) {
    const Character c = At(text, text.size() - size);
    if (c.code_point >= 0 && c.num_bytes == size) return c;
  }
  return {-1, 1};
}

// Python's str.isspace.
bool IsSpace(int32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

template <typename Predicate>
std::string_view StripLeftIf(std::string_view text, Predicate drop) {
  while (!text.empty()) {
    const Character c = At(text, 0);
    if (!drop(text.substr(0, c.num_bytes), c.code_point)) break;
    text.remove_prefix(c.num_bytes);
  }
  return text;
}

template <typename Predicate>
std::string_view StripRightIf(std::string_view text, Predicate drop) {
  while (!text.empty()) {
    const Character c = Last(text);
    if (!drop(text.substr(text.size() - c.num_bytes), c.code_point)) break;
    text.remove_suffix(c.num_bytes);
  }
  return text;
}

bool DropSpace(std::string_view, int32_t code_point) { return IsSpace(code_point); }

template <typename Change>
std::string Changed(std::string_view text, Change change) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character c = At(text, at);
    if (c.code_point < 0)
      out += text[at];
    else
      AppendUtf8(static_cast<uint32_t>(change(c.code_point)), out);
    at += c.num_bytes;
  }
  return out;
}

bool IsPrintable(int32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool IsCased(int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

}  // namespace

std::vector<size_t> CharacterOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += At(text, at).num_bytes) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

size_t NumCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += At(text, at).num_bytes) ++count;
  return count;
}

std::string_view StripLeft(std::string_view text) { return StripLeftIf(text, DropSpace); }
std::string_view StripRight(std::string_view text) { return StripRightIf(text, DropSpace); }
std::string_view Strip(std::string_view text) { return StripRight(StripLeft(text)); }

std::string_view StripLeft(std::string_view text, std::string_view chars) {
  return StripLeftIf(
      text, [&](std::string_view c, int32_t) { return chars.find(c) != std::string_view::npos; });
}

std::string_view StripRight(std::string_view text, std::string_view chars) {
  return StripRightIf(
      text, [&](std::string_view c, int32_t) { return chars.find(c) != std::string_view::npos; });
}

std::vector<std::string> Split(std::string_view text, int64_t max_splits) {
  std::vector<std::string> parts;
  text = StripLeft(text);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.emplace_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !IsSpace(At(text, end).code_point)) end += At(text, end).num_bytes;
    parts.emplace_back(text.substr(0, end));
    text = StripLeft(text.substr(end));
  }
  return parts;
}

std::vector<std::string> Split(std::string_view text, std::string_view separator,
                               int64_t max_splits) {
  std::vector<std::string> parts;
  for (size_t at = text.find(separator);
       at != std::string_view::npos &&
       (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits);
       at = text.find(separator)) {
    parts.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.emplace_back(text);
  return parts;
}

std::vector<std::string> SplitFromEnd(std::string_view text, const std::string* separator,
                                      int64_t max_splits) {
  std::vector<std::string> parts;
  const auto may_cut = [&] {
    return max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits;
  };
  if (separator != nullptr) {
    for (size_t at = text.rfind(*separator); at != std::string_view::npos && may_cut();
         at = text.rfind(*separator)) {
      parts.emplace_back(text.substr(at + separator->size()));
      text = text.substr(0, at);
    }
    parts.emplace_back(text);
  } else {
    const std::vector<size_t> offsets = CharacterOffsets(text);
    size_t end = offsets.size() - 1;  // in characters
    const auto is_space = [&](size_t i) { return IsSpace(At(text, offsets[i]).code_point); };
    while (true) {
      while (end > 0 && is_space(end - 1)) --end;
      if (end == 0) break;
      size_t begin = may_cut() ? end : 0;
      while (begin > 0 && !is_space(begin - 1)) --begin;
      parts.emplace_back(text.substr(offsets[begin], offsets[end] - offsets[begin]));
      end = begin;
    }
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string> SplitLines(std::string_view text, bool keep_ends) {
  const auto is_break = [](int32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = At(text, at);
    const size_t end = at;
    at += c.num_bytes;
    if (!is_break(c.code_point)) continue;
    if (c.code_point == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t max_count) {
  std::string out;
  int64_t count = 0;
  if (from.empty()) {  // as Python: before each character and at the end
    const std::vector<size_t> offsets = CharacterOffsets(text);
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (max_count < 0 || count++ < max_count) out += to;
      if (i + 1 < offsets.size()) out += text.substr(offsets[i], offsets[i + 1] - offsets[i]);
    }
    return out;
  }
  for (size_t at = text.find(from);
       at != std::string_view::npos && (max_count < 0 || count < max_count);
       at = text.find(from), ++count) {
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  out += text;
  return out;
}

std::string Upper(std::string_view text) { return Changed(text, utf8proc_toupper); }
std::string Lower(std::string_view text) { return Changed(text, utf8proc_tolower); }

std::string Capitalize(std::string_view text) {
  bool first = true;
  return Changed(text, [&](int32_t c) {
    return std::exchange(first, false) ? utf8proc_totitle(c) : utf8proc_tolower(c);
  });
}

std::string Title(std::string_view text) {
  bool in_word = false;
  return Changed(text, [&](int32_t c) {
    const int32_t changed = in_word ? utf8proc_tolower(c) : utf8proc_totitle(c);
    in_word = IsCased(c);
    return changed;
  });
}

std::string TitleOfWords(std::string_view text) {
  constexpr std::string_view kEnds = "-({[<";
  std::string out;
  bool is_first = true;
  for (size_t at = 0; at < text.size();) {
    const Character c = At(text, at);
    const std::string_view letter = text.substr(at, c.num_bytes);
    const bool is_end = IsSpace(c.code_point) || kEnds.find(letter) != std::string_view::npos;
    out += is_first ? Upper(letter) : Lower(letter);
    is_first = is_end;
    at += c.num_bytes;
  }
  return out;
}

std::string EscapedForHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string QuotedText(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Character c = At(text, at);
    const int32_t code = c.code_point < 0 ? static_cast<unsigned char>(text[at]) : c.code_point;
    if (code == quote || code == '\\')
      out += {'\\', static_cast<char>(code)};
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (c.code_point >= 0 && IsPrintable(code))
      out += text.substr(at, c.num_bytes);
    else
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    at += c.num_bytes;
  }
  return out + quote;
}

void AppendJsonText(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const Character c = At(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == '"' || byte == '\\') {
      out += {'\\', static_cast<char>(byte)};
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\r') {
      out += "\\r";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte == '\b') {
      out += "\\b";
    } else if (byte == '\f') {
      out += "\\f";
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else if (ensure_ascii && c.code_point >= 0x10000) {
      const int32_t rest = c.code_point - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    } else if (ensure_ascii && c.code_point >= 0x7f) {
      out += fmt::format("\\u{:04x}", c.code_point);
    } else {
      out += text.substr(at, c.num_bytes);
    }
    at += c.num_bytes;
  }
  out += '"';
}

void AppendUtf8(uint32_t code_point, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(std::max<int64_t>(0, size)));
}

}  // namespace inflight::chat_template
