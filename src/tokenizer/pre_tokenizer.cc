// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "base/status_macros.h"
#include "tokenizer/text_limits.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

using PreTokenizerKind = PreTokenizerStep::Kind;
using Piece = Pieces::Piece;

// Joins the spans of `spans` as `behavior` says and appends what is not empty to `out`, shifted by
// `base`.
void Arrange(std::vector<Span>& spans, SplitBehavior behavior, uint32_t base,
             std::vector<Piece>& out) {
  const size_t first = out.size();
  const auto push = [&](const Span& s) { out.push_back({base + s.begin, base + s.end}); };
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      for (const Span& s : spans) {
        if (s.begin < s.end && !(s.is_match && behavior == SplitBehavior::kRemoved)) push(s);
      }
      return;
    case SplitBehavior::kContiguous:
    case SplitBehavior::kMergedWithPrevious:
      for (const Span& s : spans) {
        const bool joins = behavior == SplitBehavior::kContiguous ? s.is_match == previous_match
                                                                  : s.is_match && !previous_match;
        if (joins && out.size() > first) {
          out.back().end = base + s.end;
        } else {
          push(s);
        }
        previous_match = s.is_match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      // From the right: a match joins what follows it, unless that is a match.
      for (size_t i = spans.size(); i-- > 0;) {
        const Span& s = spans[i];
        if (s.is_match && !previous_match && out.size() > first) {
          out.back().begin = base + s.begin;
        } else {
          push(s);
        }
        previous_match = s.is_match;
      }
      std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
      break;
  }
  std::erase_if(out, [](const Piece& p) { return p.begin == p.end; });
}

Status SplitPieces(const PreTokenizerStep& step, Pieces& pieces) {
  if (pieces.list.empty()) return Status::Ok();
  const uint32_t begin = pieces.list.front().begin;
  std::vector<Piece> out;
  std::vector<Span> spans;
  for (const Piece& piece : pieces.list) {
    spans.clear();
    const auto text = std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin);
    RETURN_IF_ERROR(step.pattern->FindAll(text, spans));
    if (step.invert) {
      for (Span& s : spans) s.is_match = !s.is_match;
    }
    Arrange(spans, step.behavior, piece.begin, out);
  }
  pieces.starts_input &= !out.empty() && out.front().begin == begin;
  pieces.list = std::move(out);
  return Status::Ok();
}

// Rewrites every piece into a new text by `append(piece_text, is_first, out)`.
template <typename Append>
void Rewrite(Pieces& pieces, const Append& append) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4 + 16);
  for (size_t i = 0; i < pieces.list.size(); ++i) {
    Piece& piece = pieces.list[i];
    const auto old = std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin);
    piece.begin = static_cast<uint32_t>(text.size());
    append(old, i == 0 && pieces.starts_input, text);
    piece.end = static_cast<uint32_t>(text.size());
  }
  pieces.text = std::move(text);
}

Status ByteLevel(const PreTokenizerStep& step, bool stays_bytes, Pieces& pieces) {
  if (step.add_prefix_space) {
    Rewrite(pieces, [](std::string_view old, bool, std::string& out) {
      if (!old.starts_with(' ')) out += ' ';
      out += old;
    });
  }
  if (step.pattern) RETURN_IF_ERROR(SplitPieces(step, pieces));
  if (stays_bytes) return Status::Ok();
  Rewrite(pieces, [](std::string_view old, bool, std::string& out) {
    for (const char c : old) out += ByteAlphabet::Get().Symbol(static_cast<uint8_t>(c));
  });
  return Status::Ok();
}

Status Metaspace(const PreTokenizerStep& step, Pieces& pieces) {
  const std::string& mark = step.replacement;
  Rewrite(pieces, [&](std::string_view old, bool is_first, std::string& out) {
    const bool prepends = step.prepend_scheme == PrependScheme::kAlways ||
                          (step.prepend_scheme == PrependScheme::kFirst && is_first);
    if (prepends && !old.starts_with(' ') && !old.starts_with(mark)) out += mark;
    for (size_t i = 0; i < old.size();) {
      const size_t blank = std::min(old.find(' ', i), old.size());
      out += old.substr(i, blank - i);
      if (blank < old.size()) out += mark;
      i = blank + 1;
    }
  });
  return step.split ? SplitPieces(step, pieces) : Status::Ok();
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<PreTokenizerStep> steps)
    : steps_(std::move(steps)),
      pieces_are_bytes_(!steps_.empty() && steps_.back().kind == PreTokenizerKind::kByteLevel) {}

bool PreTokenizer::KeepsAll() const {
  return std::ranges::none_of(steps_, [](const PreTokenizerStep& step) {
    return step.kind == PreTokenizerKind::kSplit && step.behavior == SplitBehavior::kRemoved;
  });
}

Status PreTokenizer::Apply(Pieces& pieces) const {
  const size_t text_bytes = pieces.text.size();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const PreTokenizerStep& step = steps_[i];
    switch (step.kind) {
      case PreTokenizerKind::kByteLevel:
        RETURN_IF_ERROR(ByteLevel(step, pieces_are_bytes_ && i + 1 == steps_.size(), pieces));
        break;
      case PreTokenizerKind::kMetaspace:
        RETURN_IF_ERROR(Metaspace(step, pieces));
        break;
      case PreTokenizerKind::kSplit:
        RETURN_IF_ERROR(SplitPieces(step, pieces));
        break;
    }
    RETURN_IF_ERROR(CheckGrowth(pieces.text.size(), text_bytes));
  }
  return Status::Ok();
}

}  // namespace inflight::tokenizer
