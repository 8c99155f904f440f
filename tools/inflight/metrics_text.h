// SPDX-License-Identifier: Apache-2.0
// The text of a metrics page (Prometheus' exposition format, version 0.0.4), as far as `ps` and
// `top` read it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace inflight::tool {

struct MetricSample {
  std::string family;
  std::map<std::string, std::string, std::less<>> labels;  // without their escapes
  double value = 0;

  bool Has(std::string_view label, std::string_view text) const {
    const auto found = labels.find(label);
    return found != labels.end() && found->second == text;
  }
};

// Lines that are no samples are left out, whatever they are.
std::vector<MetricSample> ParseMetrics(std::string_view page);

}  // namespace inflight::tool
