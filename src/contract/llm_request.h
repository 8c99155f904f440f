// SPDX-License-Identifier: Apache-2.0
// From the input tensors of the `tensorrt_llm` model to an executor request. Every tensor that the
// model declares is honoured or refused by name; values that ask for nothing (an empty list, a
// penalty's neutral value) are accepted. Names and meanings: docs/reference/requests.md.
//
// Errors: kInvalidArgument and kUnimplemented name the tensor as the client calls it.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/memory_account.h"
#include "contract/decoding_mode.h"
#include "contract/guide_tensors.h"
#include "contract/prompt_table.h"
#include "contract/request_facts.h"
#include "contract/tensor.h"
#include "inflight/executor.h"
#include "inflight/request.h"
#include "parameters/model_defaults.h"

namespace inflight::contract {

// A tensor under the name that the `tensorrt_llm` model has for it; `tensor->name` is the client's
// name, which differs when the request came through an ensemble.
struct NamedInput {
  std::string_view name;
  const Tensor* tensor = nullptr;
};

struct LlmRequest {
  Request request;
  bool is_stop = false;        // cancel the request with the same id; nothing else is filled
  bool exclude_input = false;  // keep the prompt out of a non-streaming answer
  FactsAsked facts;
  std::optional<TokenId> pad_id;
  std::optional<uint64_t> seed_by_chance;  // of OwnRules: where tokens are drawn and none was sent
  std::optional<AskedGuide> guide;         // for whoever has the tokens' texts: to be made
  PromptTuning prompt_tuning;              // for PlacePromptTable

  // What stands behind the shorter beams: the end id where no pad id was sent, -1 where neither
  // was.
  TokenId PadId() const {
    if (pad_id) return *pad_id;
    return request.end_ids.empty() ? -1 : request.end_ids.front();
  }
};

// Of models that no configuration file describes (`inflight serve DIR`): what a request leaves open
// is the model's own, a temperature draws, and the seed is one by chance.
struct OwnRules {
  parameters::ModelDefaults model;
};

// What the model's configuration says about requests.
struct LlmRequestDefaults {
  bool decoupled = false;
  bool exclude_input_in_output = false;
  bool normalize_log_probs = true;
  int max_beam_width = 0;  // 0 = the executor's
  DecodingMode decoding_mode = DecodingMode::kAuto;
  // Ids that end a text each: who names one of them means them all. A preprocessing of another
  // server can name one alone, where a model has several. Empty: a request ends at the one it
  // names.
  std::vector<TokenId> end_ids = {};
  // As the release did that the configuration is written for:
  bool clamps_input_ids = false;  // ids that no vocabulary has become the last one that it has
  bool takes_any_end_id = false;  // one that no vocabulary has ends nothing
  bool repeats_context_logits = false;  // in each streamed response
  std::optional<OwnRules> own = {};
};

// Fills a request from the tensors present, without looking at what is missing. A prompt
// table, an adapter and the logits of drafts are charged to `memory`.
Result<LlmRequest> ParseLlmRequest(std::span<const NamedInput> inputs,
                                   const LlmRequestDefaults& defaults,
                                   const std::shared_ptr<AccountShare>& memory = {});

// Checks what the tensors alone do not tell: required ones are there, the prompt fits the engine
// ("Prompt length (9) exceeds maximum input length (8)."), ids are in the vocabulary. Like upstream
// it shortens max_tokens to what max_seq_len leaves; the answer then ends for reason kLength.
Status FitToEngine(Request& request, const ExecutorLimits& limits,
                   const LlmRequestDefaults& defaults = {});

}  // namespace inflight::contract
