// SPDX-License-Identifier: Apache-2.0
// All layers of a step of one to four decode rows in one kernel of compute capability 9.0, whose
// CTAs, one on each multiprocessor, stay until the last layer is done. Weights come through a ring
// in shared memory that runs ahead of the layers: while CTAs wait for each other, and while they
// compute norms and attention, the next weights arrive.
#pragma once

#include <cstdint>

#include "ops/decode_layers.h"
#include "tensor/stream.h"

namespace inflight::ops::cuda {

inline constexpr int kMaxDecodeLayersRows = 4;
inline constexpr int kMaxDecodeLayers = 128;

// Whether DecodeLayers takes the layers, for steps of at most `num_rows` rows (0: not even one)
// with such a cache. Weights of int8 and int4, a scale for each row, rows of whole slabs of 64
// bytes; heads of 64 or 128 rotated as a whole, up to 8 heads for each of K and V, a cache of the
// model's dtype or FP8; not on a fixed stream, whose rows must not depend on their number.
int MostDecodeLayersRows(const DecodeLayersParams& params, Stream& stream);

// Enqueues the kernel; `params` as of MostDecodeLayersRows.
Status DecodeLayers(const DecodeLayersParams& params, Stream& stream);

}  // namespace inflight::ops::cuda
