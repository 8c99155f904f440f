// SPDX-License-Identifier: Apache-2.0
#include "ops/embed.h"

#include <algorithm>

#include "base/status_macros.h"
#include "ops/cpu/cpu.h"
#include "ops/validate.h"

namespace inflight::ops::cpu {

// A row of a packed table is 64 bytes wide steps apart, a few microseconds a token, and no
// instruction set reads it faster: plain code.
Status Embed(const EmbedParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t hidden_size = p.table.in_features;
  stream.cpu_pool().ParallelFor(p.ids.num_elements(), [&](int64_t t) {
    float* y = p.y.as<float>() + t * hidden_size;
    const void* const own_row = p.prompt_rows == nullptr ? nullptr : p.prompt_rows[t];
    const int64_t row_of_table = p.ids.as<const int32_t>()[t] - p.first_id;
    const bool is_elsewhere =
        p.is_part && (row_of_table < 0 || row_of_table >= p.table.out_features);
    if (own_row == nullptr && is_elsewhere) {
      std::fill_n(y, hidden_size, 0.0F);
    } else if (own_row == nullptr) {
      UnpackWeightRow(p.table, row_of_table, y);
      if (p.scale != 1)
        for (int64_t i = 0; i < hidden_size; ++i) y[i] *= p.scale;
    } else {
      const Weight row = {.data = own_row,
                          .dtype = p.prompt_dtype,
                          .layout = WeightLayout::kRowMajor,
                          .out_features = 1,
                          .in_features = hidden_size};
      UnpackWeightRow(row, 0, y);
    }
    if (p.position_table.empty()) return;
    const Weight positions = {.data = p.position_table.data,
                              .dtype = p.position_table.dtype,
                              .layout = WeightLayout::kRowMajor,
                              .out_features = p.position_table.shape[0],
                              .in_features = hidden_size};
    AddWeightRow(positions, p.positions.as<const int32_t>()[t], y);
  });
  return Status::Ok();
}

}  // namespace inflight::ops::cpu
