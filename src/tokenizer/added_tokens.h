// SPDX-License-Identifier: Apache-2.0
// Added tokens: strings that are cut out of the text before the model sees it (control tokens,
// words added in fine-tuning).
//
// Threads: immutable after loading; all methods are thread-safe.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "inflight/request.h"
#include "inflight/status.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/string_matcher.h"
#include "tokenizer/vocab.h"

namespace inflight::tokenizer {

struct AddedToken {
  std::string content;
  bool special = false;      // left out by Decode with skip_special_tokens
  bool normalized = true;    // sought in the normalized text, by its own normal form
  bool single_word = false;  // only between characters that are not \w
  bool lstrip = false;       // takes the blanks before it along
  bool rstrip = false;       // takes the blanks behind it along
};

class AddedTokens {
 public:
  // A part of a text: an added token, or text (id < 0) for the steps that follow.
  struct Part {
    size_t begin, end;
    TokenId id;
  };

  // Ids follow the rule of the `tokenizers` package: that of the vocabulary if the content is in
  // it, else the next free one; the id in the file only documents it. kInvalidArgument when there
  // are too many.
  Status Add(AddedToken token, const Vocab& vocab, const Normalizer& normalizer);
  // The same with the id that the file gives it. kInvalidArgument when another added token has it,
  // or the content has another id.
  Status AddAs(AddedToken token, TokenId id, const Normalizer& normalizer);

  // The parts of a text before and after normalization; what is empty is left out. No special token
  // begins at a byte of `plain_at`, which ascends.
  void SplitRaw(std::string_view text, std::span<const size_t> plain_at,
                std::vector<Part>& parts) const {
    Split(raw_, text, plain_at, parts);
  }
  void SplitNormalized(std::string_view text, std::vector<Part>& parts) const {
    Split(normalized_, text, {}, parts);
  }
  // Where the text of a special token begins, ascending.
  std::vector<size_t> FindSpecial(std::string_view text) const;
  bool has_raw() const { return !raw_.empty(); }
  bool has_normalized() const { return !normalized_.empty(); }

  // Whether some take blanks along that stand around them.
  bool TakeBlanks() const;

  std::optional<TokenId> Find(std::string_view content) const;
  const AddedToken* Get(TokenId id) const;
  // What decoders see of token `id`: its normal form, which they turn back.
  std::string_view DecoderForm(TokenId id) const;
  bool IsSpecialContent(std::string_view content) const {
    return special_contents_.contains(std::string(content));
  }
  TokenId end_id() const { return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1; }

 private:
  struct Entry {
    AddedToken token;
    std::string decoder_form;
  };
  Status Insert(AddedToken token, TokenId id, const Normalizer& normalizer);
  void Split(const StringMatcher& matcher, std::string_view text, std::span<const size_t> plain_at,
             std::vector<Part>& parts) const;

  std::map<TokenId, Entry> tokens_;
  std::unordered_map<std::string, TokenId> ids_;
  std::unordered_set<std::string> special_contents_;
  StringMatcher raw_, normalized_, specials_;
};

}  // namespace inflight::tokenizer
