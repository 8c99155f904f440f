// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/timestamp.h"

#include <fmt/format.h>

#include <cstdlib>

namespace inflight::cog {

using std::chrono::microseconds;

std::optional<std::string> IsoFormat(const CalendarTime& time) {
  const std::chrono::year_month_day date(std::chrono::year(time.year),
                                         std::chrono::month(static_cast<unsigned>(time.month)),
                                         std::chrono::day(static_cast<unsigned>(time.day)));
  if (!date.ok() || time.year < 1 || time.hour > 23 || time.minute > 59 || time.second > 59)
    return std::nullopt;
  std::string text = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", time.year, time.month,
                                 time.day, time.hour, time.minute, time.second);
  if (time.microsecond != 0) text += fmt::format(".{:06}", time.microsecond);
  if (time.offset_minutes) {
    const int offset = std::abs(*time.offset_minutes);
    text += fmt::format("{}{:02}:{:02}", *time.offset_minutes < 0 ? '-' : '+', offset / 60,
                        offset % 60);
  }
  return text;
}

std::string IsoFormat(std::chrono::sys_time<microseconds> time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return *IsoFormat({.year = static_cast<int>(date.year()),
                     .month = static_cast<int>(static_cast<unsigned>(date.month())),
                     .day = static_cast<int>(static_cast<unsigned>(date.day())),
                     .hour = static_cast<int>(clock.hours().count()),
                     .minute = static_cast<int>(clock.minutes().count()),
                     .second = static_cast<int>(clock.seconds().count()),
                     .microsecond = static_cast<int>(clock.subseconds().count()),
                     .offset_minutes = 0});
}

std::chrono::sys_time<microseconds> WallClock() {
  return std::chrono::floor<microseconds>(std::chrono::system_clock::now());
}

}  // namespace inflight::cog
