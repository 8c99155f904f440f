// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "ops/reference/reference.h"
#include "ops/validate.h"
#include "tensor/element.h"

namespace inflight::ops::reference {

Status Quantize(const QuantizeParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t width = p.x.shape[1];
  stream.cpu_pool().ParallelFor(p.x.shape[0], [&](int64_t t) {
    float largest = 1.0F / 512;
    for (int64_t i = t * width; i < (t + 1) * width; ++i)
      largest = std::max(largest, std::abs(LoadFloat(p.x.data, p.x.dtype, i)));
    const float scale = largest / 448;
    p.scales.as<float>()[t] = scale;
    for (int64_t i = t * width; i < (t + 1) * width; ++i)
      StoreFloat(p.y.data, p.y.dtype, i, LoadFloat(p.x.data, p.x.dtype, i) / scale);
  });
  return Status::Ok();
}

}  // namespace inflight::ops::reference
