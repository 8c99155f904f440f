// SPDX-License-Identifier: Apache-2.0
// Readers of the model of a tokenizer.json, and of GPT-2's vocab.json and merges.txt.
// kUnimplemented names a kind or an option that is not supported, kInvalidArgument a field that is
// wrong.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/json.h"
#include "tokenizer/model.h"

namespace inflight::tokenizer {

using Merges = std::vector<BpeModel::MergePair>;

struct JsonModel {
  std::shared_ptr<const Model> model;
  bool takes_bytes = false;              // of PreTokenizer::pieces_are_bytes
  std::optional<std::string> unk_token;  // an added token or one of the vocabulary
  std::optional<TokenId> unk_id;         // where there is no unk_token
};

// Of the object `model`. `pieces_are_bytes`: the pre-tokenizer could leave its pieces so.
Result<JsonModel> ReadModel(const JsonObject& json, bool pieces_are_bytes);

// {"token": id, ...} at `path` of the file.
Result<Vocab> ReadVocab(simdjson::dom::object object, const std::string& path);
Result<Merges> ReadMergesTxt(std::string_view text);

}  // namespace inflight::tokenizer
