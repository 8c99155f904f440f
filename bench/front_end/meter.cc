// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "bench/front_end/front_end_load.h"

namespace inflight::bench {
namespace {

double OwnCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int64_t MonotonicNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void Meter::Begin(const FrontEndOptions& options) {
  begin_ns_ = MonotonicNs();
  warmup_ns_ = static_cast<int64_t>(options.warmup_s * 1e9);
  measure_ns_ = static_cast<int64_t>(options.measure_s * 1e9);
  latencies_ns_.reserve(1 << 20);
}

bool Meter::IsOver() {
  const int64_t now_ns = MonotonicNs();
  if (!is_measuring_) {
    if (now_ns - begin_ns_ < warmup_ns_) return false;
    is_measuring_ = true;
    begin_ns_ = now_ns;
    server_s_ = server_cpu_s_();
    client_s_ = OwnCpuSeconds();
    return false;
  }
  if (now_ns - begin_ns_ < measure_ns_) return false;
  end_ns_ = now_ns;
  server_s_ = server_cpu_s_() - server_s_;
  client_s_ = OwnCpuSeconds() - client_s_;
  return true;
}

std::string Meter::Report() {
  std::sort(latencies_ns_.begin(), latencies_ns_.end());
  const auto percentile_us = [this](double share) {
    if (latencies_ns_.empty()) return 0.0;
    const auto last = static_cast<double>(latencies_ns_.size() - 1);
    return latencies_ns_[static_cast<size_t>(last * share)] * 1e-3;
  };
  const double wall_s = static_cast<double>(end_ns_ - begin_ns_) * 1e-9;
  const auto items = static_cast<double>(std::max<int64_t>(num_items_, 1));
  char text[512];
  snprintf(text, sizeof text,
           "{\"items\": %lld, \"errors\": %lld, \"wall_s\": %.3f, \"items_per_s\": %.0f, "
           "\"server_us_per_item\": %.3f, \"client_us_per_item\": %.3f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f}",
           static_cast<long long>(num_items_), static_cast<long long>(num_errors_), wall_s,
           static_cast<double>(num_items_) / wall_s, server_s_ / items * 1e6,
           client_s_ / items * 1e6, percentile_us(0.5), percentile_us(0.99));
  return text;
}

}  // namespace inflight::bench
