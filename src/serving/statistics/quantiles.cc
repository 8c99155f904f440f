// SPDX-License-Identifier: Apache-2.0
#include "serving/statistics/quantiles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace inflight::serving {
namespace {

constexpr size_t kBufferedValues = 256;

}  // namespace

void QuantileSketch::Insert(double value) {
  buffer_.push_back(value);
  if (buffer_.size() >= kBufferedValues) Flush();
}

// f(r, n) of the paper: the least over all targets.
double QuantileSketch::AllowedError(double rank) const {
  const auto n = static_cast<double>(count_);
  double allowed = n + 1;
  for (const auto& [quantile, error] : targets_) {
    const double own = rank <= quantile * n ? 2 * error * (n - rank) / (1 - quantile)
                                            : 2 * error * rank / quantile;
    allowed = std::min(allowed, own);
  }
  return allowed;
}

void QuantileSketch::Flush() {
  if (buffer_.empty()) return;
  std::sort(buffer_.begin(), buffer_.end());
  std::vector<Item> merged;
  merged.reserve(items_.size() + buffer_.size());
  size_t next = 0;
  for (const double value : buffer_) {
    for (; next < items_.size() && items_[next].value <= value; ++next) {
      merged.push_back(items_[next]);
    }
    // Its rank is as uncertain as that of the item behind it, which it may precede anywhere.
    const bool is_end = merged.empty() || next == items_.size();
    const int64_t slack = is_end ? 0 : items_[next].gap + items_[next].slack - 1;
    merged.push_back({.value = value, .gap = 1, .slack = slack});
    ++count_;
  }
  merged.insert(merged.end(), items_.begin() + static_cast<ptrdiff_t>(next), items_.end());
  items_ = std::move(merged);
  buffer_.clear();
  Compress();
}

// From the end: an item goes into the one behind it where both together stay within the error. The
// least stays.
void QuantileSketch::Compress() {
  if (items_.size() < 3) return;
  std::vector<Item> kept = {items_.back()};
  double rank = static_cast<double>(count_ - items_.back().gap);
  for (size_t i = items_.size() - 1; i-- > 0;) {
    const Item& item = items_[i];
    rank -= static_cast<double>(item.gap);
    Item& behind = kept.back();
    const auto joined = static_cast<double>(item.gap + behind.gap + behind.slack);
    if (i > 0 && joined <= AllowedError(rank)) {
      behind.gap += item.gap;
    } else {
      kept.push_back(item);
    }
  }
  std::reverse(kept.begin(), kept.end());
  items_ = std::move(kept);
}

double QuantileSketch::Get(double quantile) {
  Flush();
  if (items_.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double wanted = std::ceil(quantile * static_cast<double>(count_));
  const double bound = wanted + std::ceil(AllowedError(wanted) / 2);
  double rank = 0;
  for (size_t i = 1; i < items_.size(); ++i) {
    rank += static_cast<double>(items_[i - 1].gap);
    if (rank + static_cast<double>(items_[i].gap + items_[i].slack) > bound) {
      return items_[i - 1].value;
    }
  }
  return items_.back().value;
}

void QuantileSketch::Reset() {
  buffer_.clear();
  items_.clear();
  count_ = 0;
}

WindowSummary::WindowSummary(const std::vector<Quantile>& targets)
    : targets_(targets), sketches_(kNumSketches, QuantileSketch(targets)) {}

void WindowSummary::Observe(double value, int64_t now_ns) {
  Rotate(now_ns);
  for (QuantileSketch& sketch : sketches_) sketch.Insert(value);
  sum_ += value;
  ++count_;
}

SummarySnapshot WindowSummary::Snapshot(int64_t now_ns) {
  Rotate(now_ns);
  SummarySnapshot snapshot{.values = {}, .sum = sum_, .count = count_};
  for (const Quantile& target : targets_) {
    snapshot.values.push_back(sketches_[oldest_].Get(target.quantile));
  }
  return snapshot;
}

void WindowSummary::Rotate(int64_t now_ns) {
  if (rotated_ns_ == 0) rotated_ns_ = now_ns;
  for (int i = 0; i < kNumSketches && now_ns - rotated_ns_ >= kStepNs; ++i) {
    sketches_[oldest_].Reset();
    oldest_ = (oldest_ + 1) % kNumSketches;
    rotated_ns_ += kStepNs;
  }
  if (now_ns - rotated_ns_ >= kStepNs) rotated_ns_ = now_ns;  // all are empty
}

}  // namespace inflight::serving
