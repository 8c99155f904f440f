// SPDX-License-Identifier: Apache-2.0
// What attention in 16 bits and in float32 checks alike of a batch over a paged cache, as far as
// the host can see it.
#pragma once

#include "ops/attention.h"

namespace inflight::ops::cuda {

// Of attention over a cache of any dtype.
Status ValidatePaged(const PagedBatch& batch, const KvCacheView& kv, int num_heads,
                     const SlidingWindow& sliding);

// Of what stands behind the projection of QkvRopeKv (kernels.h, RopeKv), but for which dtype that
// of the workspace is.
Status ValidateRopeKv(const QkvRopeKvParams& params, const PendingScales& pending);

}  // namespace inflight::ops::cuda
