// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace inflight::tool {

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)), is_terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (is_terminal_ && last_drawn_ >= 0) std::fputc('\n', stderr);
}

void ProgressBar::Update(double fraction, std::string_view what) {
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100);
  const int drawn = is_terminal_ ? percent : percent / 10;
  if (drawn == last_drawn_) return;
  last_drawn_ = drawn;
  if (is_terminal_) {
    constexpr int kWidth = 30;
    const std::string bar(static_cast<size_t>(percent * kWidth / 100), '#');
    std::fprintf(stderr, "\r%s [%-*s] %3d%% %-40.*s", title_.c_str(), kWidth, bar.c_str(), percent,
                 static_cast<int>(std::min<size_t>(what.size(), 40)), what.data());
  } else {
    std::fprintf(stderr, "%s: %d%% %.*s\n", title_.c_str(), percent, static_cast<int>(what.size()),
                 what.data());
  }
  std::fflush(stderr);
}

}  // namespace inflight::tool
