// SPDX-License-Identifier: Apache-2.0
// Answers that a guide of tests allows: many ways through, of several lengths.
#pragma once

#include <vector>

#include "inflight/request.h"

namespace inflight::golden {

using Ways = std::vector<std::vector<TokenId>>;

inline Ways SomeWays() {
  Ways ways;
  for (TokenId a = 40; a < 44; ++a)
    for (TokenId b = 60; b < 64; ++b)
      for (const size_t length : {3U, 5U, 8U}) {
        std::vector<TokenId> way = {a, b};
        while (way.size() < length) way.push_back(static_cast<TokenId>(100 + a + way.size()));
        ways.push_back(way);
      }
  return ways;
}

}  // namespace inflight::golden
