// SPDX-License-Identifier: Apache-2.0
// Logits on their way from the step loop to the responses of one request. Events of a stream are
// small and of one size, so what a step returns of logits goes beside them.
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
  // Null for a request without logits.
  static std::unique_ptr<LogitsQueue> MakeFor(const Request& request);

  // Of `logits->generation` the first `num_tokens` rows are returned, as many as there are events
  // with tokens.
  void Push(int sequence_index, std::shared_ptr<RowLogits> logits, int num_tokens);

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

  LogitsQueue(int num_sequences, int num_prompt_tokens)
      : num_prompt_tokens_(num_prompt_tokens), generation_(static_cast<size_t>(num_sequences)) {}

  const int num_prompt_tokens_;
  std::mutex mutex_;
  Rows context_;                  // of the first sequence
  std::vector<Rows> generation_;  // [num_sequences]
};

}  // namespace inflight::executor
