// SPDX-License-Identifier: Apache-2.0
// What a client of the executor sends and receives: token ids and sampling parameters in, token ids
// out.
//
// Formulas: docs/reference/decoding.md; bounds: docs/reference/requests.md. Of upstream's names the
// later name (`max_tokens`, `seed`).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inflight/adapter.h"
#include "inflight/status.h"

namespace inflight {

using TokenId = int32_t;
struct BadTexts;             // bad_texts.h
class Guide;                 // guide.h
struct PromptTable;          // prompt_table.h
using RequestId = uint64_t;  // assigned by Executor::Enqueue, increasing, never reused in a process

// How the next token is drawn. An unset optional leaves that rule out.
struct SamplingParams {
  // Sequences. Beam search where beam_width > 1 (docs/reference/decoding.md), with the three fields
  // below it; otherwise num_return_sequences independent ones, drawn with seed + index.
  int beam_width = 1;  // [1, max_beam_width of the executor]
  // >= 1; unset: one, or all beams. With beams at most beam_width: the best ones.
  std::optional<int> num_return_sequences = {};
  float length_penalty = 0.0F;              // finite; a score is divided by length ^ length_penalty
  int early_stopping = 1;                   // 1, 0, anything else = "never"
  float beam_search_diversity_rate = 0.0F;  // >= 0

  std::optional<float> temperature = {};  // >= 0; 0 means greedy
  std::optional<int> top_k = {};    // >= 0; 0 = off; unset or 0 with top_p unset or 0 = greedy
  std::optional<float> top_p = {};  // [0, 1]; 0 = off
  // [0, 1]; drop tokens with P < min_p * P_max before top-k and top-p
  std::optional<float> min_p = {};
  // (0, 1]; of what top-k, top-p and min-p leave, the most typical tokens of this mass; 1 = off
  std::optional<float> typical_p = {};
  // After each token drawn by top-p alone: p = max(p * decay, min), or the first p again when that
  // token is the reset id (docs/reference/decoding.md, "Top-p and its decay").
  std::optional<float> top_p_decay = {};         // (0, 1]; default 1
  std::optional<float> top_p_min = {};           // (0, 1]; default 1e-6
  std::optional<TokenId> top_p_reset_id = {};    // -1 = none
  std::optional<uint64_t> seed = {};             // default 0
  std::optional<float> repetition_penalty = {};  // > 0; once per distinct token, prompt included
  std::optional<float> presence_penalty = {};    // subtracted once per distinct token
  std::optional<float> frequency_penalty = {};   // subtracted per occurrence
  int prompt_ignore_length = 0;  // >= 0; so many first prompt tokens do not count for the penalties
  int min_tokens = 0;            // >= 0; no end id before so many tokens were generated
  int no_repeat_ngram_size = 0;  // >= 0; 0 = off
  // Without the executor's own drafts (ExecutorOptions::drafts), which change no token.
  bool disable_speculation = false;
};

struct OutputOptions {
  // Log P of each chosen token over the vocabulary, true also under greedy.
  bool return_log_probs = false;
  // Sampled top-k rows: output_log_probs conditional on the top-k set alone.
  bool normalize_log_probs = true;
  int num_top_log_probs = 0;              // >= 0; of so many likeliest tokens at each position,
                                          // the token itself among them or not
  bool return_context_logits = false;     // of every prompt token, as the model computes them
  bool return_generation_logits = false;  // those that each generated token was drawn from, before
                                          // penalties and bans
};

struct Request {
  // [prompt_len] non-empty; ids below the vocabulary size, or with a prompt_table from there on its
  // rows: id vocab_size + r is row r.
  std::vector<TokenId> input_ids = {};
  std::shared_ptr<const PromptTable> prompt_table = {};  // null = none
  // Whether cache_salt tells prompt_table from every other table. Where it does not, the request
  // shares blocks with no other.
  bool salt_covers_prompt_table = false;
  // > 0. Shortened to what the engine's max_seq_len leaves after the prompt, as upstream does; the
  // sequence then ends with kLength. A prompt that leaves no room for one token is refused.
  int max_tokens = 0;
  bool streaming = false;  // one response per step with new tokens; otherwise a single one
  // Any of these ends the sequence and is not returned; empty or -1 = never stop.
  std::vector<TokenId> end_ids = {};
  // A tail equal to one of these ends the sequence; matched ids are returned.
  std::vector<std::vector<TokenId>> stop_words = {};
  // Never generated: the last id of a word is banned where those before it stand.
  std::vector<std::vector<TokenId>> bad_words = {};
  // Never completed in the text of prompt and output, whatever tokens spell them; null = none.
  std::shared_ptr<const BadTexts> bad_texts = {};
  // What the text of the output must be; null = anything. Made for the engine's vocabulary. With
  // beams there is an end id. Not with draft_ids; the executor's own drafts are left out.
  std::shared_ptr<const Guide> guide = {};
  // [vocab_size] added to the logits first; null = none
  std::shared_ptr<const std::vector<float>> embedding_bias = {};
  SamplingParams sampling = {};
  OutputOptions output = {};
  // The adapter that the model runs with; none: the model as it is.
  std::optional<LoraUse> lora = {};
  float priority = 0.5F;  // [0, 1]; larger first, ties by turns of clients, then by arrival
  // Of one priority, requests of each client take turns by tokens over its share, so that none
  // keeps the others waiting by the number of its requests. All of one client: in order of arrival.
  uint64_t client_id = 0;
  float share = 1.0F;                            // [0.01, 100]
  std::optional<int64_t> timeout_ms = {};        // deadline from Enqueue; finish reason kTimedOut
  std::optional<int64_t> queue_timeout_us = {};  // the same until the request's first step
  // Tokens that may follow the prompt, at most max_draft_len of the executor; the first ones that
  // are accepted are the output, and one more token (docs/reference/speculation.md, "Drafts of the
  // client"). Such a request ends after that step. Those past max_tokens - 1 are left out. Not with
  // beams.
  std::vector<TokenId> draft_ids = {};
  // [draft_ids.size(), vocab_size] that each draft was drawn from, as its model gave them. Drafts
  // are then accepted at random so that the output has the distribution of plain draws; null: a
  // draft is accepted when it is the very token that is drawn. Not with typical_p.
  std::shared_ptr<const std::vector<float>> draft_logits = {};
  // (0, 1]; with draft_logits: accept what is at least so many times as likely as its model had it.
  std::optional<float> draft_acceptance_threshold = {};
  // Part of the prefix-reuse key: equal prompts with other salts never share blocks.
  uint64_t cache_salt = 0;
};

enum class FinishReason : uint8_t {
  kNotFinished = 0,
  kEndId = 1,
  kStopWords = 2,
  kLength = 3,
  kTimedOut = 4,
  kCancelled = 5
};

const char* FinishReasonName(
    FinishReason reason);  // "end_id", "stop_words", "length", "timed_out", "cancelled"

// Where a request's time went, for statistics; filled in the terminal response. Monotonic clock,
// nanoseconds.
struct RequestTimes {
  int64_t enqueued_ns = 0;
  int64_t first_scheduled_ns = 0;
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
};

struct TopLogProb {
  TokenId id = 0;
  float log_prob = 0;  // over the vocabulary, after penalties and bans; -inf where it is banned
};

// Rows of logits, float32, [num_rows, vocab_size].
struct LogitsRows {
  int num_rows = 0;
  int vocab_size = 0;
  std::vector<float> values;
};

// One beam: the whole sequence that it generated, without the end id.
struct Beam {
  std::vector<TokenId> output_ids;
  std::vector<float> output_log_probs;  // one per entry of output_ids, if asked
  float cum_log_prob = 0;               // the sum, not divided by any length
  float score = 0;                      // what beams are ordered by
  FinishReason finish_reason = FinishReason::kNotFinished;
  std::vector<TopLogProb> top_log_probs;  // [output_ids.size() * num_top_log_probs], if asked
  LogitsRows generation_logits;  // [output_ids.size(), vocab_size], if asked; in the final response
};

// One response: what became known since the previous one of this request. Every accepted request
// gets exactly one response with `is_final`; an error response is final.
//
// A cancelled request that does not stream ends with the tokens it had; a timed-out one with none
// (docs/executor.md, "How a request ends"). What a stream already sent stays sent.
struct Response {
  RequestId request_id = 0;
  Status status;           // an error ends the request; then the fields below but `times` are empty
  bool is_final = false;   // the request's last one
  int sequence_index = 0;  // which of the request's sequences
  bool is_sequence_final = false;  // the last one of that sequence
  // New ids of this sequence since its last response; never the prompt.
  std::vector<TokenId> output_ids;
  std::vector<float> output_log_probs;  // one per entry of output_ids, if asked
  // [output_ids.size() * num_top_log_probs], the likeliest first, if asked.
  std::vector<TopLogProb> top_log_probs;
  float cum_log_prob = 0;  // sum over everything generated including the end id, if asked
  FinishReason finish_reason = FinishReason::kNotFinished;
  // Beam search: the best first, whole even in a stream; the five fields above are then empty.
  std::vector<Beam> beams;
  LogitsRows context_logits;     // [prompt_len, vocab_size] once, in the first response, if asked
  LogitsRows generation_logits;  // [output_ids.size(), vocab_size], if asked
  int num_cached_tokens = 0;     // prompt tokens served from reused KV blocks
  // Of the whole request: drafts that were verified, and those of them that are in the output. Only
  // in the final response.
  int num_draft_tokens = 0;
  int num_accepted_draft_tokens = 0;
  RequestTimes times;  // of the last token: only in the final response
};

}  // namespace inflight
