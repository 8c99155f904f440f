// SPDX-License-Identifier: Apache-2.0
// Text <-> token ids, as the Hugging Face `tokenizers` package and the `sentencepiece` and
// `tiktoken` packages do it, id by id.
//
// Read from the first of these that a directory has: `tokenizer.json` (BPE, Unigram,
// WordPiece, WordLevel), `vocab.json` + `merges.txt` (GPT-2), `tokenizer.model` or `spiece.model`
// (SentencePiece BPE and Unigram; load_sentencepiece.h says how they are dressed) or a file of
// tiktoken's ranks (load_tiktoken.h), `*.tiktoken`, `tokenizer.model` in a folder `tiktoken` or
// `original`, `tokenizer.gguf`. A model may be a GGUF file instead of a directory (load_gguf.h).
// Kinds that are not supported are refused by name at load. Special-token settings come from
// tokenizer_config.json, special_tokens_map.json and added_tokens.json where they exist.
//
// Threads: a loaded Tokenizer is immutable; all methods are thread-safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "inflight/status.h"

namespace inflight {

class Tokenizer {
 public:
  // From a model directory or a GGUF file. kNotFound names the files looked for; kInvalidArgument
  // names the file and what is wrong with it.
  static Result<std::shared_ptr<const Tokenizer>> Load(const std::filesystem::path& dir);
  // From the content of a tokenizer.json, of a SentencePiece model, of a file of tiktoken's ranks
  // under an encoding (load_tiktoken.h) or of a GGUF file alone; for tests and fuzzers.
  static Result<std::shared_ptr<const Tokenizer>> FromJson(std::string_view tokenizer_json);
  static Result<std::shared_ptr<const Tokenizer>> FromSentencePiece(std::string_view model);
  static Result<std::shared_ptr<const Tokenizer>> FromTiktoken(std::string_view ranks,
                                                               std::string_view encoding);
  static Result<std::shared_ptr<const Tokenizer>> FromGguf(std::span<const std::byte> file);

  virtual ~Tokenizer() = default;

  // Ids of `text`, which must be valid UTF-8 (kInvalidArgument names the byte offset).
  // `add_special_tokens` applies the post-processor (BOS ...).
  virtual Result<std::vector<TokenId>> Encode(std::string_view text,
                                              bool add_special_tokens) const = 0;
  // The same of a text with parts of other people: at none of the bytes `plain_at`, ascending, a
  // special token begins, whatever stands there. FindSpecialTokens finds them in such a part.
  virtual Result<std::vector<TokenId>> Encode(std::string_view text, bool add_special_tokens,
                                              std::span<const size_t> plain_at) const = 0;
  // The bytes of `text` at which the text of a special token begins, ascending.
  virtual std::vector<size_t> FindSpecialTokens(std::string_view text) const = 0;

  // Text of `ids`, valid UTF-8 always (U+FFFD where bytes form no character). Ids without an entry
  // yield nothing.
  virtual std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const = 0;

  // The bytes that `id` adds to a text where other tokens stand around it, as they are: also such
  // as make no character alone. None for special tokens and ids without an entry.
  virtual std::string TokenBytes(TokenId id) const = 0;

  // The most bytes of text that one of the ids of Encode stands for. None where that may be any
  // number: unknown characters that are dropped or share an id, blanks or accents that are dropped.
  virtual std::optional<size_t> MaxBytesPerToken() const = 0;

  virtual std::string_view kind() const = 0;  // "BPE", "Unigram", "WordPiece" or "WordLevel"
  // What Load read: "tokenizer.json", "vocab.json and merges.txt", "tokenizer.model", ...; empty of
  // the others.
  virtual std::string_view origin() const = 0;
  virtual int vocab_size() const = 0;  // largest id + 1
  virtual std::optional<TokenId> TokenToId(std::string_view token) const = 0;
  virtual std::string_view IdToToken(TokenId id) const = 0;  // empty if there is none
  virtual bool IsSpecial(TokenId id) const = 0;
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;
  virtual std::optional<TokenId> pad_id() const = 0;  // eos if the files name none
  virtual std::optional<TokenId> unk_id() const = 0;  // stands for text that has no token
};

// Incremental detokenisation of one sequence. The concatenation of everything returned equals
// Decode of all ids, whatever the chunks, and no returned piece ends inside a character (held-back
// bytes come with a later chunk or with Finish). Threads: one at a time per object.
class Detokenizer {
 public:
  // `shown`: special tokens that are not skipped.
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
              std::span<const TokenId> shown = {});
  ~Detokenizer();
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;

  std::string Append(std::span<const TokenId> ids);
  std::string Finish();  // what was held back

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace inflight
