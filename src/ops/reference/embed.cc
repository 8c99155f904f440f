// SPDX-License-Identifier: Apache-2.0
#include "ops/embed.h"

#include "base/status_macros.h"
#include "ops/reference/reference.h"
#include "ops/reference/weight_element.h"
#include "ops/validate.h"
#include "tensor/element.h"

namespace inflight::ops::reference {

Status Embed(const EmbedParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t hidden_size = p.table.in_features;
  stream.cpu_pool().ParallelFor(p.ids.num_elements(), [&](int64_t t) {
    float* y = p.y.as<float>() + t * hidden_size;
    const int64_t row = p.ids.as<const int32_t>()[t] - p.first_id;
    const bool is_elsewhere = p.is_part && (row < 0 || row >= p.table.out_features);
    const void* const own_row = p.prompt_rows == nullptr ? nullptr : p.prompt_rows[t];
    for (int64_t i = 0; i < hidden_size; ++i) {
      if (own_row != nullptr)
        y[i] = LoadFloat(own_row, p.prompt_dtype, i);
      else
        y[i] = is_elsewhere ? 0.0F : p.scale * ElementAt(p.table, row, i);
    }
    if (p.position_table.empty()) return;
    const int64_t position = p.positions.as<const int32_t>()[t];
    for (int64_t i = 0; i < hidden_size; ++i)
      y[i] += LoadFloat(p.position_table.data, p.position_table.dtype, position * hidden_size + i);
  });
  return Status::Ok();
}

}  // namespace inflight::ops::reference
