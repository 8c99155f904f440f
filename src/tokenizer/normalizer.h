// SPDX-License-Identifier: Apache-2.0
// Normalizers: text -> text, before it is split into words.
//
// Unicode forms and grapheme clusters come from utf8proc (Unicode 15). The `tokenizers` package has
// tables of forms of Unicode 10 and leaves characters assigned since as they are, and clusters of
// Unicode 17; here only those differ.
// Threads: immutable after loading; all methods are thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"
#include "tokenizer/split_pattern.h"

namespace inflight::tokenizer {

class Charsmap;
class SentencePieceNormalizer;

struct NormalizerStep {
  enum class Kind {
    kPrepend,
    kReplace,
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStripAccents,
    kStrip,
    kByteLevel,        // bytes -> their characters in the byte alphabet
    kNmt,              // control characters dropped, blanks of other kinds -> ' '
    kCleanText,        // BertNormalizer's clean_text: the same with other sets
    kSpaceIdeographs,  // BertNormalizer's handle_chinese_chars: a blank on both sides of each
    kStripNonspacing,  // BertNormalizer's strip_accents, behind kNfd
    kPrecompiled,      // replacement rules of SentencePiece, by grapheme cluster
    kSentencePiece
  };
  Kind kind;
  std::string content;                           // kPrepend, kReplace
  std::shared_ptr<const SplitPattern> pattern;   // kReplace
  bool strip_left = false, strip_right = false;  // kStrip
  std::shared_ptr<const Charsmap> charsmap;      // kPrecompiled
  std::shared_ptr<const SentencePieceNormalizer> sentencepiece;
};

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  // Replaces `text` (valid UTF-8) by its normal form, which may be empty. kInvalidArgument: it
  // would be out of proportion (text_limits.h).
  Status Apply(std::string& text) const {
    bool keeps_start = true;
    return Apply(text, keeps_start);
  }
  // `keeps_start` becomes false where what `text` began with is dropped.
  Status Apply(std::string& text, bool& keeps_start) const;
  // A text has at most so many times the bytes of its normal form. None where parts of any length
  // may be dropped.
  std::optional<size_t> MaxShrinking() const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace inflight::tokenizer
