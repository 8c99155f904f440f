// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/text_writer.h"

#include <charconv>
#include <cmath>

namespace inflight::metrics {
namespace {

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

void AppendEscaped(std::string& out, std::string_view text, bool is_label) {
  for (const char c : text) {
    if (c == '\\' || (c == '"' && is_label)) out.push_back('\\');
    if (c == '\n') {
      out.append("\\n");
    } else {
      out.push_back(c);
    }
  }
}

}  // namespace

void TextWriter::Family(std::string_view name, std::string_view help, std::string_view type) {
  family_ = name;
  page_.append("# HELP ").append(name).append(" ");
  AppendEscaped(page_, help, /*is_label=*/false);
  page_.append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
}

void TextWriter::Sample(std::span<const Label> labels, uint64_t value) {
  Line("", labels, {}, std::to_string(value));
}

void TextWriter::Sample(std::span<const Label> labels, double value) {
  Line("", labels, {}, Number(value));
}

void TextWriter::Sample(std::span<const Label> labels, std::string_view number) {
  Line("", labels, {}, number);
}

void TextWriter::HistogramSamples(std::span<const Label> labels,
                                  std::span<const double> upper_bounds,
                                  std::span<const uint64_t> counts, double sum) {
  uint64_t cumulative = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    cumulative += counts[i];
    const std::string bound = i < upper_bounds.size() ? Number(upper_bounds[i]) : "+Inf";
    Line("_bucket", labels, {"le", bound}, std::to_string(cumulative));
  }
  Line("_sum", labels, {}, Number(sum));
  Line("_count", labels, {}, std::to_string(cumulative));
}

void TextWriter::SummarySamples(std::span<const Label> labels, std::span<const double> quantiles,
                                std::span<const double> values, double sum, uint64_t count) {
  Line("_count", labels, {}, std::to_string(count));
  Line("_sum", labels, {}, Number(sum));
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string quantile = Number(quantiles[i]);
    Line("", labels, {"quantile", quantile}, Number(values[i]));
  }
}

void TextWriter::Line(std::string_view suffix, std::span<const Label> labels, const Label& last,
                      std::string_view value) {
  page_.append(family_).append(suffix);
  char open = '{';
  const auto append_label = [&](const Label& label) {
    page_.push_back(open);
    open = ',';
    page_.append(label.first).append("=\"");
    AppendEscaped(page_, label.second, /*is_label=*/true);
    page_.push_back('"');
  };
  for (const Label& label : labels) append_label(label);
  if (!last.first.empty()) append_label(last);
  if (open == ',') page_.push_back('}');
  page_.append(" ").append(value).append("\n");
}

}  // namespace inflight::metrics
