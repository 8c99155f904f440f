// SPDX-License-Identifier: Apache-2.0
// A table of text in a frame, as Triton logs its models:
//
//   +--------+---------+--------+
//   | Model  | Version | Status |
//   +--------+---------+--------+
//   | simple | 1       | READY  |
//   +--------+---------+--------+
#pragma once

#include <string>
#include <vector>

namespace inflight {

// The first row is the head; all rows have as many cells.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace inflight
