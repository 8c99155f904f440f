// SPDX-License-Identifier: Apache-2.0
// Splitting text by a pattern: hand-written scanners for the patterns that nearly every
// byte-level model uses (published_patterns.h), PCRE2 for the others, plain search for strings.
//
// The `tokenizers` package matches with Oniguruma (Ruby syntax). Patterns are rewritten where the
// two read the same text differently; constructs that cannot be rewritten are refused by name.
// Threads: immutable after Compile; all methods are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::tokenizer {

// A part of a text; the parts of one list cover the text in order without gaps.
struct Span {
  uint32_t begin, end;  // bytes
  bool is_match;
};

class SplitPattern {
 public:
  virtual ~SplitPattern() = default;

  // Appends spans covering `text` (valid UTF-8, not empty).
  // kResourceExhausted: the pattern backtracks too much on this text.
  virtual Status FindAll(std::string_view text, std::vector<Span>& spans) const = 0;

  // Of every match; 0 where they may differ.
  virtual size_t match_bytes() const { return 0; }

  static Result<std::shared_ptr<const SplitPattern>> Regex(std::string_view pattern);
  static std::shared_ptr<const SplitPattern> Literal(std::string literal);  // not empty
  static std::shared_ptr<const SplitPattern> Gpt2();  // the pattern built into ByteLevel
  // Every character with any of `flags` (CharFlag) is a match.
  static std::shared_ptr<const SplitPattern> CharClass(uint8_t flags);
  static std::shared_ptr<const SplitPattern> WordRuns();  // \w+|[^\w\s]+
  // Matches are characters of no script before all others; other spans are runs of one script, by
  // UnicodeScripts of the `tokenizers` package: Han, Hiragana and Katakana are one, and what is of
  // no script goes on with the run before it.
  static std::shared_ptr<const SplitPattern> Scripts();
  // Every `count` characters are a match, and what is left behind them; at least 1.
  static std::shared_ptr<const SplitPattern> EveryCharacters(size_t count);
};

// `pattern` of Oniguruma's Ruby syntax in PCRE2's; exposed for its test.
Result<std::string> TranslateRegex(std::string_view pattern);

}  // namespace inflight::tokenizer
