// SPDX-License-Identifier: Apache-2.0
// One line of `inflight run --input`: a JSON object under the ensemble's names -> executor request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "inflight/tokenizer.h"
#include "parameters/model_defaults.h"

namespace inflight::tool {

// What a line leaves unsaid.
struct RunDefaults {
  parameters::ModelDefaults model;
  int max_tokens = 64;
  std::vector<TokenId> end_ids;  // of the model
};

struct RunRequest {
  Request request;
  std::optional<uint64_t> seed_by_chance;  // where tokens are drawn and the line has no seed
};

// Keys: text_input or input_ids; max_tokens; end_id (integer, list, or -1 for none); stop_words and
// bad_words (text or list of texts); and the parameters of parameters/parameters.h by their names
// at the ensemble. Other keys of the ensemble are refused by name unless their value asks for
// nothing; unknown keys are errors.
// Tokens are drawn as people mean it (parameters::SetSampling).
Result<RunRequest> ParseRunRequest(std::string_view line, const Tokenizer* tokenizer,
                                   const RunDefaults& defaults);

}  // namespace inflight::tool
