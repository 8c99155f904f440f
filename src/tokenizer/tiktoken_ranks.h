// SPDX-License-Identifier: Apache-2.0
// Vocabulary files of the `tiktoken` package: a line for each token, which is the base64 of its
// bytes, a blank and its rank. The rank is the token's id and says when its bytes are joined.
//
// The package joins the neighbours whose bytes together have the lowest rank, leftmost first; a
// word that is a token is that token. As a table of merges: each way to cut a token into two tokens
// is a merge of that token's rank, and equal ranks mean equal bytes.
//
// What every file has is asked of each: the ranks 0 to n - 1 once each, in any order, and all 256
// single bytes. kInvalidArgument names the line.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "inflight/status.h"
#include "tokenizer/model.h"

namespace inflight::tokenizer {

// Ten times what the largest published file has, and four times the longest token of one.
inline constexpr size_t kMaxRankFileBytes = size_t{32} << 20;
inline constexpr size_t kMaxRankedTokenBytes = 512;

// Whether a file begins as such a file does and a SentencePiece model does not.
bool BeginsAsRanks(std::string_view file);

Result<std::shared_ptr<const Model>> ReadRanks(std::string_view file);

}  // namespace inflight::tokenizer
