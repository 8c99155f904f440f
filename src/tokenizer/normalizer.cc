// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/status_macros.h"
#include "tokenizer/sentencepiece_normalizer.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

using NormalizerKind = NormalizerStep::Kind;

bool IsAscii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
}

Status Replace(const NormalizerStep& step, std::string& text) {
  std::vector<Span> spans;
  RETURN_IF_ERROR(step.pattern->FindAll(text, spans));
  std::string out;
  out.reserve(text.size());
  for (const Span& span : spans) {
    out += span.is_match ? std::string_view(step.content)
                         : std::string_view(text).substr(span.begin, span.end - span.begin);
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

void StripAccents(std::string& text) {
  const CharTable& table = CharTable::Get();
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    uint32_t size;
    const uint8_t flags = table.FlagsAt(text.data() + i, &size);
    if (!(flags & kMark)) out.append(text, i, size);
    i += size;
  }
  text = std::move(out);
}

void Strip(const NormalizerStep& step, std::string& text) {
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
  text = text.substr(begin, end - begin);
}

Status ApplyStep(const NormalizerStep& step, std::string& text) {
  switch (step.kind) {
    case NormalizerKind::kPrepend:
      text.insert(0, step.content);
      return Status::Ok();
    case NormalizerKind::kReplace:
      return Replace(step, text);
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
      StripAccents(text);
      return Status::Ok();
    case NormalizerKind::kStrip:
      Strip(step, text);
      return Status::Ok();
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

Status Normalizer::Apply(std::string& text) const {
  for (const NormalizerStep& step : steps_) {
    if (text.empty()) return Status::Ok();
    RETURN_IF_ERROR(ApplyStep(step, text));
  }
  return Status::Ok();
}

}  // namespace inflight::tokenizer
