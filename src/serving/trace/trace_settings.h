// SPDX-License-Identifier: Apache-2.0
// What of requests is traced, and the texts in which clients and flags say it
// (docs/tracing.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::serving {

struct TraceLevels {
  bool timestamps = false;
  bool tensors = false;

  bool any() const { return timestamps || tensors; }
};

struct TraceSettings {
  TraceLevels levels;          // none = OFF
  uint32_t rate = 1000;        // every n-th request; 0 = none
  int32_t count = -1;          // traces that are left; -1 = no end
  uint32_t log_frequency = 0;  // traces of a file; 0 = one file, complete at the end
};

// What an update asks of one setting: nothing, to clear it, or a value.
template <typename T>
struct TraceChange {
  bool is_asked = false;
  std::optional<T> value;
};

struct TraceUpdate {
  TraceChange<TraceLevels> levels;
  TraceChange<uint32_t> rate;
  TraceChange<int32_t> count;
  TraceChange<uint32_t> log_frequency;
};

// Whose words an error has; they differ by a blank.
enum class TraceWords { kHttp, kGrpc };

// Puts a setting by its name on the wire ("trace_rate") into `update`; no values clear it. Names
// that are no setting are passed over.
// Errors: kInvalidArgument and, for the file, kUnimplemented, in the words that clients compare.
Status ChangeTraceSetting(std::string_view name, const std::vector<std::string>& values,
                          TraceWords words, TraceUpdate& update);

// What was set at one place, for all models or for one; the rest is what stands behind it.
struct TraceOverrides {
  std::optional<TraceLevels> levels;
  std::optional<uint32_t> rate;
  std::optional<int32_t> count;
  std::optional<uint32_t> log_frequency;

  bool empty() const { return !levels && !rate && !count && !log_frequency; }
  void Change(const TraceUpdate& update);
  TraceSettings Over(TraceSettings behind) const;
};

std::vector<std::string> TraceLevelNames(TraceLevels levels);  // {"OFF"} when there are none

}  // namespace inflight::serving
