// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "inflight/guide.h"

namespace inflight::serving {

// The guide of a request whose prompt ends with `answered`, tokens of an answer that `guide` guides
// from its beginning: it goes on behind them.
std::shared_ptr<const Guide> ContinuedGuide(std::shared_ptr<const Guide> guide,
                                            std::span<const TokenId> answered);

}  // namespace inflight::serving
