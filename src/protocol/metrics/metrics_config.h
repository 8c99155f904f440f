// SPDX-License-Identifier: Apache-2.0
// The words of --metrics-config (docs/metrics.md):
//
//   counter_latencies=true|false  histogram_latencies=true|false  summary_latencies=true|false
//   summary_quantiles=<quantile>:<error>,...
#pragma once

#include <string>
#include <vector>

#include "inflight/status.h"
#include "serving/statistics/statistics.h"

namespace inflight::metrics {

struct MetricsConfig {
  bool counter_latencies = true;
  bool histogram_latencies = false;
  bool summary_latencies = false;
  std::vector<serving::Quantile> summary_quantiles = {
      {0.5, 0.05}, {0.9, 0.01}, {0.95, 0.001}, {0.99, 0.001}, {0.999, 0.001}};
};

// Later words win. kInvalidArgument names the word and what is allowed.
Result<MetricsConfig> ParseMetricsConfig(const std::vector<std::string>& words);

// What models have to keep for it.
serving::StatisticsOptions StatisticsFor(const MetricsConfig& config);

}  // namespace inflight::metrics
