// SPDX-License-Identifier: Apache-2.0
// Writes the Prometheus text exposition format, version 0.0.4.
//
// Ours and not prometheus-cpp's: the numbers are kept by those who count them, so a registry would
// hold every one a second time behind locks of its own, and its page goes through a tree of
// families.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace inflight::metrics {

using Label = std::pair<std::string_view, std::string_view>;

class TextWriter {
 public:
  // HELP and TYPE; the samples of the family follow. `type` is "counter", "gauge", "histogram" or
  // "summary".
  void Family(std::string_view name, std::string_view help, std::string_view type);

  // A sample of the current family. Labels are printed in the order given; for Triton's families
  // that is the alphabet's.
  void Sample(std::span<const Label> labels, uint64_t value);
  void Sample(std::span<const Label> labels, double value);
  void Sample(std::span<const Label> labels, std::string_view number);  // as it stands

  // _bucket lines with cumulative counts, _sum and _count. counts has one entry more than
  // upper_bounds, for what lies above all of them.
  void HistogramSamples(std::span<const Label> labels, std::span<const double> upper_bounds,
                        std::span<const uint64_t> counts, double sum);

  // _count and _sum lines, and one for each quantile.
  void SummarySamples(std::span<const Label> labels, std::span<const double> quantiles,
                      std::span<const double> values, double sum, uint64_t count);

  std::string Take() { return std::move(page_); }

 private:
  // `last`: a label behind the others; none with an empty name.
  void Line(std::string_view suffix, std::span<const Label> labels, const Label& last,
            std::string_view value);

  std::string page_;
  std::string family_;
};

}  // namespace inflight::metrics
