// SPDX-License-Identifier: Apache-2.0
#include "model/kept_residuals.h"

#include "base/status_macros.h"
#include "tensor/element.h"

namespace inflight::model {

Status Keep(const KeptResiduals& kept, int layer, const TensorView& residual, Stream& stream) {
  const int64_t width = residual.shape[1];
  const auto stride = width * std::ssize(kept.layers);
  for (int64_t place = 0; place < std::ssize(kept.layers); ++place) {
    if (kept.layers[static_cast<size_t>(place)] != layer) continue;
    if (kept.copy != nullptr) {
      RETURN_IF_ERROR(kept.copy(residual, kept.states, place * width, stream));
      continue;
    }
    stream.cpu_pool().ParallelFor(residual.shape[0], [&](int64_t t) {
      const float* const row = residual.as<const float>() + t * width;
      for (int64_t i = 0; i < width; ++i)
        StoreFloat(kept.states.data, kept.states.dtype, t * stride + place * width + i, row[i]);
    });
  }
  return Status::Ok();
}

}  // namespace inflight::model
