// SPDX-License-Identifier: Apache-2.0
// Logits and top log-probs on their way from the step loop to the responses of one request. Events
// of a stream are small and of one size, so what a step returns of logits goes beside them. Those
// of a beam search's tokens come with its beams.
//
// Threads: the step loop pushes before it pushes the events of the same tokens; the request's
// stream thread takes.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/backend.h"
#include "inflight/request.h"

namespace inflight::executor {

class LogitsQueue {
 public:
  // Null for a request without any.
  static std::unique_ptr<LogitsQueue> MakeFor(const Request& request);

  // What belongs to the first `num_tokens` tokens is returned, as many as there are events with
  // tokens.
  void Push(int sequence_index, const std::shared_ptr<RowLogits>& logits, int num_tokens);

  // Moves the rows of the oldest `num_tokens` tokens into the response, and those of the prompt
  // when all are there.
  void Take(int sequence_index, int num_tokens, Response* response);

 private:
  struct Rows {
    int num_rows = 0;  // in all chunks
    std::deque<LogitsRows> chunks;

    void Push(LogitsRows chunk);
    // Chunks of `wanted` rows together: rows come and go in the same portions.
    LogitsRows Take(int wanted);
  };

  // Of one sequence.
  struct Generated {
    Rows logits;
    std::vector<TopLogProb> top_log_probs;
  };

  explicit LogitsQueue(const Request& request);

  const int num_prompt_tokens_;
  const int num_top_log_probs_;
  std::mutex mutex_;
  Rows context_;                      // of the first sequence
  std::vector<Generated> generated_;  // [num_sequences]
};

}  // namespace inflight::executor
