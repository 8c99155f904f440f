// SPDX-License-Identifier: Apache-2.0
#include "contract/key_report.h"

#include <algorithm>
#include <array>

namespace inflight::contract {
namespace {

constexpr size_t kColumns = 4;
// A long value pushes its own line, not the whole table.
constexpr std::array<size_t, kColumns - 1> kMaxWidths = {34, 40, 8};

using Row = std::array<std::string, kColumns>;

Row RowOf(const KeyLine& line) {
  std::string effect(KeyEffectName(line.effect));
  if (!line.reason.empty()) effect += ": " + line.reason;
  return {line.key, line.value.empty() ? "-" : line.value, std::string(KeySourceName(line.source)),
          std::move(effect)};
}

}  // namespace

std::string_view KeySourceName(KeySource source) {
  switch (source) {
    case KeySource::kFile:
      return "file";
    case KeySource::kOption:
      return "option";
    case KeySource::kDefault:
      return "default";
    case KeySource::kAuto:
      return "auto";
  }
  return "";
}

std::string_view KeyEffectName(KeyEffect effect) {
  switch (effect) {
    case KeyEffect::kHonoured:
      return "honoured";
    case KeyEffect::kIgnored:
      return "ignored";
    case KeyEffect::kRefused:
      return "refused";
  }
  return "";
}

std::string ToTable(const KeyReport& report) {
  std::vector<Row> rows = {{"key", "value", "source", "effect"}};
  for (const KeyLine& line : report) rows.push_back(RowOf(line));
  std::array<size_t, kColumns - 1> widths{};
  for (const Row& row : rows) {
    for (size_t c = 0; c < widths.size(); ++c) {
      if (row[c].size() <= kMaxWidths[c]) widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string table;
  for (const Row& row : rows) {
    table += "  ";
    for (size_t c = 0; c < widths.size(); ++c) {
      table += row[c];
      table.append(row[c].size() < widths[c] ? widths[c] - row[c].size() : 0, ' ');
      table += "  ";
    }
    table += row.back() + "\n";
  }
  return table;
}

}  // namespace inflight::contract
