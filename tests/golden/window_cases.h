// SPDX-License-Identifier: Apache-2.0
// What make_window_golden.py keeps of full attention with a mask, read back.
#pragma once

#include <string>
#include <vector>

#include "inflight/executor.h"
#include "inflight/request.h"

namespace inflight::golden {

struct WindowCase {
  std::string model;
  ExecutorOptions options;  // windows and sinks
  std::vector<TokenId> prompt, greedy;
  std::vector<int> positions;
  std::vector<std::vector<float>> logits;  // [positions][vocab_size]
  float noise_gain = 0;                    // as of Expected; 0 = not measured

  std::string Name() const;
};

std::vector<WindowCase> ReadWindowCases();

}  // namespace inflight::golden
