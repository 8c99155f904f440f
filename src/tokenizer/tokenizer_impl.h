// SPDX-License-Identifier: Apache-2.0
// The Tokenizer that runs a Definition.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "inflight/tokenizer.h"
#include "tokenizer/definition.h"

namespace inflight::tokenizer {

class TokenizerImpl final : public Tokenizer {
 public:
  explicit TokenizerImpl(Definition definition);

  Result<std::vector<TokenId>> Encode(std::string_view text,
                                      bool add_special_tokens) const override {
    return Encode(text, add_special_tokens, {});
  }
  Result<std::vector<TokenId>> Encode(std::string_view text, bool add_special_tokens,
                                      std::span<const size_t> plain_at) const override;
  std::vector<size_t> FindSpecialTokens(std::string_view text) const override {
    return definition_.added.FindSpecial(text);
  }
  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const override;
  std::string TokenBytes(TokenId id) const override;
  std::optional<size_t> MaxBytesPerToken() const override;
  std::string_view kind() const override { return definition_.model->kind(); }
  std::string_view origin() const override { return definition_.origin; }
  int vocab_size() const override { return vocab_size_; }
  std::optional<TokenId> TokenToId(std::string_view token) const override;
  std::string_view IdToToken(TokenId id) const override;
  bool IsSpecial(TokenId id) const override;
  std::optional<TokenId> bos_id() const override { return definition_.bos_id; }
  std::optional<TokenId> eos_id() const override { return definition_.eos_id; }
  std::optional<TokenId> pad_id() const override {
    return definition_.pad_id ? definition_.pad_id : definition_.eos_id;
  }
  std::optional<TokenId> unk_id() const override { return definition_.unk_id; }

  // What earlier texts made the working memory grow by that waits for the next calls.
  size_t KeptScratchBytes() const;

  DecodeStream StartDecoding() const { return definition_.decoder.Start(); }
  void DecodeInto(std::span<const TokenId> ids, bool skip_special_tokens,
                  std::span<const TokenId> shown, DecodeStream& stream) const;

 private:
  // Lends each call a ModelScratch: one lock per call, and caches that stay warm.
  class ScratchLoan;

  Status EncodePart(std::string_view text, size_t begin, size_t end,
                    std::span<const size_t> plain_at, ModelScratch& scratch,
                    std::vector<TokenId>& ids) const;
  Status EncodeText(std::string_view text, bool starts_input, ModelScratch& scratch,
                    std::vector<TokenId>& ids) const;
  Status EncodeNormalized(std::string text, bool starts_input, ModelScratch& scratch,
                          std::vector<TokenId>& ids) const;
  std::vector<TokenId> ApplyTemplate(std::vector<TokenId> ids, bool add_special_tokens) const;
  void PrepareDecoding();

  Definition definition_;
  int vocab_size_;
  StringTable decoded_;           // what the decoder's stream takes, by id
  std::vector<bool> is_special_;  // by id
  mutable std::mutex scratch_mutex_;
  mutable std::vector<std::unique_ptr<ModelScratch>> free_scratch_;
};

}  // namespace inflight::tokenizer
