// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "inflight/guide.h"

namespace inflight::serving {

// The guide of a request whose prompt ends with a part of an answer that `guide` guides from its
// beginning: it goes on at `place`, where that part has led.
std::shared_ptr<const Guide> ContinuedGuide(std::shared_ptr<const Guide> guide,
                                            std::shared_ptr<const GuideState> place);

}  // namespace inflight::serving
