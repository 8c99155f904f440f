// SPDX-License-Identifier: Apache-2.0
// The normalizer of a SentencePiece model: replacement rules, blanks made U+2581, a blank put in
// front, runs of blanks joined.
//
// User-defined pieces are left as they are, wherever one matches. Threads: immutable.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/charsmap.h"
#include "tokenizer/sentencepiece_proto.h"
#include "tokenizer/string_matcher.h"

namespace inflight::tokenizer {

class SentencePieceNormalizer {
 public:
  // kInvalidArgument names what is wrong with the rules.
  static Result<SentencePieceNormalizer> Create(const SentencePieceProto& proto);

  // For texts that may stand within others: no blank is put in front, and one there is stays.
  void set_inside_text() { inside_text_ = true; }

  void Apply(std::string& text) const;
  // Whether nothing of a text is dropped, but for a blank.
  bool KeepsAll() const { return !charsmap_ && !remove_extra_blanks_; }

 private:
  struct Part {
    std::string_view normal;
    uint32_t size;  // bytes of the text that it stands for
  };
  Part First(std::string_view text) const;
  bool IsPlain(char c) const;
  void AppendNormal(std::string_view text, bool after_blank, std::string& out) const;

  std::optional<Charsmap> charsmap_;
  StringMatcher user_defined_;
  std::array<bool, 256> plain_{};  // ASCII that stays itself before ASCII
  std::string_view blank_;         // what ' ' becomes
  bool add_dummy_prefix_ = true;
  bool remove_extra_blanks_ = true;
  bool blank_as_suffix_ = false;
  bool inside_text_ = false;
};

}  // namespace inflight::tokenizer
