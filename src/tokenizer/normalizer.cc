// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/status_macros.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/sentencepiece_normalizer.h"
#include "tokenizer/text_limits.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

using NormalizerKind = NormalizerStep::Kind;

bool IsAscii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
}

// A replacement stands for the last character of what it replaces.
Status Replace(const NormalizerStep& step, std::string& text, bool& keeps_start) {
  std::vector<Span> spans;
  RETURN_IF_ERROR(step.pattern->FindAll(text, spans));
  if (!spans.empty() && spans.front().is_match && spans.front().begin < spans.front().end) {
    keeps_start &= !step.content.empty() && CharAt(text.data()).size == spans.front().end;
  }
  std::string out;
  out.reserve(text.size());
  for (const Span& span : spans) {
    out += span.is_match ? std::string_view(step.content)
                         : std::string_view(text).substr(span.begin, span.end - span.begin);
    RETURN_IF_ERROR(CheckGrowth(out.size(), text.size()));
  }
  text = std::move(out);
  return Status::Ok();
}

// Marks behind a starter in the order of their combining classes. A stable sort, since marks that
// a client piles up must not cost quadratic time.
void OrderMarks(std::vector<utf8proc_int32_t>& codes) {
  const auto combining_class = [](utf8proc_int32_t c) {
    return utf8proc_get_property(c)->combining_class;
  };
  for (size_t i = 0; i < codes.size();) {
    if (combining_class(codes[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<ptrdiff_t>(i),
                     codes.begin() + static_cast<ptrdiff_t>(end),
                     [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

Status Decompose(std::string& text, bool compatible, bool compose) {
  if (IsAscii(text)) return Status::Ok();
  constexpr int kMaxExpansion = 32;  // no character decomposes into more
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Char c = CharAt(text.data() + i);
    i += c.size;
    utf8proc_int32_t parts[kMaxExpansion];
    int last_boundclass = 0;
    const auto n =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts, kMaxExpansion,
                                static_cast<utf8proc_option_t>(options), &last_boundclass);
    if (n < 0 || n > kMaxExpansion) return Internal("normalizer: utf8proc cannot decompose");
    codes.insert(codes.end(), parts, parts + n);
  }
  OrderMarks(codes);
  auto count = static_cast<utf8proc_ssize_t>(codes.size());
  if (compose) {
    count = utf8proc_normalize_utf32(
        codes.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (count < 0) return Internal("normalizer: utf8proc cannot compose");
  }
  text.clear();
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<char32_t>(codes[static_cast<size_t>(i)]), text);
  }
  return Status::Ok();
}

void Lowercase(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Char c = CharAt(text.data() + i);
    i += c.size;
    if (c.code == 0x130) {
      out += "i\xCC\x87";  // the one character whose lower case is two (SpecialCasing.txt)
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))),
                 out);
    }
  }
  text = std::move(out);
}

// Drops the characters that `is_dropped(code)`, and makes those a blank that `is_blank(code)`.
template <typename IsDropped, typename IsBlank>
void Filter(std::string& text, bool& keeps_start, const IsDropped& is_dropped,
            const IsBlank& is_blank) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Char c = CharAt(text.data() + i);
    if (is_dropped(c.code)) {
      keeps_start &= i != 0;
    } else if (is_blank(c.code)) {
      out += ' ';
    } else {
      out.append(text, i, c.size);
    }
    i += c.size;
  }
  text = std::move(out);
}

void DropFlagged(std::string& text, bool& keeps_start, uint8_t dropped, uint8_t blank) {
  const CharTable& table = CharTable::Get();
  Filter(
      text, keeps_start, [&](char32_t code) { return (table.Flags(code) & dropped) != 0; },
      [&](char32_t code) { return (table.Flags(code) & blank) != 0; });
}

// As the package has them (normalizers/unicode.rs, do_nmt).
void Nmt(std::string& text, bool& keeps_start) {
  Filter(
      text, keeps_start,
      [](char32_t c) {
        return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
               c == 0x8F || c == 0x9F;
      },
      [](char32_t c) {
        return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
               (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
               c == 0xFEFF || c == 0xFFFD;
      });
}

// As the package has them (normalizers/bert.rs, is_chinese_char), with its 2B920.
bool IsIdeograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

void SpaceIdeographs(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Char c = CharAt(text.data() + i);
    const bool spaced = IsIdeograph(c.code);
    if (spaced) out += ' ';
    out.append(text, i, c.size);
    if (spaced) out += ' ';
    i += c.size;
  }
  text = std::move(out);
}

void SpellBytes(std::string& text) {
  std::string out;
  out.reserve(2 * text.size());
  for (const char c : text) out += ByteAlphabet::Get().Symbol(static_cast<uint8_t>(c));
  text = std::move(out);
}

// One past the grapheme cluster that begins at `begin`.
size_t EndOfGrapheme(std::string_view text, size_t begin) {
  Char c = CharAt(text.data() + begin);
  size_t end = begin + c.size;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const Char next = CharAt(text.data() + end);
    if (c.code < 0x80 && next.code < 0x80 && c.code != '\r') break;
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state)) {
      break;
    }
    c = next;
    end += c.size;
  }
  return end;
}

// The package replaces a whole cluster of less than six bytes by what the shortest rule makes of
// its beginning, and else each character by itself.
Status Precompiled(const Charsmap& charsmap, std::string& text) {
  constexpr size_t kMaxClusterBytes = 5;
  std::string out;
  out.reserve(text.size());
  const std::string_view all = text;
  for (size_t i = 0; i < all.size();) {
    const size_t end = EndOfGrapheme(all, i);
    if (end - i <= kMaxClusterBytes) {
      if (const auto replacement = charsmap.Shortest(all.substr(i, end - i))) {
        out += *replacement;
        i = end;
      }
    }
    while (i < end) {
      const std::string_view character = all.substr(i, CharAt(all.data() + i).size);
      out += charsmap.Shortest(character).value_or(character);
      i += character.size();
    }
    RETURN_IF_ERROR(CheckGrowth(out.size(), all.size()));
  }
  text = std::move(out);
  return Status::Ok();
}

void Strip(const NormalizerStep& step, std::string& text, bool& keeps_start) {
  const CharTable& table = CharTable::Get();
  size_t begin = 0, end = text.size();
  while (step.strip_left && begin < end) {
    uint32_t size;
    if (!(table.FlagsAt(text.data() + begin, &size) & kSpace)) break;
    begin += size;
  }
  while (step.strip_right && end > begin) {
    const Char c = CharBefore(text, end);
    if (!(table.Flags(c.code) & kSpace)) break;
    end -= c.size;
  }
  keeps_start &= begin == 0;
  text = text.substr(begin, end - begin);
}

Status ApplyStep(const NormalizerStep& step, std::string& text, bool& keeps_start) {
  switch (step.kind) {
    case NormalizerKind::kPrepend:
      text.insert(0, step.content);
      return Status::Ok();
    case NormalizerKind::kReplace:
      return Replace(step, text, keeps_start);
    case NormalizerKind::kNfc:
      return Decompose(text, /*compatible=*/false, /*compose=*/true);
    case NormalizerKind::kNfd:
      return Decompose(text, /*compatible=*/false, /*compose=*/false);
    case NormalizerKind::kNfkc:
      return Decompose(text, /*compatible=*/true, /*compose=*/true);
    case NormalizerKind::kNfkd:
      return Decompose(text, /*compatible=*/true, /*compose=*/false);
    case NormalizerKind::kLowercase:
      Lowercase(text);
      return Status::Ok();
    case NormalizerKind::kStripAccents:
      DropFlagged(text, keeps_start, kMark, 0);
      return Status::Ok();
    case NormalizerKind::kStrip:
      Strip(step, text, keeps_start);
      return Status::Ok();
    case NormalizerKind::kByteLevel:
      SpellBytes(text);
      return Status::Ok();
    case NormalizerKind::kNmt:
      Nmt(text, keeps_start);
      return Status::Ok();
    case NormalizerKind::kCleanText:
      DropFlagged(text, keeps_start, kControl, kSpace);
      return Status::Ok();
    case NormalizerKind::kSpaceIdeographs:
      SpaceIdeographs(text);
      return Status::Ok();
    case NormalizerKind::kStripNonspacing:
      DropFlagged(text, keeps_start, kNonspacing, 0);
      return Status::Ok();
    case NormalizerKind::kPrecompiled:
      return Precompiled(*step.charsmap, text);
    case NormalizerKind::kSentencePiece:
      step.sentencepiece->Apply(text);
      return Status::Ok();
  }
  return Status::Ok();
}

// Of canonical and compatible forms 4: U+1D400, of four bytes, is "A"; composing shrinks less, for
// each character that is composed has two bytes at least. Of small letters 3: U+212A is "k".
std::optional<size_t> MaxShrinkingOf(const NormalizerStep& step) {
  switch (step.kind) {
    case NormalizerKind::kPrepend:
    case NormalizerKind::kByteLevel:
    case NormalizerKind::kSpaceIdeographs:
      return 1;
    case NormalizerKind::kReplace: {
      const size_t bytes = step.pattern->match_bytes();
      if (bytes == 0 || step.content.empty()) return std::nullopt;
      return (bytes + step.content.size() - 1) / step.content.size();
    }
    case NormalizerKind::kNfc:
    case NormalizerKind::kNfd:
    case NormalizerKind::kNfkc:
    case NormalizerKind::kNfkd:
      return 4;
    case NormalizerKind::kLowercase:
      return 3;
    case NormalizerKind::kSentencePiece:
      if (step.sentencepiece->KeepsAll()) return 1;
      return std::nullopt;
    case NormalizerKind::kStripAccents:
    case NormalizerKind::kStrip:
    case NormalizerKind::kNmt:
    case NormalizerKind::kCleanText:
    case NormalizerKind::kStripNonspacing:
    case NormalizerKind::kPrecompiled:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> Normalizer::MaxShrinking() const {
  size_t all = 1;
  for (const NormalizerStep& step : steps_) {
    const auto times = MaxShrinkingOf(step);
    if (!times) return std::nullopt;
    all *= *times;
  }
  return all;
}

Status Normalizer::Apply(std::string& text, bool& keeps_start) const {
  const size_t text_bytes = text.size();
  for (const NormalizerStep& step : steps_) {
    if (text.empty()) return Status::Ok();
    RETURN_IF_ERROR(ApplyStep(step, text, keeps_start));
    RETURN_IF_ERROR(CheckGrowth(text.size(), text_bytes));
  }
  return Status::Ok();
}

}  // namespace inflight::tokenizer
