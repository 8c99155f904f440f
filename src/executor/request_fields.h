// SPDX-License-Identifier: Apache-2.0
// The fields of a request that are numbers, visited to be written and to be read
// (base/byte_fields.h): for journals, and for ranks that are other processes. What it points to
// (its guide, tables and tensors) is not among them.
#pragma once

#include "inflight/request.h"

namespace inflight::executor {

template <typename Bytes, typename Params>
void VisitSampling(Bytes& bytes, Params& p) {
  bytes.Field(p.beam_width);
  bytes.Field(p.num_return_sequences);
  bytes.Field(p.length_penalty);
  bytes.Field(p.early_stopping);
  bytes.Field(p.beam_search_diversity_rate);
  bytes.Field(p.temperature);
  bytes.Field(p.top_k);
  bytes.Field(p.top_p);
  bytes.Field(p.min_p);
  bytes.Field(p.typical_p);
  bytes.Field(p.top_p_decay);
  bytes.Field(p.top_p_min);
  bytes.Field(p.top_p_reset_id);
  bytes.Field(p.seed);
  bytes.Field(p.repetition_penalty);
  bytes.Field(p.presence_penalty);
  bytes.Field(p.frequency_penalty);
  bytes.Field(p.prompt_ignore_length);
  bytes.Field(p.min_tokens);
  bytes.Field(p.no_repeat_ngram_size);
  bytes.Field(p.disable_speculation);
}

// All but ids.
template <typename Bytes, typename Params>
void VisitRequest(Bytes& bytes, Params& r) {
  bytes.Field(r.max_tokens);
  bytes.Field(r.streaming);
  bytes.Field(r.end_ids);
  VisitSampling(bytes, r.sampling);
  bytes.Field(r.output.return_log_probs);
  bytes.Field(r.output.normalize_log_probs);
  bytes.Field(r.output.num_top_log_probs);
  bytes.Field(r.output.return_context_logits);
  bytes.Field(r.output.return_generation_logits);
  bytes.Field(r.priority);
  bytes.Field(r.client_id);
  bytes.Field(r.share);
  bytes.Field(r.timeout_ms);
  bytes.Field(r.queue_timeout_us);
  bytes.Field(r.draft_acceptance_threshold);
  bytes.Field(r.cache_salt);
}

// Ids but the prompt's.
template <typename Bytes, typename Params>
void VisitWords(Bytes& bytes, Params& r) {
  bytes.Field(r.stop_words);
  bytes.Field(r.bad_words);
  bytes.Field(r.draft_ids);
}

template <typename Bytes, typename Params>
void VisitIds(Bytes& bytes, Params& r) {
  bytes.Field(r.input_ids);
  VisitWords(bytes, r);
}

}  // namespace inflight::executor
