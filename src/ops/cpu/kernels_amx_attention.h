// SPDX-License-Identifier: Apache-2.0
// Products of attention by AMX. Included once by the translation unit of AMX, after kernels_amx.h
// and kernels_attention.h; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

struct TileOperand {
  using X = uint16_t;
  using W = uint16_t;
  static constexpr int kStep = 2;
  static constexpr int kMaxTileRows = kTileHeight;  // with more it computes rather than waits
};

// As RowsAttention, of a bf16 cache and heads of a multiple of 64, with both products by tiles. A
// tile of keys goes to sixteen rows after the other, so that their scores and weights stay in the
// first-level cache. The softmax's weights are computed to the precision of bf16.
class TileAttention : public AttentionOfRows<TileOperand, TileAttention> {
 public:
  using AttentionOfRows::AttentionOfRows;

  void AddTile(int start, int num_keys) {
    const uint16_t* keys[kKeyTile / 16];
    const int num_groups = (num_keys + 15) / 16;
    FindKeys(start, num_groups, keys);
    for (int g = num_groups; g < kKeyTile / 16; ++g) keys[g] = keys[0];
    // Sums of products of 32 keys are the least that tiles make: all begin at a multiple of 32.
    const uint16_t* values[2];
    const int first = AllHidden(start, kHalfTile) ? kHalfTile : 0;
    int num_halves = 0;
    for (int j = first; j < num_keys && !AllHidden(start + j, kHalfTile); j += kHalfTile) {
      values[num_halves] = HalfTile(start, j, num_keys, halves_[num_halves]);
      ++num_halves;
    }
    AskFor(keys, kKeyTile / 16, Ahead(a_.keys, start, a_.keys, start + kKeyTile));
    AskFor(values, num_halves, Ahead(a_.values, start, a_.values, start + kKeyTile));
    FinishStores();
    for (int r = row_; r < row_ + num_; r += kTileHeight) {
      const int n = row_ + num_ - r < kTileHeight ? row_ + num_ - r : kTileHeight;
      Score(query_rows_[r], keys);
      if (a_.softcap > 0) CapValues({scores_, int64_t{n} * kKeyTile, a_.scale, a_.softcap});
      for (int i = 0; i < n; ++i)
        UpdateSoftmax(r + i, start, scores_ + i * kKeyTile, weights_ + i * kKeyTile);
      AddValues(weights_ + first, values, num_halves, n, Result(r));
    }
  }

 private:
  static constexpr int kHalfTile = kKeyTile / 2;

  // Asks for as much as one row needs of each, `ahead` elements behind it.
  void AskFor(const uint16_t* const* from, int n, int64_t ahead) const {
    if (ahead == 0) return;
    const int size = kKeyTile / n * a_.head_dim;
    for (int g = 0; g < n; ++g)
      for (int i = 0; i < size; i += 32) __builtin_prefetch(from[g] + ahead + i);
  }

  // Values of keys [j, j + 32) of the tile, in their place or copied. Keys that nobody sees, or
  // that are not written yet, are zeros.
  const uint16_t* HalfTile(int start, int j, int num_keys, uint16_t* copy) const {
    const int offset = (start + j) % a_.block_size;
    const bool is_whole = j + kHalfTile <= num_keys;
    if (is_whole && j >= gathered_) return tree_values_ + j * a_.head_dim;
    if (is_whole && j + kHalfTile <= gathered_ && offset + kHalfTile <= a_.block_size)
      return reinterpret_cast<const uint16_t*>(BlockOf(a_.values, start + j)) +
             static_cast<int64_t>(offset) * a_.head_dim;
    for (int i = j; i < j + kHalfTile; i += 16) {
      uint16_t* to = copy + (i - j) * a_.head_dim;
      int left = num_keys - i < 16 ? num_keys - i : 16;
      if (AllHidden(start + i, 16)) left = 0;  // its block may be another's by now
      if (left < 16)
        for (int e = 0; e < 16 * a_.head_dim; ++e) to[e] = 0;
      if (left <= 0) continue;
      const uint16_t* from =
          i >= gathered_ ? tree_values_ + i * a_.head_dim
                         : reinterpret_cast<const uint16_t*>(BlockOf(a_.values, start + i)) +
                               static_cast<int64_t>((start + i) % a_.block_size) * a_.head_dim;
      const int whole = left / 2 * 2 * a_.head_dim;
      for (int e = 0; e < whole; ++e) to[e] = from[e];
      if (left % 2 != 0)  // the last key stands first in its pair
        for (int e = whole; e < whole + 2 * a_.head_dim; e += 2) to[e] = from[e];
    }
    return copy;
  }

  // scores_[r][j] = q[r] . key j of sixteen rows; keys [16 g, 16 g + 16) are keys[g]
  // [head_dim / 2][16][2].
  void Score(const uint16_t* q, const uint16_t* const* keys) {
    ClearSums();
    for (int d = 0; d < a_.head_dim; d += 32) {
      _tile_loadd(4, q + d, stride_ * 2);
      _tile_loadd(5, keys[0] + d * 16, 64);
      _tile_dpbf16ps(0, 4, 5);
      _tile_loadd(6, keys[1] + d * 16, 64);
      _tile_dpbf16ps(1, 4, 6);
      _tile_loadd(7, keys[2] + d * 16, 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_loadd(5, keys[3] + d * 16, 64);
      _tile_dpbf16ps(3, 4, 5);
    }
    StoreSums(scores_);
  }

  // Bits [0, n), n within 0 and 64.
  static uint64_t FirstBits(int n) {
    return n <= 0 ? 0 : n >= kKeyTile ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
  }

  // Turns row r's scores into weights e^(scale * score - max) and rescales what was summed under
  // the old maximum. Keys after the row's own position, and hidden ones, get weight 0.
  void UpdateSoftmax(int r, int start, const float* scores, uint16_t* weights) {
    const uint64_t hidden = FirstBits(a_.first_seen[r] - start) & ~FirstBits(a_.num_sinks - start);
    const uint64_t seen = FirstBits(a_.positions[r] + 1 - start) & ~hidden;
    const float here = LargestOf(scores, seen) * score_scale_;
    const float max = here > max_[r] ? here : max_[r];
    if (sum_[r] > 0 && max > max_[r]) Rescale(r, max_[r] - max);
    sum_[r] += Weigh(scores, seen, score_scale_, max, weights);
    max_[r] = max;
  }

  // The largest of those of 64 scores that are seen; minus infinity of none.
  INFLIGHT_INLINE static float LargestOf(const float* scores, uint64_t seen) {
    Vec largest = Set1(kMinusInfinity);
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g)
      largest = _mm512_mask_max_ps(largest, static_cast<__mmask16>(seen >> (16 * g)), largest,
                                   Load(scores + 16 * g));
    return Largest(largest);
  }

  // weights[j] = e^(scale * scores[j] - max) of those that are seen, else 0; returns their sum.
  // 2^t = 2^n 2^f, f within a half of 0: by the Taylor series of e^(f ln 2) to the fifth power,
  // whose remainder is 3e-6. No weight is below the normal numbers, which processors are slow with.
  INFLIGHT_INLINE static float Weigh(const float* scores, uint64_t seen, float scale, float max,
                                     uint16_t* weights) {
    constexpr float kLog2E = 1.44269504F;
    const Vec factor = Set1(scale * kLog2E);
    const Vec less = Set1(-max * kLog2E);
    Vec total = Zero();
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const Vec t = Max(Set1(-126.0F), MulAdd(Load(scores + 16 * g), factor, less));
      const Vec n = Round(t);
      const Vec f = Sub(t, n);
      Vec p = Set1(1.3333558e-3F);
      p = MulAdd(p, f, Set1(9.6181291e-3F));
      p = MulAdd(p, f, Set1(5.5504109e-2F));
      p = MulAdd(p, f, Set1(2.4022651e-1F));
      p = MulAdd(p, f, Set1(6.9314718e-1F));
      p = MulAdd(p, f, Set1(1.0F));
      const Vec w = _mm512_maskz_scalef_ps(static_cast<__mmask16>(seen >> (16 * g)), p, n);
      StoreRounded(weights + 16 * g, w);
      total = Add(total, w);
    }
    return Sum(total);
  }

  // As StoreBf16, but for denormals, which become zero. Every processor with AMX has the
  // instruction; clang 16 crashes on vectors of bfloat16.
  INFLIGHT_INLINE static void StoreRounded(uint16_t* p, Vec v) {
    __m256i rounded;
    asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(v));
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), rounded);
  }

  // results[r][d] += sum_j weights[r][j] * values[j / 32][j % 32 / 2][d][j % 2] of n rows
  void AddValues(const uint16_t* weights, const uint16_t* const* values, int num_halves, int n,
                 float* results) {
    alignas(64) float last[kTileHeight * 64];  // of rows that are fewer than the tiles'
    for (int d = 0; d < a_.head_dim; d += 64) {
      const bool is_last = n < height_;
      float* const out = is_last ? last : results + d;
      const int64_t stride = is_last ? 64 : stride_;
      if (is_last) CopyRows(results + d, stride_, n, last, 64);
      FinishStores();
      LoadSums(out, stride);
      for (int h = 0; h < num_halves; ++h) {
        const uint16_t* const w = values[h] + 2 * d;
        _tile_loadd(4, weights + h * kHalfTile, kKeyTile * 2);
        _tile_loadd(5, w, a_.head_dim * 4);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, w + 32, a_.head_dim * 4);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(7, w + 64, a_.head_dim * 4);
        _tile_dpbf16ps(2, 4, 7);
        _tile_loadd(5, w + 96, a_.head_dim * 4);
        _tile_dpbf16ps(3, 4, 5);
      }
      StoreSums(out, stride);
      if (is_last) CopyRows(last, 64, n, results + d, stride_);
    }
  }

  static void CopyRows(const float* from, int64_t from_stride, int n, float* to,
                       int64_t to_stride) {
    for (int r = 0; r < n; ++r)
      for (int c = 0; c < 64; c += 16)
        Store(to + r * to_stride + c, Load(from + r * from_stride + c));
  }

  const int height_ = a_.num_rows < kTileHeight ? a_.num_rows : kTileHeight;  // of the tiles
  alignas(64) uint16_t halves_[2][kHalfTile * kMaxHeadDim];
};

void AttendByTiles(const AttentionArgs& a) {
  _tile_loadconfig(&kTilesOf.heights[a.num_rows < kTileHeight ? a.num_rows : kTileHeight]);
  TileAttention(a).Run();
  _tile_release();
}

}  // namespace
}  // namespace inflight::ops::cpu
