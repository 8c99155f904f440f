// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/backend.h"

namespace inflight::ops::cuda {

// `table` with two events around each call (ops/profile.h), called "cuda/profiled".
OpTable Profiled(const OpTable& table);

}  // namespace inflight::ops::cuda
