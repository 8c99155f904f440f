// SPDX-License-Identifier: Apache-2.0
// Decoders: token strings -> text, as a stream.
//
// The `tokenizers` package turns a list of strings into a list of strings, step by step. Here every
// step passes on what it knows for certain and holds back the rest (an unfinished character, a run
// of byte tokens, a partial match), so that decoding all at once and token by token are one code.
// Cost: linear in the output.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/split_pattern.h"

namespace inflight::tokenizer {

struct DecoderStep {
  enum class Kind {
    kByteLevel,      // byte alphabet -> bytes; U+FFFD for what is no UTF-8
    kMetaspace,      // content -> blank; nothing in the first token if strips_first
    kReplace,        // pattern -> content, within a token
    kByteFallback,   // a run of <0xNN> tokens -> its characters, or a U+FFFD for each
    kFuse,           // all tokens -> one
    kStrip,          // up to start / stop times content off the ends of each token
    kWordPiece,      // a blank before each token but the first, or less its prefix: content
    kSuffix,         // content -> a blank, nothing in the last token
    kCtc,            // a token once where it repeats, less content; none where nothing is left
    kJoin,           // a blank between tokens: what the package does without a decoder
    kSentencePiece,  // all of SentencePiece's own decoding (sentencepiece_stage.h)
  };
  Kind kind;
  std::string content;
  std::string literal;                          // kReplace by a string; else pattern
  std::shared_ptr<const SplitPattern> pattern;  // kReplace by a regex
  bool strips_first = false;                    // kMetaspace, kSentencePiece
  bool strips_all = false;  // kSentencePiece: off every piece until there is text, not off one
  bool has_bytes = false;   // kSentencePiece: <0xNN> pieces are bytes
  // kWordPiece and kCtc: no blank before punctuation and English contractions; of kCtc also
  // delimiter -> a blank
  bool cleans_up = false;
  std::string delimiter;
  uint32_t start = 0, stop = 0;
};

// One stage of a running decoder. Text of the current token comes in parts that end at character
// boundaries (except into kByteLevel's second half, which takes bytes).
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void Text(std::string_view part) = 0;
  virtual void EndToken() = 0;
  virtual void Finish() = 0;  // no more tokens; once
};

// A decoder in use for one sequence.
class DecodeStream {
 public:
  DecodeStream() = default;
  void Token(std::string_view token) {
    first_->Text(token);
    first_->EndToken();
  }
  void Bytes(std::string_view bytes) { first_->Text(bytes); }
  void Finish() { first_->Finish(); }
  std::string Take();  // the text that has become certain since the last call

 private:
  friend class Decoder;
  std::unique_ptr<std::string> out_ = std::make_unique<std::string>();
  std::vector<std::unique_ptr<DecodeStage>> stages_;
  DecodeStage* first_ = nullptr;
};

// The steps of a decoder. Those at the front that look at one token alone are applied once, at
// load, by Prepare; a stream then runs the others. Immutable after construction.
class Decoder {
 public:
  explicit Decoder(std::vector<DecoderStep> steps);
  Decoder() : Decoder({{.kind = DecoderStep::Kind::kJoin, .content = " "}}) {}

  // What a stream takes for `token`: bytes if prepares_bytes, else text.
  std::string Prepare(std::string_view token) const;
  bool prepares_bytes() const { return prepares_bytes_; }

  DecodeStream Start() const;

  // What a prepared token becomes with tokens before and behind it. A byte of a character stays a
  // byte, and steps that look at several tokens as one (after kByteLevel or kFuse) see it alone.
  std::string BytesAmongOthers(std::string_view prepared) const;

 private:
  std::string DecodeAll(std::initializer_list<std::string_view> prepared) const;

  std::vector<DecoderStep> steps_;
  size_t num_prepared_ = 0;  // steps_[0, num_prepared_) are Prepare's
  bool prepares_bytes_ = false;
};

}  // namespace inflight::tokenizer
