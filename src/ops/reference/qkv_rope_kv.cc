// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"
#include "ops/reference/reference.h"
#include "ops/rope_kv.h"
#include "ops/validate.h"

namespace inflight::ops::reference {

Status QkvRopeKv(const QkvRopeKvParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  RETURN_IF_ERROR(
      Linear({.x = p.x, .weight = p.weight, .bias = p.bias, .y = p.workspace, .scratch = p.scratch},
             stream));
  stream.cpu_pool().ParallelFor(p.batch.num_tokens, [&](int64_t t) { RotateAndStoreToken(p, t); });
  return Status::Ok();
}

}  // namespace inflight::ops::reference
