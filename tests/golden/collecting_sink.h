// SPDX-License-Identifier: Apache-2.0
// All responses of a request, joined.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "inflight/executor.h"

namespace inflight {

struct CollectingSink : ResponseSink {
  void OnResponse(Response response) override {
    const std::lock_guard lock(mutex);
    ids.insert(ids.end(), response.output_ids.begin(), response.output_ids.end());
    log_probs.insert(log_probs.end(), response.output_log_probs.begin(),
                     response.output_log_probs.end());
    ++num_responses;
    last = std::move(response);
    changed.notify_all();
  }
  void Wait() {  // for the final response
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return last.is_final; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<TokenId> ids;
  std::vector<float> log_probs;
  int num_responses = 0;
  Response last;
};

}  // namespace inflight
