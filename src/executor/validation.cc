// SPDX-License-Identifier: Apache-2.0
#include "executor/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace inflight::executor {
namespace {

// Stop words are compared at every token, so their number bounds what one request costs others.
constexpr size_t kMaxEndIds = 1024;
constexpr size_t kMaxStopWords = 1024;
constexpr size_t kMaxStopWordTokens = 16384;

template <typename... Args>
Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
Status BadSampling(fmt::format_string<Args...> format, Args&&... args) {
  return InvalidArgument("Incorrect sampling config: " +
                         fmt::format(format, std::forward<Args>(args)...));
}

Status ValidatePrompt(const ExecutorLimits& limits, const Request& request) {
  if (request.input_ids.empty()) {
    return Invalid("input_ids: got no tokens, the prompt needs at least one");
  }
  if (request.input_ids.size() > static_cast<size_t>(limits.max_input_len)) {
    // The pool may hold less than a sequence of the engine's length; then that is the bound.
    const int64_t kv_tokens = limits.num_blocks * limits.block_size;
    if (kv_tokens > 0 && kv_tokens <= limits.max_seq_len) {
      return Invalid(
          "Prompt length ({}) exceeds maximum input length ({}). The KV cache holds {} tokens: "
          "shorten input_ids, or load the model with more KV cache memory",
          request.input_ids.size(), limits.max_input_len, kv_tokens);
    }
    return Invalid(
        "Prompt length ({}) exceeds maximum input length ({}). Shorten input_ids, or rebuild the "
        "engine with a larger max_input_len and max_seq_len",
        request.input_ids.size(), limits.max_input_len);
  }
  for (size_t i = 0; i < request.input_ids.size(); ++i) {
    const TokenId id = request.input_ids[i];
    if (id < 0 || id >= limits.vocab_size) {
      return Invalid("input_ids[{}]: got {}, the engine's vocabulary is [0, {})", i, id,
                     limits.vocab_size);
    }
  }
  return Status::Ok();
}

Status ValidateStops(const ExecutorLimits& limits, const Request& request) {
  if (request.end_ids.size() > kMaxEndIds) {
    return Invalid("end_ids: got {} ids, at most {} are allowed", request.end_ids.size(),
                   kMaxEndIds);
  }
  for (const TokenId id : request.end_ids) {
    if (id < -1 || id >= limits.vocab_size) {
      return Invalid("EndId ({}) is not within acceptable range [-1, {}).", id, limits.vocab_size);
    }
  }
  if (request.stop_words.size() > kMaxStopWords) {
    return Invalid("stop_words: got {} words, at most {} are allowed", request.stop_words.size(),
                   kMaxStopWords);
  }
  size_t num_tokens = 0;
  for (size_t i = 0; i < request.stop_words.size(); ++i) {
    const std::vector<TokenId>& word = request.stop_words[i];
    if (word.empty()) {
      return Invalid("stop_words[{}]: got an empty word, a word needs at least one id", i);
    }
    for (const TokenId id : word) {
      if (id < 0 || id >= limits.vocab_size) {
        return Invalid("stop_words[{}]: got id {}, the engine's vocabulary is [0, {})", i, id,
                       limits.vocab_size);
      }
    }
    num_tokens += word.size();
  }
  if (num_tokens > kMaxStopWordTokens) {
    return Invalid("stop_words: got {} ids in all, at most {} are allowed", num_tokens,
                   kMaxStopWordTokens);
  }
  return Status::Ok();
}

Status ValidateSampling(const ExecutorLimits& limits, const SamplingParams& sampling) {
  if (sampling.beam_width < 1) {
    return BadSampling("beam_width: got {}, must be at least 1", sampling.beam_width);
  }
  if (sampling.beam_width > limits.max_beam_width) {
    return Invalid(
        "Requested beam width {} is larger than configured max beam width {} (beam search is not "
        "built yet: leave beam_width at 1)",
        sampling.beam_width, limits.max_beam_width);
  }
  if (sampling.num_return_sequences != 1) {
    return Invalid(
        "num_return_sequences: got {}, this version returns one sequence per request (send the "
        "request again with another seed)",
        sampling.num_return_sequences);
  }
  const auto finite_from = [](float value, float low) {
    return std::isfinite(value) && value >= low;
  };
  const auto fraction = [](float value) { return value >= 0.0F && value <= 1.0F; };  // not NaN
  if (sampling.temperature && !finite_from(*sampling.temperature, 0.0F)) {
    return BadSampling("temperature: got {}, must be finite and at least 0", *sampling.temperature);
  }
  if (sampling.top_k && *sampling.top_k < 0) {
    return BadSampling("top_k: got {}, must be at least 0 (0 turns it off)", *sampling.top_k);
  }
  if (sampling.top_p && !fraction(*sampling.top_p)) {
    return BadSampling("top_p: got {}, must be in [0, 1] (0 turns it off)", *sampling.top_p);
  }
  if (sampling.min_p && !fraction(*sampling.min_p)) {
    return BadSampling("min_p: got {}, must be in [0, 1]", *sampling.min_p);
  }
  if (sampling.repetition_penalty &&
      !(std::isfinite(*sampling.repetition_penalty) && *sampling.repetition_penalty > 0.0F)) {
    return BadSampling("repetition_penalty: got {}, must be finite and greater than 0",
                       *sampling.repetition_penalty);
  }
  if (sampling.presence_penalty && !std::isfinite(*sampling.presence_penalty)) {
    return BadSampling("presence_penalty: got {}, must be finite", *sampling.presence_penalty);
  }
  if (sampling.frequency_penalty && !std::isfinite(*sampling.frequency_penalty)) {
    return BadSampling("frequency_penalty: got {}, must be finite", *sampling.frequency_penalty);
  }
  return Status::Ok();
}

}  // namespace

Status ValidateRequest(const ExecutorLimits& limits, Request* request, bool* was_shortened) {
  *was_shortened = false;
  RETURN_IF_ERROR(ValidatePrompt(limits, *request));
  if (request->max_tokens <= 0) {
    return Invalid("max_tokens: got {}, must be greater than 0", request->max_tokens);
  }
  RETURN_IF_ERROR(ValidateStops(limits, *request));
  RETURN_IF_ERROR(ValidateSampling(limits, request->sampling));
  if (!(request->priority >= 0.0F && request->priority <= 1.0F)) {
    return Invalid("priority: got {}, must be in [0, 1]", request->priority);
  }
  if (request->timeout_ms && *request->timeout_ms <= 0) {
    return Invalid("timeout_ms: got {}, must be greater than 0 (leave it out for no deadline)",
                   *request->timeout_ms);
  }
  if (request->queue_timeout_us && *request->queue_timeout_us <= 0) {
    return Invalid("queue_timeout_us: got {}, must be greater than 0 (leave it out for no limit)",
                   *request->queue_timeout_us);
  }
  std::erase(request->end_ids, -1);
  const int room = limits.max_seq_len - static_cast<int>(request->input_ids.size());
  if (request->max_tokens > room) {
    request->max_tokens = room;
    *was_shortened = true;
  }
  return Status::Ok();
}

}  // namespace inflight::executor
