// SPDX-License-Identifier: Apache-2.0
// Requests of every kind, and what two answers to one have to have in common: all, to the bit.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "collecting_sink.h"
#include "inflight/request.h"

namespace inflight::golden {

// Collects the rows that a request has returned, too.
struct RowsSink : CollectingSink {
  void OnResponse(Response response) override {
    {
      const std::lock_guard lock(mutex);
      top.insert(top.end(), response.top_log_probs.begin(), response.top_log_probs.end());
      const std::vector<float>& rows = response.generation_logits.values;
      logits.insert(logits.end(), rows.begin(), rows.end());
      const std::vector<float>& prompt_rows = response.context_logits.values;
      context.insert(context.end(), prompt_rows.begin(), prompt_rows.end());
    }
    CollectingSink::OnResponse(std::move(response));
  }
  std::vector<TopLogProb> top;
  std::vector<float> logits, context;
};

using Sinks = std::vector<std::shared_ptr<RowsSink>>;

class Prompts {
 public:
  explicit Prompts(int vocab_size) : vocab_size_(vocab_size) {}

  // `period` tokens again and again: what is drawn often repeats them.
  std::vector<TokenId> Periodic(int period, int length) {
    std::vector<TokenId> ids;
    for (int i = 0; i < length; ++i)
      ids.push_back(i < period ? Any() : ids[static_cast<size_t>(i - period)]);
    return ids;
  }
  TokenId Any() {
    return static_cast<TokenId>(3 + random_() % static_cast<unsigned>(vocab_size_ - 3));
  }

 private:
  std::mt19937 random_{11};
  int vocab_size_;
};

// Each rule that says what is drawn, greedy and sampled, and each thing that is returned.
std::vector<Request> RequestsOfAllKinds(int vocab_size);

void ExpectEqual(const RowsSink& actual, const RowsSink& expected, size_t i);
// The same, also where both failed.
void ExpectSameEnd(const RowsSink& actual, const RowsSink& expected, size_t i);

// Of the requests that have one sequence: the tokens of several come in the order of steps.
void ExpectAllEqual(const std::vector<Request>& requests, const Sinks& actual,
                    const Sinks& expected);

}  // namespace inflight::golden
