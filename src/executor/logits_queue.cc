// SPDX-License-Identifier: Apache-2.0
#include "executor/logits_queue.h"

#include <utility>

#include "base/check.h"
#include "executor/sequence.h"

namespace inflight::executor {

std::unique_ptr<LogitsQueue> LogitsQueue::MakeFor(const Request& request) {
  const OutputOptions& output = request.output;
  if (!output.return_context_logits && !output.return_generation_logits) return nullptr;
  return std::unique_ptr<LogitsQueue>(
      new LogitsQueue(NumSequences(request), static_cast<int>(request.input_ids.size())));
}

void LogitsQueue::Push(int sequence_index, std::shared_ptr<RowLogits> logits, int num_tokens) {
  LogitsRows& generation = logits->generation;
  if (generation.num_rows > num_tokens) {
    generation.num_rows = num_tokens;
    generation.values.resize(static_cast<size_t>(num_tokens) *
                             static_cast<size_t>(generation.vocab_size));
  }
  const std::lock_guard lock(mutex_);
  context_.Push(std::move(logits->context));
  generation_[static_cast<size_t>(sequence_index)].Push(std::move(generation));
}

void LogitsQueue::Take(int sequence_index, int num_tokens, Response* response) {
  const std::lock_guard lock(mutex_);
  if (sequence_index == 0 && context_.num_rows == num_prompt_tokens_) {
    response->context_logits = context_.Take(num_prompt_tokens_);
  }
  Rows& generation = generation_[static_cast<size_t>(sequence_index)];
  if (generation.num_rows > 0) response->generation_logits = generation.Take(num_tokens);
}

void LogitsQueue::Rows::Push(LogitsRows chunk) {
  if (chunk.num_rows == 0) return;
  num_rows += chunk.num_rows;
  chunks.push_back(std::move(chunk));
}

LogitsRows LogitsQueue::Rows::Take(int wanted) {
  LogitsRows taken;
  while (taken.num_rows < wanted) {
    CHECK(!chunks.empty());
    LogitsRows chunk = std::move(chunks.front());
    chunks.pop_front();
    num_rows -= chunk.num_rows;
    if (taken.num_rows == 0) {
      taken = std::move(chunk);
      if (taken.num_rows < wanted) {
        taken.values.reserve(static_cast<size_t>(wanted) * static_cast<size_t>(taken.vocab_size));
      }
      continue;
    }
    taken.num_rows += chunk.num_rows;
    taken.values.insert(taken.values.end(), chunk.values.begin(), chunk.values.end());
  }
  CHECK_EQ(taken.num_rows, wanted);
  return taken;
}

}  // namespace inflight::executor
