// SPDX-License-Identifier: Apache-2.0
// A model: a piece of normalized text -> token ids.
//
// Threads: a Model is immutable; a ModelScratch belongs to one call at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "tokenizer/vocab.h"

namespace inflight::tokenizer {

// Working memory of Encode, reused from call to call.
struct ModelScratch {
  virtual ~ModelScratch() = default;
  // Of what the longest text so far made it grow by; it does not shrink.
  virtual size_t grown_bytes() const = 0;
  bool unk_missing = false;  // set when a character had no token and unk_token is not in the vocab
};

class Model {
 public:
  virtual ~Model() = default;

  virtual std::string_view kind() const = 0;  // as tokenizer.json calls it: "BPE", "Unigram"
  const Vocab& vocab() const { return vocab_; }
  // For calls of this model alone.
  virtual std::unique_ptr<ModelScratch> NewScratch() const = 0;
  // Appends the ids of `piece` (valid UTF-8, not empty) to `out`.
  virtual void Encode(std::string_view piece, ModelScratch& scratch,
                      std::vector<TokenId>& out) const = 0;

  // Whether each character of a piece has an id of its own or is part of a token: none is dropped,
  // and unknown ones do not share an id.
  virtual bool CoversAll() const = 0;

 protected:
  Vocab vocab_;
};

}  // namespace inflight::tokenizer
