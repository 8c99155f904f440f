// SPDX-License-Identifier: Apache-2.0
// Normalizers: text -> text, before it is split into words.
//
// Unicode forms come from utf8proc (Unicode 15). The `tokenizers` package has tables of Unicode 10
// and leaves characters assigned since as they are; here only those differ.
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
    kSentencePiece
  };
  Kind kind;
  std::string content;                           // kPrepend, kReplace
  std::shared_ptr<const SplitPattern> pattern;   // kReplace
  bool strip_left = false, strip_right = false;  // kStrip
  std::shared_ptr<const SentencePieceNormalizer> sentencepiece;
};

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  // Replaces `text` (valid UTF-8) by its normal form, which may be empty.
  Status Apply(std::string& text) const;
  // A text has at most so many times the bytes of its normal form. None where parts of any length
  // may be dropped.
  std::optional<size_t> MaxShrinking() const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace inflight::tokenizer
