// SPDX-License-Identifier: Apache-2.0
#include "parameters/engine_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "inflight/prompt_table.h"

namespace inflight::parameters {

bool IsPromptTooLong(const ExecutorLimits& limits, const Request& request) {
  return std::ssize(request.input_ids) > limits.max_input_len;
}

std::optional<size_t> FindOutsideVocabulary(const ExecutorLimits& limits,
                                            std::span<const TokenId> ids, TokenId lowest) {
  const auto found =
      std::ranges::find_if(ids, [&](TokenId id) { return id < lowest || id >= limits.vocab_size; });
  if (found == ids.end()) return std::nullopt;
  return static_cast<size_t>(found - ids.begin());
}

TokenId PromptIdEnd(const ExecutorLimits& limits, const Request& request) {
  const int num_rows = request.prompt_table == nullptr ? 0 : request.prompt_table->num_rows;
  return limits.vocab_size + num_rows;
}

std::optional<size_t> FindOutsidePrompt(const ExecutorLimits& limits, const Request& request) {
  const TokenId end = PromptIdEnd(limits, request);
  const auto found =
      std::ranges::find_if(request.input_ids, [end](TokenId id) { return id < 0 || id >= end; });
  if (found == request.input_ids.end()) return std::nullopt;
  return static_cast<size_t>(found - request.input_ids.begin());
}

Status CheckPromptTable(const ExecutorLimits& limits, const Request& request) {
  if (request.prompt_table == nullptr) return Status::Ok();
  constexpr char kField[] = "prompt_embedding_table";
  const PromptTable& table = *request.prompt_table;
  const int most = std::min(limits.max_prompt_embedding_table_size,
                            std::numeric_limits<TokenId>::max() - limits.vocab_size);
  if (most <= 0)
    return Unimplemented(kField,
                         "the engine was built without prompt tuning; leave it out, or build the "
                         "engine with --max_prompt_embedding_table_size");
  if (table.num_rows < 1 || table.num_rows > most)
    return InvalidArgument(kField, fmt::format("got {} rows, must be 1 to {} (the engine's "
                                               "max_prompt_embedding_table_size)",
                                               table.num_rows, most));
  if (table.hidden_size != limits.hidden_size)
    return InvalidArgument(kField, fmt::format("got rows of {} values, the model's have {}",
                                               table.hidden_size, limits.hidden_size));
  const auto num_values =
      static_cast<size_t>(table.num_rows) * static_cast<size_t>(table.hidden_size);
  if (table.values.size() != num_values)
    return InvalidArgument(
        kField, fmt::format("got {} values for {} rows of {}", table.values.size(), table.num_rows,
                            table.hidden_size));
  return Status::Ok();
}

bool ShortenToSequence(const ExecutorLimits& limits, Request& request) {
  const int room = limits.max_seq_len - static_cast<int>(request.input_ids.size());
  if (request.max_tokens <= room) return false;
  request.max_tokens = room;
  return true;
}

}  // namespace inflight::parameters
