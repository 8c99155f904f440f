// SPDX-License-Identifier: Apache-2.0
// Times as a prediction object has them: what datetime.isoformat() gives in Python.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace inflight::cog {

struct CalendarTime {
  int year = 0;
  int month = 0;
  int day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  int microsecond = 0;
  std::optional<int> offset_minutes;  // from UTC; none is of no zone
};

// 2024-01-02T03:04:05.250000+01:30, without a fraction of zero. Unset where there is no such time.
std::optional<std::string> IsoFormat(const CalendarTime& time);

std::string IsoFormat(std::chrono::sys_time<std::chrono::microseconds> time);  // in UTC

std::chrono::sys_time<std::chrono::microseconds> WallClock();

}  // namespace inflight::cog
