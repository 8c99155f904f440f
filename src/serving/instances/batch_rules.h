// SPDX-License-Identifier: Apache-2.0
// Which waiting requests an instance executes together, and when (docs/reference/repositories.md,
// "Test models").
//
//   no batching        each request by itself, at once; so is a warm-up executed
//   dynamic_batching   in order while they fit: a preferred size that is reached, the largest, goes
//                      at once; what the next one would carry beyond all preferred sizes, and what
//                      cannot grow, too; the rest after max_queue_delay_microseconds, which takes
//                      all that fits
//   oldest sequences   the same, one request of a sequence at a time
//   direct sequences   one request of a sequence at a time; fewer than minimum_slot_utilization
//                      asks for wait for the delay
//
// A request is never split, and requests that differ in the shape of an input (without its batch
// dimension, unless it has allow_ragged_batch) or in the set of their inputs are not batched.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model_config.pb.h"
#include "serving/core/request.h"

namespace inflight::serving {

struct BatchRules {
  bool is_batched = false;
  int max_batch_size = 0;        // of the model; 0: its requests have no batch dimension
  int64_t max_size = 1;          // elements of a batch
  std::set<int64_t> preferred;   // sizes; without direct sequences never empty
  int64_t max_preferred = 0;     // 0 = none
  int64_t min_size = 0;          // of direct sequences: smaller ones wait for the delay
  int64_t max_delay_ns = 0;      // of the request that waits longest
  bool has_sequences = false;    // one request of each
  std::set<std::string> ragged;  // inputs whose shapes may differ
};

BatchRules BatchRulesOf(const ::inference::ModelConfig& config);

// Takes requests in the order in which they wait.
class BatchBuilder {
 public:
  explicit BatchBuilder(const BatchRules& rules) : rules_(rules) {}

  enum class Answer { kTaken, kSkipped, kFull };  // kFull: neither this one nor one behind it
  // `request` stays where it is as long as this.
  Answer Offer(const Request& request, int64_t queued_ns);

  // How many of those taken, from the first, are to be executed now. None: more may come until
  // `wait_until_ns`, which has a meaning only then.
  std::optional<size_t> NumReady(int64_t now_ns) const;
  int64_t wait_until_ns() const { return oldest_ns_ + rules_.max_delay_ns; }
  size_t num_taken() const { return num_taken_; }

 private:
  bool Joins(const Request& request) const;

  const BatchRules& rules_;
  const Request* first_ = nullptr;
  std::set<SequenceKey> sequences_;
  size_t num_taken_ = 0;
  size_t num_preferred_ = 0;  // requests up to the size that goes at once; 0: none is reached
  int64_t size_ = 0;
  int64_t oldest_ns_ = INT64_MAX;
  bool can_grow_ = true;
  bool has_warm_up_ = false;
};

}  // namespace inflight::serving
