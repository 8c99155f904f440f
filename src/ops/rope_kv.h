// SPDX-License-Identifier: Apache-2.0
// The second half of qkv_rope_kv on the CPU, shared by its backends: what happens to one token's
// projected row.
#pragma once

#include "ops/attention.h"

namespace inflight::ops {

// Rotates q and k of token `t` (a row of `workspace`, in place), writes k and v to the cache at the
// token's slot and q to its place.
void RotateAndStoreToken(const QkvRopeKvParams& params, int64_t t);

}  // namespace inflight::ops
