// SPDX-License-Identifier: Apache-2.0
#include "executor/logits_queue.h"

#include <utility>

#include "base/check.h"
#include "executor/sequence.h"

namespace inflight::executor {

std::unique_ptr<LogitsQueue> LogitsQueue::MakeFor(const Request& request) {
  const OutputOptions& output = request.output;
  if (!output.return_context_logits && !output.return_generation_logits &&
      output.num_top_log_probs == 0) {
    return nullptr;
  }
  return std::unique_ptr<LogitsQueue>(new LogitsQueue(request));
}

LogitsQueue::LogitsQueue(const Request& request)
    : num_prompt_tokens_(static_cast<int>(request.input_ids.size())),
      num_top_log_probs_(request.output.num_top_log_probs),
      generated_(static_cast<size_t>(NumSequences(request))) {}

void LogitsQueue::Push(int sequence_index, const std::shared_ptr<RowLogits>& logits,
                       int num_tokens) {
  LogitsRows& generation = logits->generation;
  if (generation.num_rows > num_tokens) {
    generation.num_rows = num_tokens;
    generation.values.resize(static_cast<size_t>(num_tokens) *
                             static_cast<size_t>(generation.vocab_size));
  }
  const auto num_top = static_cast<ptrdiff_t>(num_tokens) * num_top_log_probs_;
  const std::vector<TopLogProb>& top = logits->top_log_probs;
  const std::lock_guard lock(mutex_);
  context_.Push(std::move(logits->context));
  Generated& generated = generated_[static_cast<size_t>(sequence_index)];
  generated.logits.Push(std::move(generation));
  if (top.empty()) return;
  generated.top_log_probs.insert(generated.top_log_probs.end(), top.begin(), top.begin() + num_top);
}

void LogitsQueue::Take(int sequence_index, int num_tokens, Response* response) {
  const std::lock_guard lock(mutex_);
  if (sequence_index == 0 && context_.num_rows == num_prompt_tokens_) {
    response->context_logits = context_.Take(num_prompt_tokens_);
  }
  Generated& generated = generated_[static_cast<size_t>(sequence_index)];
  if (generated.logits.num_rows > 0)
    response->generation_logits = generated.logits.Take(num_tokens);
  auto& top = generated.top_log_probs;
  if (top.empty()) return;
  const auto end = top.begin() + static_cast<ptrdiff_t>(num_tokens) * num_top_log_probs_;
  response->top_log_probs.assign(top.begin(), end);
  top.erase(top.begin(), end);
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
