// SPDX-License-Identifier: Apache-2.0
// Shows how far long work is, on standard error: a bar that redraws on a terminal, a plain line per
// tenth elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace inflight::tool {

class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();  // ends the bar's line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(double fraction, std::string_view what);  // fraction in [0, 1]

 private:
  const std::string title_;
  const bool is_terminal_;
  int64_t last_line_ns_;
  int last_percent_ = -1;
};

}  // namespace inflight::tool
