// SPDX-License-Identifier: Apache-2.0
#include "executor/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/status_macros.h"
#include "decoding/sampling_rule.h"
#include "decoding/top_log_probs.h"
#include "inflight/guide.h"
#include "inflight/prompt_table.h"
#include "kv_cache/kv_cache.h"
#include "parameters/engine_limits.h"
#include "parameters/parameters.h"

namespace inflight::executor {
namespace {

constexpr TokenId kNoEndId = -1;

template <typename... Args>
Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
Status BadSampling(fmt::format_string<Args...> format, Args&&... args) {
  return InvalidArgument("Incorrect sampling config: " +
                         fmt::format(format, std::forward<Args>(args)...));
}

Status ValidateTable(const ExecutorLimits& limits, const Request& request) {
  if (request.prompt_table == nullptr) return Status::Ok();
  RETURN_IF_ERROR(parameters::CheckPromptTable(limits, request));
  const std::vector<float>& values = request.prompt_table->values;
  const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  if (bad == values.end()) return Status::Ok();
  const auto at = bad - values.begin();
  return Invalid("prompt_embedding_table: got {} at row {}, place {}; must be finite", *bad,
                 at / limits.hidden_size, at % limits.hidden_size)
      .WithField("prompt_embedding_table");
}

Status ValidatePrompt(const ExecutorLimits& limits, const Request& request) {
  if (request.input_ids.empty()) {
    return Invalid("input_ids: got no tokens, the prompt needs at least one");
  }
  if (parameters::IsPromptTooLong(limits, request)) {
    // The pool may hold less than a sequence of the engine's length; then that is the bound.
    const int64_t kv_tokens = limits.num_blocks * limits.block_size;
    if (kv_tokens > 0 && kv_tokens <= limits.max_seq_len) {
      return Invalid(
                 "Prompt length ({}) exceeds maximum input length ({}). The KV cache holds {} "
                 "tokens: "
                 "shorten input_ids, or load the model with more KV cache memory",
                 request.input_ids.size(), limits.max_input_len, kv_tokens)
          .WithReason(Reason::kPromptTooLong);
    }
    return Invalid(
               "Prompt length ({}) exceeds maximum input length ({}). Shorten input_ids, or "
               "rebuild the "
               "engine with a larger max_input_len and max_seq_len",
               request.input_ids.size(), limits.max_input_len)
        .WithReason(Reason::kPromptTooLong);
  }
  RETURN_IF_ERROR(ValidateTable(limits, request));
  if (const auto bad = parameters::FindOutsidePrompt(limits, request)) {
    const TokenId id = request.input_ids[*bad];
    if (request.prompt_table == nullptr) {
      return Invalid("input_ids[{}]: got {}, the engine's vocabulary is [0, {})", *bad, id,
                     limits.vocab_size);
    }
    return Invalid(
        "input_ids[{}]: got {}, must be in [0, {}): the vocabulary has {} ids, "
        "prompt_embedding_table {} rows",
        *bad, id, parameters::PromptIdEnd(limits, request), limits.vocab_size,
        parameters::PromptIdEnd(limits, request) - limits.vocab_size);
  }
  return Status::Ok();
}

// Words are compared at every token, so their number bounds what one request costs others.
Status ValidateWords(const ExecutorLimits& limits, std::string_view field,
                     const std::vector<std::vector<TokenId>>& words) {
  if (words.size() > decoding::kMaxWords) {
    return Invalid("{}: got {} words, at most {} are allowed", field, words.size(),
                   decoding::kMaxWords);
  }
  size_t num_tokens = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty()) {
      return Invalid("{}[{}]: got an empty word, a word needs at least one id", field, i);
    }
    if (const auto bad = parameters::FindOutsideVocabulary(limits, words[i])) {
      return Invalid("{}[{}]: got id {}, the engine's vocabulary is [0, {})", field, i,
                     words[i][*bad], limits.vocab_size);
    }
    num_tokens += words[i].size();
  }
  if (num_tokens > decoding::kMaxWordTokens) {
    return Invalid("{}: got {} ids in all, at most {} are allowed", field, num_tokens,
                   decoding::kMaxWordTokens);
  }
  return Status::Ok();
}

Status ValidateWordsAndEnds(const ExecutorLimits& limits, const Request& request) {
  if (request.end_ids.size() > decoding::kMaxEndIds) {
    return Invalid("end_ids: got {} ids, at most {} are allowed", request.end_ids.size(),
                   decoding::kMaxEndIds);
  }
  if (const auto bad = parameters::FindOutsideVocabulary(limits, request.end_ids, kNoEndId)) {
    return Invalid("EndId ({}) is not within acceptable range [{}, {}).", request.end_ids[*bad],
                   kNoEndId, limits.vocab_size);
  }
  RETURN_IF_ERROR(ValidateWords(limits, "stop_words", request.stop_words));
  return ValidateWords(limits, "bad_words", request.bad_words);
}

Status ValidateBias(const ExecutorLimits& limits, const Request& request) {
  if (request.embedding_bias == nullptr) return Status::Ok();
  const std::vector<float>& bias = *request.embedding_bias;
  if (bias.size() != static_cast<size_t>(limits.vocab_size)) {
    return Invalid("embedding_bias: got {} values, the engine's vocabulary has {}", bias.size(),
                   limits.vocab_size);
  }
  const auto bad = std::ranges::find_if_not(  // NaN too
      bias, [](float x) { return x <= std::numeric_limits<float>::max(); });
  if (bad == bias.end()) return Status::Ok();
  return Invalid("embedding_bias[{}]: got {}, must be finite, or -inf to ban the token",
                 bad - bias.begin(), *bad);
}

// What the beams of a search are chosen by, and nothing is drawn.
Status ValidateBeams(const ExecutorLimits& limits, const SamplingParams& sampling) {
  const int width = sampling.beam_width;
  if (width == 1) return Status::Ok();
  if (width > limits.max_beam_width) {
    return Invalid(
        "Requested beam width {} is larger than configured max beam width {} (build the engine "
        "with a larger max_beam_width)",
        width, limits.max_beam_width);
  }
  if (sampling.num_return_sequences.value_or(1) > width) {
    return BadSampling("num_return_sequences: got {}, must be at most beam_width, which is {}",
                       *sampling.num_return_sequences, width);
  }
  for (const parameters::Parameter& parameter : parameters::All()) {
    if (!parameters::LeavesTokensOut(parameter, sampling)) continue;
    return BadSampling(
        "{}: got {} with beam_width {}, beams are not drawn at random (leave it out, or "
        "beam_width)",
        parameter.field, parameters::ValueText(parameter, sampling), width);
  }
  return Status::Ok();
}

// Each parameter's domain is its own (parameters/parameters.h); here is what this engine bounds.
Status ValidateSampling(const ExecutorLimits& limits, const Request& request) {
  const SamplingParams& sampling = request.sampling;
  if (const Status status = parameters::CheckDomains(request); !status.ok()) {
    return BadSampling("{}", status.message()).WithField(status.field());
  }
  RETURN_IF_ERROR(ValidateBeams(limits, sampling));
  if (sampling.top_p_reset_id.value_or(-1) >= limits.vocab_size) {
    return BadSampling("top_p_reset_id: got {}, must be in [-1, {}) (-1 for none)",
                       *sampling.top_p_reset_id, limits.vocab_size);
  }
  if (sampling.no_repeat_ngram_size > kMaxNgramSize) {
    return BadSampling("no_repeat_ngram_size: got {}, must be in [0, {}] (0 turns it off)",
                       sampling.no_repeat_ngram_size, kMaxNgramSize);
  }
  return Status::Ok();
}

// Of the beams of a search, which keep all of their blocks in each pool: one sequence of full
// length always fits.
Status ValidateMemory(const ExecutorLimits& limits, const Request& request) {
  const int width = request.sampling.beam_width;
  const int64_t most = limits.least_blocks > 0 ? limits.least_blocks : limits.num_blocks;
  if (width == 1 || most == 0) return Status::Ok();
  const auto prompt_len = static_cast<int>(request.input_ids.size());
  const int64_t num_blocks = kv_cache::KvCache::BlocksOf(
      prompt_len, prompt_len + request.max_tokens - 1, width, limits.block_size);
  if (num_blocks <= most) return Status::Ok();
  return Invalid(
      "beam_width: {} beams of {} prompt and {} new tokens need {} KV blocks of {} tokens, the "
      "cache has {} (lower max_tokens or beam_width, or load the model with more KV cache memory)",
      width, prompt_len, request.max_tokens, num_blocks, limits.block_size, most);
}

// In upstream's words, of which programs know some.
Status ValidateDrafts(const ExecutorLimits& limits, Request* request) {
  std::vector<TokenId>& drafts = request->draft_ids;
  if (drafts.empty()) {
    return request->draft_logits == nullptr
               ? Status::Ok()
               : Invalid("Draft tokens must be specified when draft logits are given.");
  }
  if (request->sampling.beam_width > 1) {
    return Invalid(
        "Can't use speculative decoding with beam search. beam_width is {}: leave it or the draft "
        "tokens out",
        request->sampling.beam_width);
  }
  if (std::ssize(drafts) > limits.max_draft_len) {
    return Invalid(
        "Draft tokens length ({}) exceeds maximum draft tokens length ({}). Send fewer, or load "
        "the model with a larger max_draft_len",
        drafts.size(), limits.max_draft_len);
  }
  if (const auto bad = parameters::FindOutsideVocabulary(limits, drafts)) {
    return Invalid("draft_ids[{}]: got {}, the engine's vocabulary is [0, {})", *bad, drafts[*bad],
                   limits.vocab_size);
  }
  if (request->draft_logits != nullptr) {
    const size_t needed = drafts.size() * static_cast<size_t>(limits.vocab_size);
    if (request->draft_logits->size() != needed) {
      return Invalid("draft_logits: got {} values, {} draft tokens of a vocabulary of {} need {}",
                     request->draft_logits->size(), drafts.size(), limits.vocab_size, needed);
    }
    if (request->sampling.typical_p.value_or(1) < 1) {
      return Unimplemented(
          "draft_logits: with typical_p drafts are compared by their ids alone; leave one out");
    }
  }
  if (const auto threshold = request->draft_acceptance_threshold;
      threshold && !(*threshold > 0 && *threshold <= 1)) {
    return Invalid("draft_acceptance_threshold: got {}, must be in (0, 1] (leave it out for none)",
                   *threshold);
  }
  const auto most = static_cast<size_t>(request->max_tokens - 1);
  if (drafts.size() > most) drafts.resize(most);
  return Status::Ok();
}

Status ValidateGuide(const ExecutorLimits& limits, const Request& request) {
  if (request.guide == nullptr) return Status::Ok();
  const int num_tokens = request.guide->num_tokens();
  if (num_tokens > limits.vocab_size)
    return InvalidArgument(
        "guide", fmt::format("is for a vocabulary of {} tokens, the engine's has {} (make it of "
                             "the texts of the engine's tokens)",
                             num_tokens, limits.vocab_size));
  if (request.sampling.beam_width > 1 && request.end_ids.empty())
    return InvalidArgument("guide", "beams that are guided end by an id: give end_ids");
  return Status::Ok();
}

// A response is one message: 2 GiB are the most that gRPC carries, and the rows are kept until
// then.
constexpr int64_t kMaxLogitsBytes = int64_t{1} << 30;

// Of the response that holds both, where both are asked for.
Status ValidateLogits(const ExecutorLimits& limits, const Request& request) {
  const bool context = request.output.return_context_logits;
  const bool generation = request.output.return_generation_logits;
  if (!context && !generation) return Status::Ok();
  if (!limits.returns_logits) {
    return Unimplemented(
        fmt::format("{}: this device does not return logits; use --device cpu",
                    context ? "return_context_logits" : "return_generation_logits"));
  }
  const int width = request.sampling.beam_width;
  const bool keeps_generation = generation && (!request.streaming || width > 1);  // to the end
  std::string field;
  std::string remedy;
  int64_t num_tokens = 0;
  const auto add = [&](int64_t count, std::string_view name, std::string_view less) {
    if (num_tokens > 0) field += " and ", remedy += ", or ";
    field += name;
    remedy += less;
    num_tokens += count;
  };
  if (context) add(std::ssize(request.input_ids), "return_context_logits", "shorten input_ids");
  if (keeps_generation) {
    add(int64_t{request.max_tokens} * width, "return_generation_logits",
        width > 1 ? "lower max_tokens or beam_width" : "lower max_tokens, or stream");
  }
  const int64_t bytes = num_tokens * limits.vocab_size * static_cast<int64_t>(sizeof(float));
  if (bytes <= kMaxLogitsBytes) return Status::Ok();
  return Invalid("{}: logits of {} tokens are {} bytes, a response holds at most {} ({})", field,
                 num_tokens, bytes, kMaxLogitsBytes, remedy);
}

Status ValidateTopLogProbs(const ExecutorLimits& limits, const OutputOptions& output) {
  const int count = output.num_top_log_probs;
  const int most = std::min(decoding::kMaxTopLogProbs, limits.vocab_size);
  if (count < 0 || count > most) {
    return Invalid("num_top_log_probs: got {}, must be in [0, {}]", count, most);
  }
  if (count == 0 || limits.returns_logits) return Status::Ok();
  return Unimplemented("num_top_log_probs: this device does not return them; use --device cpu");
}

}  // namespace

Status ValidateRequest(const ExecutorLimits& limits, Request* request, bool* was_shortened) {
  *was_shortened = false;
  RETURN_IF_ERROR(ValidatePrompt(limits, *request));
  if (request->max_tokens <= 0) {
    return Invalid("max_tokens: got {}, must be greater than 0", request->max_tokens);
  }
  RETURN_IF_ERROR(ValidateWordsAndEnds(limits, *request));
  RETURN_IF_ERROR(ValidateBias(limits, *request));
  RETURN_IF_ERROR(ValidateTopLogProbs(limits, request->output));
  RETURN_IF_ERROR(ValidateSampling(limits, *request));
  if (!(request->priority >= 0.0F && request->priority <= 1.0F)) {
    return Invalid("priority: got {}, must be in [0, 1]", request->priority);
  }
  if (!(request->share >= 0.01F && request->share <= 100.0F)) {
    return Invalid("share: got {}, must be in [0.01, 100]", request->share);
  }
  if (request->timeout_ms && *request->timeout_ms <= 0) {
    return Invalid("timeout_ms: got {}, must be greater than 0 (leave it out for no deadline)",
                   *request->timeout_ms);
  }
  if (request->queue_timeout_us && *request->queue_timeout_us <= 0) {
    return Invalid("queue_timeout_us: got {}, must be greater than 0 (leave it out for no limit)",
                   *request->queue_timeout_us);
  }
  std::erase(request->end_ids, kNoEndId);
  *was_shortened = parameters::ShortenToSequence(limits, *request);
  RETURN_IF_ERROR(ValidateDrafts(limits, request));
  RETURN_IF_ERROR(ValidateGuide(limits, *request));
  RETURN_IF_ERROR(ValidateMemory(limits, *request));
  return ValidateLogits(limits, *request);
}

}  // namespace inflight::executor
