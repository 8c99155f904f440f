// SPDX-License-Identifier: Apache-2.0
#include "metrics_text.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace inflight::tool {
namespace {

// `name="value",...` up to the brace that closes them, which `text` then begins behind.
bool TakeLabels(std::string_view& text, MetricSample& sample) {
  while (!text.empty() && text.front() != '}') {
    const size_t equals = text.find("=\"");
    if (equals == std::string_view::npos) return false;
    const std::string name(text.substr(0, equals));
    text.remove_prefix(equals + 2);
    std::string value;
    for (; !text.empty() && text.front() != '"'; text.remove_prefix(1)) {
      if (text.front() == '\\' && text.size() > 1) {
        text.remove_prefix(1);
        value += text.front() == 'n' ? '\n' : text.front();
      } else {
        value += text.front();
      }
    }
    if (text.empty()) return false;
    text.remove_prefix(1);
    if (!text.empty() && text.front() == ',') text.remove_prefix(1);
    sample.labels[name] = std::move(value);
  }
  if (text.empty()) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<MetricSample> ParseLine(std::string_view line) {
  if (line.empty() || line.front() == '#') return std::nullopt;
  const size_t end = line.find_first_of("{ ");
  if (end == std::string_view::npos) return std::nullopt;
  MetricSample sample{.family = std::string(line.substr(0, end)), .labels = {}};
  const bool has_labels = line[end] == '{';
  line.remove_prefix(end + 1);
  if (has_labels && !TakeLabels(line, sample)) return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), sample.value);
  if (error != std::errc()) return std::nullopt;
  return sample;
}

}  // namespace

std::vector<MetricSample> ParseMetrics(std::string_view page) {
  std::vector<MetricSample> samples;
  while (!page.empty()) {
    const size_t end = std::min(page.find('\n'), page.size());
    if (auto sample = ParseLine(page.substr(0, end))) samples.push_back(*std::move(sample));
    page.remove_prefix(std::min(end + 1, page.size()));
  }
  return samples;
}

}  // namespace inflight::tool
