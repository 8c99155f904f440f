// SPDX-License-Identifier: Apache-2.0
// Quantiles of a stream within given errors of rank, in little memory: Cormode, Korn,
// Muthukrishnan, Srivastava, "Effective computation of biased quantiles over data streams", ICDE
// 2005, section 5.3 (targeted quantiles).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace inflight::serving {

struct Quantile {
  double quantile;  // 0 < quantile < 1
  double error;     // of rank, as a share of all values
};

// Of all values since the last Reset.
class QuantileSketch {
 public:
  explicit QuantileSketch(std::vector<Quantile> targets) : targets_(std::move(targets)) {}

  void Insert(double value);
  double Get(double quantile);  // one of the targets; NaN without values
  void Reset();

  size_t num_items() const { return items_.size(); }

 private:
  struct Item {
    double value;
    int64_t gap;    // ranks between it and the item before
    int64_t slack;  // by which its own rank is uncertain
  };

  double AllowedError(double rank) const;
  void Flush();
  void Compress();

  std::vector<Quantile> targets_;
  std::vector<double> buffer_;
  std::vector<Item> items_;  // by value
  int64_t count_ = 0;        // in items_
};

struct SummarySnapshot {
  std::vector<double> values;  // of the quantiles, in their order
  double sum = 0;
  uint64_t count = 0;
};

// Quantiles of the last minute, as Prometheus' client libraries keep them: several sketches, each
// begun a part of the minute after the one before; the oldest answers. Sum and count are of all.
class WindowSummary {
 public:
  explicit WindowSummary(const std::vector<Quantile>& targets);

  void Observe(double value, int64_t now_ns);
  SummarySnapshot Snapshot(int64_t now_ns);

 private:
  static constexpr int kNumSketches = 5;
  static constexpr int64_t kStepNs = 12'000'000'000;

  void Rotate(int64_t now_ns);

  const std::vector<Quantile> targets_;
  std::vector<QuantileSketch> sketches_;  // [kNumSketches]
  size_t oldest_ = 0;
  int64_t rotated_ns_ = 0;  // 0 = nothing was observed
  double sum_ = 0;
  uint64_t count_ = 0;
};

}  // namespace inflight::serving
