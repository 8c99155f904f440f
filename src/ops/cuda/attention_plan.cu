// SPDX-License-Identifier: Apache-2.0
// The plan of attention (attention_kernels.h), once per step for all layers of a window: two CTAs,
// one that cuts the decode rows into intervals, one that lists the tiles of the prefill rows.
#include <cuda_runtime.h>

#include <algorithm>

#include "base/status_macros.h"
#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/overlap.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kNumBins = 256;  // of tiles by their work
constexpr int kFirstBlocks = sizeof(DecodeInterval::blocks) / sizeof(int);
// Merging costs an interval about what so many keys do.
constexpr int kMinIntervalKeys = 128;

struct Rows {
  const int32_t* cu_seqlens_q;
  const int32_t* seq_lens;
  const int32_t* table_rows;
  const int32_t* tables;
  int64_t table_stride;

  __device__ int Line(int row) const { return table_rows == nullptr ? row : table_rows[row]; }
};

struct DecodePlanArgs {
  Rows rows;
  SlidingWindow sliding;
  int num_rows, tile_keys, num_intervals, num_kv_heads, tiles_per_kv_head, block_size_log2,
      min_tiles;
  DecodeInterval* intervals;
};

struct PrefillPlanArgs {
  Rows rows;
  SlidingWindow sliding;
  int first_row, end_row, heads_per_tile, max_tiles;
  PrefillTile* tiles;
};

// Sum of all threads' `value`; `before` is that of the threads before this one. Ends with a
// barrier.
__device__ int BlockSum(int value, int& before) {
  __shared__ int warp_sums[kThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int sum = value;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffU, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    int warps = warp_sums[lane];
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffU, warps, step);
      if (lane >= step) warps += other;
    }
    warp_sums[lane] = warps;
  }
  __syncthreads();
  before = sum - value + (warp == 0 ? 0 : warp_sums[warp - 1]);
  const int total = warp_sums[kThreads / 32 - 1];
  __syncthreads();
  return total;
}

__device__ void PlanDecode(const DecodePlanArgs& a) {
  __shared__ int tiles_before[kThreads];  // of the rows of the threads before
  const int thread = static_cast<int>(threadIdx.x);
  const int num_items = a.num_kv_heads * a.tiles_per_kv_head;  // of a row
  const auto num_tiles = [&](int row) {
    const int seq_len = a.rows.seq_lens[row];
    return max(1, (seq_len + a.tile_keys - 1) / a.tile_keys) -
           HiddenTiles(a.sliding, seq_len - 1, a.tile_keys);
  };
  const int rows_per_thread = (a.num_rows + kThreads - 1) / kThreads;
  int own = 0;
  for (int i = 0; i < rows_per_thread; ++i)
    if (const int row = thread * rows_per_thread + i; row < a.num_rows) own += num_tiles(row);
  int before;
  const int total = BlockSum(own, before) * num_items;
  tiles_before[thread] = before;
  __syncthreads();

  const int interval_tiles = max(a.min_tiles, (total + a.num_intervals - 1) / a.num_intervals);
  for (int c = thread; c < a.num_intervals; c += kThreads) {
    const int64_t begin = static_cast<int64_t>(c) * interval_tiles;
    if (begin >= total) {
      a.intervals[c].num_tiles = 0;
      continue;
    }
    // The row that holds tile `begin` of the line: of each row there are num_items items.
    const int tile_of_rows = static_cast<int>(begin) / num_items;
    int low = 0;
    int high = kThreads;  // tiles_before[low] <= tile_of_rows < tiles_before[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (tiles_before[middle] <= tile_of_rows ? low : high) = middle;
    }
    int row = low * rows_per_thread;
    int row_begin = tiles_before[low];
    int row_tiles = num_tiles(row);
    while (row_begin + row_tiles <= tile_of_rows) {
      row_begin += row_tiles;
      row_tiles = num_tiles(++row);
    }
    const int tile_of_row = static_cast<int>(begin) - row_begin * num_items;
    DecodeInterval interval = {.row = row,
                               .kv_head = tile_of_row / row_tiles / a.tiles_per_kv_head,
                               .head_tile = tile_of_row / row_tiles % a.tiles_per_kv_head,
                               .tile = tile_of_row % row_tiles,
                               .num_tiles = min(interval_tiles, total - static_cast<int>(begin)),
                               .seq_len = a.rows.seq_lens[row],
                               .line = a.rows.Line(row),
                               .interval_tiles = interval_tiles};
    const int32_t* table = a.rows.tables + interval.line * a.rows.table_stride;
    const bool is_sink = interval.tile * a.tile_keys < a.sliding.num_sinks;
    const int num_hidden = is_sink ? 0 : HiddenTiles(a.sliding, interval.seq_len - 1, a.tile_keys);
    for (int i = 0; i < kFirstBlocks; ++i) {
      const int key = (interval.tile + num_hidden) * a.tile_keys + 16 * i;
      interval.blocks[i] =
          16 * i < a.tile_keys && key < interval.seq_len ? table[key >> a.block_size_log2] : 0;
    }
    a.intervals[c] = interval;
  }
}

// Tiles in falling order of the keys they read, nearly: a long one started last would run alone.
__device__ void PlanPrefill(const PrefillPlanArgs& a) {
  __shared__ int bins[kNumBins];  // tiles of a bin; then the place of its next tile
  __shared__ int max_seq_len;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  if (thread < kNumBins) bins[thread] = 0;
  if (thread == 0) max_seq_len = 1;
  __syncthreads();
  for (int row = a.first_row + thread; row < a.end_row; row += kThreads)
    atomicMax(&max_seq_len, a.rows.seq_lens[row]);
  __syncthreads();

  const auto for_each_tile = [&](const auto& take) {
    for (int row = a.first_row + warp; row < a.end_row; row += kThreads / 32) {
      const int first_token = a.rows.cu_seqlens_q[row];
      const int num_tokens = a.rows.cu_seqlens_q[row + 1] - first_token;
      const int first_position = a.rows.seq_lens[row] - num_tokens;
      const int num_rows = num_tokens * a.heads_per_tile;
      for (int i = lane; i * kPrefillTileRows < num_rows; i += 32) {
        const int last = min((i + 1) * kPrefillTileRows, num_rows) - 1;
        const int position = first_position + i * kPrefillTileRows / a.heads_per_tile;
        const int num_hidden = max(0, a.sliding.First(position) - a.sliding.num_sinks);
        const int64_t num_keys = first_position + last / a.heads_per_tile + 1 - num_hidden;
        const int bin = static_cast<int>((max_seq_len - num_keys) * kNumBins / max_seq_len);
        take(bin, PrefillTile{.line = a.rows.Line(row),
                              .first_token = first_token,
                              .num_tokens = num_tokens,
                              .first_position = first_position,
                              .first_row = i * kPrefillTileRows});
      }
    }
  };
  for_each_tile([&](int bin, const PrefillTile&) { atomicAdd(&bins[bin], 1); });
  __syncthreads();
  int before;
  const int num_tiles = BlockSum(thread < kNumBins ? bins[thread] : 0, before);
  if (thread < kNumBins) bins[thread] = before;
  __syncthreads();
  for_each_tile([&](int bin, const PrefillTile& tile) {
    const int at = atomicAdd(&bins[bin], 1);
    if (at < a.max_tiles) a.tiles[at] = tile;
  });
  for (int i = num_tiles + thread; i < a.max_tiles; i += kThreads) a.tiles[i].num_tokens = 0;
}

__global__ void __launch_bounds__(kThreads)
    RunPlan(const __grid_constant__ DecodePlanArgs decode,
            const __grid_constant__ PrefillPlanArgs prefill) {
  BeginOverlapped();
  if (blockIdx.x == 0 && decode.num_rows > 0) PlanDecode(decode);
  if (blockIdx.x == gridDim.x - 1 && prefill.end_row > prefill.first_row) PlanPrefill(prefill);
}

}  // namespace

HeadSplit DecodeHeads(int group) {
  return {std::min(group, decode::kMaxQueries),
          (group + decode::kMaxQueries - 1) / decode::kMaxQueries};
}

HeadSplit PrefillHeads(int group) {
  constexpr int kMaxHeads = 64;
  const int num_tiles = (group + kMaxHeads - 1) / kMaxHeads;
  return {(group + num_tiles - 1) / num_tiles, num_tiles};
}

DecodeShape ShapeOfDecode(const KvCacheView& kv, const CudaStream& stream) {
  // Of each CTA the system takes 1 KiB, and some is static.
  constexpr int kReserved = 1024 + 128;
  const auto element_bytes = static_cast<int>(SizeOf(kv.dtype));
  const auto per_sm = static_cast<int>(stream.gpu().max_shared_bytes_per_block) + 1024;
  const int cta_bytes = decode::SharedBytes(kv.row(), element_bytes) + kReserved;
  const int ctas_per_sm = std::clamp(per_sm / cta_bytes, 1, decode::kMaxCtasPerSm);
  return {.tile_keys = decode::TileKeys(kv.row(), element_bytes),
          .num_ctas = std::min(ctas_per_sm * stream.num_sms(), kMaxDecodeCtas)};
}

int MaxPrefillTiles(const PagedBatch& batch, int group) {
  const int64_t num_tokens = batch.num_tokens - batch.num_decode_rows;
  return static_cast<int>(num_tokens * PrefillHeads(group).heads_per_tile / kPrefillTileRows) +
         batch.num_rows - batch.num_decode_rows;
}

size_t AttentionPlanBytes(int max_num_rows, int max_num_tokens) {
  const size_t num_tiles = static_cast<size_t>(max_num_rows) + static_cast<size_t>(max_num_tokens);
  return kMaxDecodeCtas * sizeof(DecodeInterval) +
         (num_tiles + num_tiles % 2) * sizeof(PrefillTile);  // the next plan is aligned, too
}

size_t AttentionPartialBytes(const ShapeClass& shape, int num_sms, int /*max_num_rows*/) {
  return static_cast<size_t>(2 * decode::kMaxCtasPerSm * num_sms *
                             decode::PartialFloats(CudaRowDim(shape.head_dim))) *
         sizeof(float);
}

size_t AttentionCounterBytes(const ShapeClass& /*shape*/, int /*max_num_rows*/) {
  return kMaxDecodeCtas * sizeof(int32_t);
}

Status PlanAttention(const AttentionPlanParams& params, Stream& stream) {
  CudaStream& cuda = AsCuda(stream);
  const PagedBatch batch = AsRun(params.batch, cuda);
  RETURN_IF_ERROR(
      ValidateForAttention(batch, params.kv, params.num_heads, params.sliding, params.plan, cuda));
  if (batch.num_rows == 0) return Status::Ok();
  const AttentionPlan plan = PlanAt(cuda.workspace(), params.plan);
  const Rows rows = {.cu_seqlens_q = batch.cu_seqlens_q.as<const int32_t>(),
                     .seq_lens = batch.seq_lens_kv.as<const int32_t>(),
                     .table_rows = batch.table_rows.as<const int32_t>(),
                     .tables = batch.block_tables.as<const int32_t>(),
                     .table_stride = batch.block_tables.shape[1]};
  const int group = params.num_heads / params.kv.num_kv_heads;
  const DecodeShape shape = ShapeOfDecode(params.kv, cuda);
  const DecodePlanArgs decode = {.rows = rows,
                                 .sliding = params.sliding,
                                 .num_rows = batch.num_decode_rows,
                                 .tile_keys = shape.tile_keys,
                                 .num_intervals = shape.num_ctas,
                                 .num_kv_heads = params.kv.num_kv_heads,
                                 .tiles_per_kv_head = DecodeHeads(group).tiles_per_kv_head,
                                 .block_size_log2 = Log2(params.kv.block_size),
                                 .min_tiles = std::max(1, kMinIntervalKeys / shape.tile_keys),
                                 .intervals = plan.intervals};
  const PrefillPlanArgs prefill = {.rows = rows,
                                   .sliding = params.sliding,
                                   .first_row = batch.num_decode_rows,
                                   .end_row = batch.num_rows,
                                   .heads_per_tile = PrefillHeads(group).heads_per_tile,
                                   .max_tiles = MaxPrefillTiles(batch, group),
                                   .tiles = plan.tiles};
  const bool has_both = decode.num_rows > 0 && prefill.end_row > prefill.first_row;
  LaunchOverlapped(RunPlan, has_both ? 2 : 1, kThreads, 0, cuda.handle(), decode, prefill);
  return inflight::cuda::LaunchStatus("plan of attention");
}

}  // namespace inflight::ops::cuda
