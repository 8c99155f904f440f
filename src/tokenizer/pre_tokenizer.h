// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers: text -> the pieces that the model encodes one by one.
//
// Threads: immutable after loading; all methods are thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"
#include "tokenizer/split_pattern.h"

namespace inflight::tokenizer {

// What becomes of the matches of a pattern: dropped, a piece each, a piece per run of matches, or
// joined to a neighbour.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kAlways, kFirst, kNever };

struct PreTokenizerStep {
  enum class Kind { kByteLevel, kMetaspace, kSplit };
  Kind kind;

  // kSplit; kByteLevel with use_regex has the GPT-2 pattern here
  std::shared_ptr<const SplitPattern> pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;

  bool add_prefix_space = false;  // kByteLevel

  std::string replacement;  // kMetaspace: one character
  PrependScheme prepend_scheme = PrependScheme::kAlways;
  bool split = true;
};

// Pieces of `text`, in order. A piece of bytes [begin, end).
struct Pieces {
  struct Piece {
    uint32_t begin, end;
  };
  std::string text;
  std::vector<Piece> list;
  bool starts_input = false;  // the first piece begins with what the request's text begins with
};

class PreTokenizer {
 public:
  PreTokenizer() = default;  // one piece
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps);

  // The model sees pieces in the byte alphabet. Where ByteLevel is the last step, pieces stay
  // plain bytes and the model maps them itself.
  bool pieces_are_bytes() const { return pieces_are_bytes_; }
  // For models that do not.
  void SpellBytes() { pieces_are_bytes_ = false; }

  // Whether all of a text is in its pieces.
  bool KeepsAll() const;

  // Splits pieces.list (one piece for a whole text) further; pieces.text may change.
  // kInvalidArgument: it would be out of proportion (text_limits.h).
  Status Apply(Pieces& pieces) const;

 private:
  std::vector<PreTokenizerStep> steps_;
  bool pieces_are_bytes_ = false;
};

}  // namespace inflight::tokenizer
