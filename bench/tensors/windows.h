// SPDX-License-Identifier: Apache-2.0
// What a load of one strength gave, window by window, and when that is steady enough to be
// reported.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/load/load.h"
#include "bench/tensors/served_model.h"

namespace inflight::bench {

// An answered request. Times are of the steady clock.
struct Sample {
  int64_t latency_ns = 0;  // sent to its last response
  int64_t send_ns = 0;     // making and writing the request
  int64_t receive_ns = 0;  // reading the (last) response
  int64_t delay_ns = 0;    // sent after it was due
  int64_t first_ns = 0;    // sent to the first response; 0 where the protocol does not stream
  int num_responses = 0;
};

Sample SampleOf(const RequestOutcome& outcome);

// Requests that ended within a stretch of time.
struct Window {
  double seconds = 0;
  std::vector<Sample> samples;
  std::map<std::string, int> errors;  // by kind
  ServerCounters server;              // meanwhile
};

// Microseconds, averages of all samples.
struct Figures {
  int64_t num_requests = 0;
  double inferences_per_s = 0;
  double responses_per_s = 0;
  double latency = 0, deviation = 0;  // the deviation is that of the population
  double send = 0, receive = 0, delay = 0;
  double first_response = 0;          // of those that have one; 0: none has
  std::map<int, double> percentiles;  // 50, 90, 95, 99 and the one asked for
  std::map<std::string, int> errors;
  ServerCounters server;

  // The latency that decides: the percentile where one is asked for, else the average.
  double Latency(std::optional<int> percentile) const;
};

// Of windows that follow each other. `percentile` is added to the usual ones.
Figures Summarize(const std::vector<Window>& windows, int batch_size,
                  std::optional<int> percentile);

inline constexpr size_t kStableWindows = 3;

// Whether throughput and latency of the last three windows each lie within `share` of their mean.
bool IsStable(const std::vector<Window>& windows, double share, std::optional<int> percentile);

}  // namespace inflight::bench
