// SPDX-License-Identifier: Apache-2.0
// What an engine's limits allow of a request: the rules that contract/ refuses by in upstream's
// words, and executor/ in words that name the remedy.
#pragma once

#include <optional>
#include <span>

#include "inflight/executor.h"
#include "inflight/request.h"

namespace inflight::parameters {

bool IsPromptTooLong(const ExecutorLimits& limits, const Request& request);

// The place of the first id that is not in [lowest, vocab_size).
std::optional<size_t> FindOutsideVocabulary(const ExecutorLimits& limits,
                                            std::span<const TokenId> ids, TokenId lowest = 0);

// One past the largest id that the prompt may have: the vocabulary's ids, and behind them one for
// each row of the request's table.
TokenId PromptIdEnd(const ExecutorLimits& limits, const Request& request);

// The place of the first id of the prompt that is neither in the vocabulary nor a row.
std::optional<size_t> FindOutsidePrompt(const ExecutorLimits& limits, const Request& request);

// Whether the shape of the request's table is one that the engine takes, if it has one.
// kUnimplemented where it takes none; kInvalidArgument names the field and the bound.
Status CheckPromptTable(const ExecutorLimits& limits, const Request& request);

// Shortens max_tokens to what max_seq_len leaves after a prompt that is not too long, as upstream
// does. Whether it was longer.
bool ShortenToSequence(const ExecutorLimits& limits, Request& request);

}  // namespace inflight::parameters
