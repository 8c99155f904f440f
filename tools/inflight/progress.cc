// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"

namespace inflight::tool {
namespace {

constexpr int64_t kLineIntervalNs = 2'000'000'000;

}  // namespace

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      last_line_ns_(Clock::System().NowNs()) {}

ProgressBar::~ProgressBar() {
  if (is_terminal_ && last_percent_ >= 0) std::fputc('\n', stderr);
}

void ProgressBar::Update(double fraction, std::string_view what) {
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100);
  if (percent == last_percent_) return;
  if (is_terminal_) {
    constexpr int kWidth = 30;
    const std::string bar(static_cast<size_t>(percent * kWidth / 100), '#');
    std::fprintf(stderr, "\r%s [%-*s] %3d%% %-40.*s", title_.c_str(), kWidth, bar.c_str(), percent,
                 static_cast<int>(std::min<size_t>(what.size(), 40)), what.data());
  } else {
    const int64_t now_ns = Clock::System().NowNs();
    if (now_ns - last_line_ns_ < kLineIntervalNs) return;
    last_line_ns_ = now_ns;
    std::fprintf(stderr, "%s: %d%% %.*s\n", title_.c_str(), percent, static_cast<int>(what.size()),
                 what.data());
  }
  last_percent_ = percent;
  std::fflush(stderr);
}

}  // namespace inflight::tool
