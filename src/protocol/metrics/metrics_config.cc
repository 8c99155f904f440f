// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/metrics_config.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/letter_case.h"
#include "base/status_macros.h"

namespace inflight::metrics {
namespace {

constexpr double kFirstResponseBucketsMs[] = {100, 500, 2000, 5000};

Status Expected(const std::string& word, const std::string& what) {
  return InvalidArgument("--metrics-config: got '" + word + "', expected " + what);
}

std::optional<double> ParseShare(std::string_view text) {
  double value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && at == text.data() + text.size();
  return is_number && value > 0 && value < 1 ? std::optional(value) : std::nullopt;
}

Status SetSwitch(const std::string& word, const std::string& given, bool& target) {
  const std::string text = AsciiLower(given);
  if (text == "true" || text == "on" || text == "1") {
    target = true;
  } else if (text == "false" || text == "off" || text == "0") {
    target = false;
  } else {
    return Expected(word, "true or false");
  }
  return Status::Ok();
}

Status SetQuantiles(const std::string& word, std::string_view list,
                    std::vector<serving::Quantile>& target) {
  target.clear();
  while (!list.empty()) {
    const std::string_view pair = list.substr(0, list.find(','));
    const size_t colon = std::min(pair.find(':'), pair.size());
    const auto quantile = ParseShare(pair.substr(0, colon));
    const auto error = ParseShare(pair.substr(std::min(colon + 1, pair.size())));
    if (!quantile || !error) break;
    target.push_back({.quantile = *quantile, .error = *error});
    list.remove_prefix(pair.size());
    if (list.empty()) return Status::Ok();
    list.remove_prefix(1);
  }
  return Expected(word, "pairs <quantile>:<error> between commas, both above 0 and below 1");
}

}  // namespace

Result<MetricsConfig> ParseMetricsConfig(const std::vector<std::string>& words) {
  MetricsConfig config;
  for (const std::string& word : words) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(std::min(equals + 1, word.size()));
    if (name == "counter_latencies") {
      RETURN_IF_ERROR(SetSwitch(word, value, config.counter_latencies));
    } else if (name == "histogram_latencies") {
      RETURN_IF_ERROR(SetSwitch(word, value, config.histogram_latencies));
    } else if (name == "summary_latencies") {
      RETURN_IF_ERROR(SetSwitch(word, value, config.summary_latencies));
    } else if (name == "summary_quantiles") {
      RETURN_IF_ERROR(SetQuantiles(word, value, config.summary_quantiles));
    } else {
      return Expected(word,
                      "counter_latencies, histogram_latencies, summary_latencies or "
                      "summary_quantiles=<value>");
    }
  }
  return config;
}

serving::StatisticsOptions StatisticsFor(const MetricsConfig& config) {
  serving::StatisticsOptions options;
  if (config.histogram_latencies) {
    options.first_response_ms.assign(std::begin(kFirstResponseBucketsMs),
                                     std::end(kFirstResponseBucketsMs));
  }
  if (config.summary_latencies) options.quantiles = config.summary_quantiles;
  return options;
}

}  // namespace inflight::metrics
