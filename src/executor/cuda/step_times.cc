// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/step_times.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/log.h"

namespace inflight::executor::cuda {
namespace {

constexpr size_t kMaxTimes = 1 << 16;
constexpr size_t kMaxLines = 16;  // the dearest

double MedianUs(std::vector<int64_t> ns) {
  if (ns.empty()) return 0;
  const auto middle = ns.begin() + static_cast<std::ptrdiff_t>(ns.size() / 2);
  std::ranges::nth_element(ns, middle);
  return static_cast<double>(*middle) * 1e-3;
}

}  // namespace

StepTimes::StepTimes(bool is_on) : is_on_(is_on) {
  if (is_on) times_.reserve(kMaxTimes);
}

void StepTimes::Add(const StepTime& time) {
  if (times_.size() < kMaxTimes) times_.push_back(time);
}

StepTimes::~StepTimes() {
  struct Group {
    std::vector<int64_t> gpu, gap, launch, wait;
    int64_t total = 0;
  };
  std::map<std::pair<int, int>, Group> groups;
  for (size_t i = 0; i < times_.size(); ++i) {
    const StepTime& time = times_[i];
    Group& group = groups[{time.num_rows, time.num_tokens}];
    group.gpu.push_back(time.end_ns - time.begin_ns);
    group.total += time.end_ns - time.begin_ns;
    if (i > 0) group.gap.push_back(time.begin_ns - times_[i - 1].end_ns);
    group.launch.push_back(time.launch_ns);
    group.wait.push_back(time.wait_ns);
  }
  std::vector<int64_t> totals;
  for (const auto& [shape, group] : groups) totals.push_back(group.total);
  std::ranges::sort(totals, std::greater<>());
  const int64_t least = totals.size() > kMaxLines ? totals[kMaxLines - 1] : 0;
  for (const auto& [shape, group] : groups) {
    if (group.total < least) continue;
    logging::Warning("times of steps, medians", {{"rows", shape.first},
                                                 {"tokens", shape.second},
                                                 {"steps", group.gpu.size()},
                                                 {"gpu_us", MedianUs(group.gpu)},
                                                 {"gap_us", MedianUs(group.gap)},
                                                 {"launch_us", MedianUs(group.launch)},
                                                 {"wait_us", MedianUs(group.wait)}});
  }
}

}  // namespace inflight::executor::cuda
