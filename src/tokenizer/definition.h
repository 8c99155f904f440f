// SPDX-License-Identifier: Apache-2.0
// A tokenizer as its files define it: what the readers make and TokenizerImpl runs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace inflight::tokenizer {

// The template around a sequence: the ids that Encode with add_special_tokens puts before, between
// and behind copies of the text's ids.
struct TemplatePart {
  bool is_sequence = false;  // a copy of the text's ids; else `ids`
  std::vector<TokenId> ids;
};

struct Definition {
  std::string origin;  // the file it was read from, a path in the model's directory; or empty
  std::shared_ptr<const Model> model;
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<TemplatePart> post_processor = {{.is_sequence = true}};
  Decoder decoder;
  std::map<TokenId, std::string> decoder_forms;  // where they are not the tokens themselves
  std::optional<TokenId> bos_id, eos_id, pad_id, unk_id;

  // Id of an added token or one of the vocabulary.
  std::optional<TokenId> Find(std::string_view token) const {
    const auto id = added.Find(token);
    return id ? id : model->vocab().Find(token);
  }
};

// Of a tokenizer.json. kInvalidArgument or kUnimplemented names the field.
Result<Definition> ReadTokenizerJson(std::string_view json);

// Of GPT-2's vocab.json and merges.txt, which say nothing of special tokens.
Result<Definition> ReadVocabAndMerges(std::string_view vocab_json, std::string_view merges_txt,
                                      bool add_prefix_space);

}  // namespace inflight::tokenizer
