// SPDX-License-Identifier: Apache-2.0
// What make_window_golden.py keeps of full attention with a mask, read back.
#pragma once

#include <string>
#include <vector>

#include "golden_case.h"
#include "inflight/executor.h"
#include "inflight/request.h"

namespace inflight::golden {

struct WindowCase : GoldenCase {
  ExecutorOptions options;  // windows and sinks

  std::string Name() const;
};

std::vector<WindowCase> ReadWindowCases();

}  // namespace inflight::golden
