// SPDX-License-Identifier: Apache-2.0
// What becomes known of a client's request on its way, for its line of the request log: the model
// that it ran on, and its tokens. It goes along with the request, and counts for all that is made
// of it.
//
// Threads: all methods are thread-safe; those that are called for each token neither lock nor
// allocate.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace inflight {

class RequestTally {
 public:
  // The first name stands: that of a front end before the model's own.
  void SetModel(std::string_view name) {
    const std::lock_guard lock(mutex_);
    if (model_.empty()) model_ = name;
  }
  std::string model() const {
    const std::lock_guard lock(mutex_);
    return model_;
  }

  void AddPrompt(int64_t num_tokens) { Add(prompt_tokens_, num_tokens); }
  // `now_ns`, monotonic, is when these tokens were there.
  void AddOutput(int64_t num_tokens, int64_t now_ns) {
    if (num_tokens == 0) return;
    Add(output_tokens_, num_tokens);
    int64_t none = 0;
    if (first_token_ns_.load(std::memory_order_relaxed) == 0)
      first_token_ns_.compare_exchange_strong(none, now_ns, std::memory_order_relaxed);
  }

  int64_t prompt_tokens() const { return prompt_tokens_.load(std::memory_order_relaxed); }
  int64_t output_tokens() const { return output_tokens_.load(std::memory_order_relaxed); }
  int64_t first_token_ns() const {  // 0: there was none
    return first_token_ns_.load(std::memory_order_relaxed);
  }

 private:
  static void Add(std::atomic<int64_t>& count, int64_t number) {
    count.fetch_add(number, std::memory_order_relaxed);
  }

  mutable std::mutex mutex_;
  std::string model_;
  std::atomic<int64_t> prompt_tokens_{0};
  std::atomic<int64_t> output_tokens_{0};
  std::atomic<int64_t> first_token_ns_{0};
};

}  // namespace inflight
