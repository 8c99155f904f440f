// SPDX-License-Identifier: Apache-2.0
// One line of `inflight run --input`: a JSON object under the ensemble's names -> executor request.
#pragma once

#include <string>
#include <string_view>

#include "inflight/request.h"
#include "inflight/tokenizer.h"

namespace inflight::tool {

// What a line leaves unsaid.
struct RunDefaults {
  int max_tokens = 64;
  std::vector<TokenId> end_ids;  // of the model
};

// Keys: text_input or input_ids; max_tokens; end_id (integer, list, or -1 for none); stop_words and
// bad_words (text or list of texts); and the parameters of parameters/parameters.h by their names
// at the ensemble. Other keys of the ensemble are refused by name unless their value asks for
// nothing; unknown keys are errors.
Result<Request> ParseRunRequest(std::string_view line, const Tokenizer* tokenizer,
                                const RunDefaults& defaults);

}  // namespace inflight::tool
