// SPDX-License-Identifier: Apache-2.0
#include "base/log_budget.h"

#include <algorithm>

namespace inflight::logging {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLineNs = kSecondNs / LogBudget::kPerSecond;

}  // namespace

bool LogBudget::Take(const char* file, uint32_t line, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[{file, line}];
  const int64_t paid_until_ns = std::max(place.paid_until_ns, now_ns) + kLineNs;
  if (paid_until_ns - now_ns > kBurst * kLineNs) {
    if (place.left_out++ == 0) place.told_ns = now_ns;
    ++num_left_out_;
    return false;
  }
  place.paid_until_ns = paid_until_ns;
  return true;
}

std::vector<LogBudget::LeftOut> LogBudget::TakeLeftOut(int64_t now_ns) {
  std::vector<LeftOut> all;
  const std::lock_guard lock(mutex_);
  if (num_left_out_ == 0) return all;
  for (auto& [where, place] : places_) {
    if (place.left_out == 0 || now_ns - place.told_ns < kSecondNs) continue;
    all.push_back({.file = where.first, .line = where.second, .count = place.left_out});
    num_left_out_ -= place.left_out;
    place.left_out = 0;
  }
  return all;
}

}  // namespace inflight::logging
