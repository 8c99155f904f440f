// SPDX-License-Identifier: Apache-2.0
// Tokenizers of a vocabulary file of the `tiktoken` package (tiktoken_ranks.h). Such a file has
// neither the pattern that finds words nor special tokens: both come with an encoding, a published
// set of them that the package or a model's authors have a name for.
//
// Which encoding: the first of these that decides.
//   encoding_name    of tokenizer_config.json: the name of one.
//   tokenizer_class  there: QWenTokenizer has qwen. Classes of tokenizers of every kind
//                    (PreTrainedTokenizerFast, LlamaTokenizer, ...) leave it open; others are
//                    refused by name.
//   the file's name  cl100k_base.tiktoken and the like.
//   how many ranks   a tokenizer.model of 128,000 is Llama 3's.
//
// Special tokens are those of added_tokens_decoder in tokenizer_config.json, with the ids that it
// gives; else those of the encoding, if the file has as many ranks as the published one; else
// additional_special_tokens in the order of the list, behind the ranks, as transformers'
// TikTokenConverter numbers them. Other settings may name no further ones.
//
// What is not decided so is refused, kUnimplemented with what to write where.
#pragma once

#include <filesystem>
#include <string_view>

#include "tokenizer/config_files.h"
#include "tokenizer/definition.h"

namespace inflight::tokenizer {

inline constexpr std::string_view kTiktokenExtension = ".tiktoken";

// Of the content of a file under an encoding, with its special tokens where it has the published
// number of ranks, else without any.
Result<Definition> ReadTiktoken(std::string_view file, std::string_view encoding);

// `dir / name`, with what `files`, those of `dir`, say.
Result<Definition> LoadTiktoken(const std::filesystem::path& dir, const std::filesystem::path& name,
                                const ConfigFiles& files);

}  // namespace inflight::tokenizer
