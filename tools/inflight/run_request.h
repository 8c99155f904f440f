// SPDX-License-Identifier: Apache-2.0
// One line of `inflight run --input`: a JSON object under the ensemble's names -> executor request.
#pragma once

#include <string>
#include <string_view>

#include "inflight/request.h"
#include "tokenizer/tokenizer.h"

namespace inflight::tool {

// What a line leaves unsaid.
struct RunDefaults {
  int max_tokens = 64;
  std::vector<TokenId> end_ids;  // of the model
};

// Keys: text_input or input_ids; max_tokens, temperature, top_k, top_p, min_p, random_seed,
// repetition_penalty, presence_penalty, frequency_penalty, end_id (integer, list, or -1 for none),
// stop_words and bad_words (text or list of texts), min_length, no_repeat_ngram_size, top_p_min,
// top_p_decay, top_p_reset_ids, beam_width, num_return_sequences, length_penalty,
// early_stopping, beam_search_diversity_rate, return_log_probs. Other keys of the ensemble are
// refused by name unless their value asks for nothing; unknown keys are errors.
Result<Request> ParseRunRequest(std::string_view line, const tokenizer::Tokenizer* tokenizer,
                                const RunDefaults& defaults);

}  // namespace inflight::tool
