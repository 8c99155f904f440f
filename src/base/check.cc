// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace inflight::internal {

void CheckFailed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "CHECK failed at %s:%d: %s\n", file, line, what.c_str());
  std::abort();
}

}  // namespace inflight::internal
