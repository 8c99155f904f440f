// SPDX-License-Identifier: Apache-2.0
// WordLevel: a piece is a token of the vocabulary, or unknown as a whole.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/model.h"

namespace inflight::tokenizer {

// Of models that need no working memory.
struct NoScratch final : ModelScratch {
  size_t grown_bytes() const override { return 0; }
};

class WordLevelModel final : public Model {
 public:
  WordLevelModel(Vocab vocab, std::string_view unk_token) : unk_id_(vocab.Find(unk_token)) {
    vocab_ = std::move(vocab);
  }

  std::unique_ptr<ModelScratch> NewScratch() const override {
    return std::make_unique<NoScratch>();
  }
  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<TokenId>& out) const override {
    const auto id = vocab_.Find(piece);
    if (id || unk_id_) {
      out.push_back(id ? *id : *unk_id_);
    } else {
      scratch.unk_missing = true;
    }
  }
  std::string_view kind() const override { return "WordLevel"; }
  bool CoversAll() const override { return false; }

 private:
  std::optional<TokenId> unk_id_;
};

}  // namespace inflight::tokenizer
