// SPDX-License-Identifier: Apache-2.0
#include "base/text_table.h"

#include <algorithm>
#include <cstddef>

namespace inflight {

std::string TextTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (size_t c = 0; c < widths.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string frame = "+";
  for (const size_t width : widths) frame += std::string(width + 2, '-') + "+";
  frame += "\n";
  std::string table = frame;
  for (size_t r = 0; r < rows.size(); ++r) {
    table += "|";
    for (size_t c = 0; c < widths.size(); ++c)
      table += " " + rows[r][c] + std::string(widths[c] - rows[r][c].size(), ' ') + " |";
    table += "\n";
    if (r == 0) table += frame;
  }
  return table + frame;
}

}  // namespace inflight
