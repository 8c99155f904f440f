// SPDX-License-Identifier: Apache-2.0
// Results in the layout that users of perf_analyzer know: text, and rows for spreadsheets.
#pragma once

#include <string>
#include <vector>

#include "bench/tensors/measure.h"

namespace inflight::bench {

struct ReportOptions {
  bool is_grpc = false;
  bool is_streaming = false;
};

// Printed before the first level, after each level and after the last.
std::string SettingsText(const MeasureOptions& options);
std::string LevelText(const MeasureOptions& options, const ReportOptions& report,
                      const ServedModel& model, const LevelResult& result);
std::string SummaryText(const MeasureOptions& options, const std::vector<LevelResult>& results);

// A row per level, by rising throughput; microseconds.
std::string ResultsCsv(const MeasureOptions& options, const ServedModel& model,
                       std::vector<LevelResult> results);
std::string ResultsJson(const MeasureOptions& options, const ServedModel& model,
                        const std::vector<LevelResult>& results);

}  // namespace inflight::bench
