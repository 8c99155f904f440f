// SPDX-License-Identifier: Apache-2.0
// Panel products by AMX. Included once by the translation unit of AMX, after kernels_amx.h and
// kernels_scale.h; all names have internal linkage.
//
// A panel's part of 512 bytes of k is multiplied with all rows of the call, sixteen at a time,
// before the next part: 32 KiB of weights that stay in the first-level cache. Of bf16 a sum takes
// 32 elements of k at a time: their products with even k are added up, those with odd k, both sums
// are added, and then the sum before (TDPBF16PS; it flushes denormals). That is the same for every
// number of rows, since absent rows are zeros. Sums of integers are exact.
#pragma once

namespace inflight::ops::cpu {
namespace {

constexpr int kQuadRowBytes = 256;  // of a panel: four bytes of k for each of the 64 columns
constexpr int kStepBytes = kTileBytes / 4 * kQuadRowBytes;  // of weights
// Of a row of x that pass together: less where copied weights or sums of groups share the cache.
constexpr int kMaxPartBytes = 512;
constexpr int kSmallPartBytes = 256;
constexpr int kSmallPartRows = 64;
// As in kernels_panel.h.
constexpr int64_t kNearBytes = 4096;
// Integers of fewer rows go through VPDPBUSD, which is as exact.
constexpr int kLeastRowsOfIntegers = 6;

// How weights are stored, and what was added to them.
struct Bf16Form {
  static constexpr int kElementBytes = 2;  // of x
  static constexpr bool kIsHalfBytes = false;
};

struct I8Form {
  static constexpr int kElementBytes = 1;
  static constexpr bool kIsHalfBytes = false;
  static constexpr int32_t kOffset = 128;
};

struct I4Form : I8Form {
  static constexpr bool kIsHalfBytes = true;
  static constexpr int32_t kOffset = 8;
};

// clang-format off
#define INFLIGHT_TILE_STEP(dot)                                    \
  _tile_stream_loadd(4, x, x_stride);                              \
  _tile_loadd(5, w, kQuadRowBytes);           dot(0, 4, 5);        \
  _tile_loadd(6, w + kTileBytes, kQuadRowBytes);     dot(1, 4, 6); \
  _tile_loadd(7, w + 2 * kTileBytes, kQuadRowBytes); dot(2, 4, 7); \
  _tile_loadd(5, w + 3 * kTileBytes, kQuadRowBytes); dot(3, 4, 5)
// clang-format on

// Memory that is asked for beside the steps of a part: `lines` of 64 bytes of weights in each, and
// where there are several tiles eight of the next one's sums.
struct Ask {
  const char* next;
  int lines;
  const float* next_sums;
};

// Tiles 0 to 3 += a tile of x by `num_steps` steps of weights.
template <typename Form, bool kIsSingle>
INFLIGHT_INLINE void MultiplySteps(const char* x, int64_t x_stride, const char* w, int num_steps,
                                   Ask& ask) {
  for (int step = 0; step < num_steps; ++step) {
    if (kIsSingle) {
      for (int i = 0; i < ask.lines; ++i) _mm_prefetch(ask.next + i * 64, _MM_HINT_T0);
    } else {
      for (int i = 0; i < ask.lines; i += 4) {
        _mm_prefetch(ask.next + i * 64, _MM_HINT_T1);
        _mm_prefetch(ask.next + i * 64 + 64, _MM_HINT_T1);
        _mm_prefetch(ask.next + i * 64 + 128, _MM_HINT_T1);
        _mm_prefetch(ask.next + i * 64 + 192, _MM_HINT_T1);
      }
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) _mm_prefetch(ask.next_sums + (step * 8 + i) * 16, _MM_HINT_T0);
    }
    ask.next += ask.lines * 64;
    if constexpr (Form::kElementBytes == 2) {
      INFLIGHT_TILE_STEP(_tile_dpbf16ps);
    } else {
      INFLIGHT_TILE_STEP(_tile_dpbsud);
    }
    x += kTileBytes;
    w += kStepBytes;
  }
}

// The first `size` bytes, zeros above.
INFLIGHT_INLINE void CopyPart(const char* from, int64_t size, int64_t padded, char* to) {
  for (int64_t i = 0; i < padded; i += 64) {
    const int64_t left = size - i;
    const __mmask64 mask = left >= 64 ? ~__mmask64{0} : left <= 0 ? 0 : (__mmask64{1} << left) - 1;
    _mm512_store_si512(to + i, _mm512_maskz_loadu_epi8(mask, from + i));
  }
}

// Bytes [at, at + size) of k of all rows of a call, and `padded` ones that tiles read.
struct Part {
  int64_t at;
  int64_t size;
  int64_t padded;
};

// Sixteen rows of x as tiles read them.
struct TileRows {
  const char* data;
  int64_t stride;
};

// The rows of one call, in tiles. A tile of a call that has fewer than sixteen rows has no others;
// the last of several tiles has zeros for those that it lacks.
class RowTiles {
 public:
  explicit RowTiles(const PanelArgs& a)
      : a_(a),
        num_tiles_((a.num_rows + kTileHeight - 1) / kTileHeight),
        height_(num_tiles_ == 1 ? a.num_rows : kTileHeight) {
    for (int i = 0; i < num_tiles_; ++i) strides_[i] = StrideOf(i * kTileHeight);
  }

  int size() const { return num_tiles_; }
  int height() const { return height_; }

  // The part of tile i's rows, with zeros behind it.
  TileRows Of(int i, const Part& part) {
    const int first = i * kTileHeight;
    const auto* const* x = reinterpret_cast<const char* const*>(a_.x) + first;
    if (strides_[i] != 0 && part.size == part.padded) return {x[0] + part.at, strides_[i]};
    for (int r = 0; r < height_; ++r) {
      char* const to = copy_ + r * kMaxPartBytes;
      if (first + r < a_.num_rows)
        CopyPart(x[r] + part.at, part.size, part.padded, to);
      else
        CopyPart(to, 0, part.padded, to);
    }
    return {copy_, kMaxPartBytes};
  }

 private:
  // From row to row of a tile; 0 where rows are missing, or lie otherwise.
  int64_t StrideOf(int first) const {
    if (a_.num_rows - first < height_) return 0;
    const auto* const* x = reinterpret_cast<const char* const*>(a_.x) + first;
    const int64_t stride = height_ == 1 ? kTileBytes : x[1] - x[0];
    for (int r = 2; r < height_; ++r)
      if (x[r] - x[r - 1] != stride) return 0;
    return stride;
  }

  const PanelArgs& a_;
  const int num_tiles_;
  const int height_;
  int64_t strides_[kMaxPanelRows / kTileHeight];
  alignas(64) char copy_[kTileHeight * kMaxPartBytes];
};

// Sums of the rows of one call: those of a last tile that has fewer rows than others lie apart.
class TileSums {
 public:
  explicit TileSums(const PanelArgs& a)
      : a_(a), first_(a.num_rows / kTileHeight * kTileHeight * kPanelColumns) {
    if (a.begin == 0) return;
    for (int i = first_; i < a_.num_rows * kPanelColumns; i += 16)
      Store(last_ + i - first_, Load(a_.sums + i));
  }
  float* operator[](int tile) {
    const int first = tile * kTileHeight * kPanelColumns;
    return first < first_ ? a_.sums + first : last_;
  }
  void Finish() const {
    for (int i = first_; i < a_.num_rows * kPanelColumns; i += 16)
      Store(a_.sums + i, Load(last_ + i - first_));
  }

 private:
  const PanelArgs& a_;
  const int first_;  // of the sums that lie apart
  alignas(64) float last_[kTileHeight * kPanelColumns];
};

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// Where the panel's weights of byte `at` of k are stored.
template <typename Form>
const char* StoredAt(const PanelArgs& a, int64_t at) {
  constexpr int64_t kBytesOfRow = Form::kIsHalfBytes ? 8 : 4;  // of k
  return static_cast<const char*>(a.panel) + at / kBytesOfRow * kQuadRowBytes;
}

// The part's weights as bytes, in whole steps. Behind the panel's last row x is zero, which times
// an integer is zero; floats are zeros there.
template <typename Form>
const char* WeightsOf(const PanelArgs& a, const Part& part, char* copy) {
  const char* w = StoredAt<Form>(a, part.at);
  if constexpr (Form::kIsHalfBytes) {
    const char* const end = w + (part.size + 7) / 8 * kQuadRowBytes;
    for (char* to = copy; w < end; w += kQuadRowBytes, to += 2 * kQuadRowBytes) {
#pragma GCC unroll 4
      for (int i = 0; i < kQuadRowBytes; i += 64) {
        const Nibbles bytes = LoadNibbles(reinterpret_cast<const uint8_t*>(w + i));
        _mm512_store_si512(to + i, bytes.first);
        _mm512_store_si512(to + kQuadRowBytes + i, bytes.second);
      }
    }
    return copy;
  } else {
    if (part.size == part.padded) return w;
    CopyPart(w, (part.size + 3) / 4 * kQuadRowBytes, part.padded / 4 * kQuadRowBytes, copy);
    return copy;
  }
}

// What is asked for while `part` is multiplied: by a single tile, which waits for memory, what is
// stored a page ahead; by several the next part, spread evenly.
template <typename Form>
Ask AskBehind(const PanelArgs& a, const Part& part, int num_tiles) {
  constexpr int kLines = (Form::kIsHalfBytes ? 1 : 2) * kStepBytes / 128;  // of a step
  if (num_tiles == 1) return {StoredAt<Form>(a, part.at) + kNearBytes, kLines, nullptr};
  return {StoredAt<Form>(a, part.at + part.padded), (kLines + num_tiles - 1) / num_tiles, a.sums};
}

// Calls run(part, weights) for each part of k in order.
template <typename Form, typename Run>
INFLIGHT_INLINE void ForEachPart(const PanelArgs& a, int64_t part_bytes, const Run& run) {
  alignas(64) char copy[kMaxPartBytes / 4 * kQuadRowBytes];
  const int64_t end = (a.end == 0 ? a.in_features : a.end) * Form::kElementBytes;
  for (int64_t at = a.begin * Form::kElementBytes; at < end; at += part_bytes) {
    const int64_t size = Least(part_bytes, end - at);
    const Part part = {at, size, (size + kTileBytes - 1) / kTileBytes * kTileBytes};
    run(part, WeightsOf<Form>(a, part, copy));
  }
}

// a.sums of one tile of rows, whose sums stay in their tiles; those of integers are int32.
template <typename Form>
void MultiplySingle(const PanelArgs& a) {
  RowTiles rows(a);
  _tile_loadconfig(&kTilesOf.heights[rows.height()]);
  if (a.begin == 0)
    ClearSums();
  else
    LoadSums(a.sums);
  const int64_t part_bytes = Form::kIsHalfBytes ? kSmallPartBytes : kMaxPartBytes;
  ForEachPart<Form>(a, part_bytes, [&](const Part& part, const char* w) {
    Ask ask = AskBehind<Form>(a, part, 1);
    const TileRows x = rows.Of(0, part);
    FinishStores();
    MultiplySteps<Form, true>(x.data, x.stride, w, static_cast<int>(part.padded / kTileBytes), ask);
  });
  StoreSums(a.sums);
  _tile_release();
}

// The same of several.
template <typename Form>
void MultiplySeveral(const PanelArgs& a) {
  RowTiles rows(a);
  TileSums sums(a);
  _tile_loadconfig(&kTilesOf.heights[kTileHeight]);
  const bool is_small = Form::kIsHalfBytes && a.num_rows <= kSmallPartRows;
  ForEachPart<Form>(a, is_small ? kSmallPartBytes : kMaxPartBytes,
                    [&](const Part& part, const char* w) {
                      Ask ask = AskBehind<Form>(a, part, rows.size());
                      for (int i = 0; i < rows.size(); ++i) {
                        const TileRows x = rows.Of(i, part);
                        FinishStores();
                        if (part.at == 0)
                          ClearSums();
                        else
                          LoadSums(sums[i]);
                        ask.next_sums = sums[i + 1 < rows.size() ? i + 1 : 0];
                        MultiplySteps<Form, false>(x.data, x.stride, w,
                                                   static_cast<int>(part.padded / kTileBytes), ask);
                        StoreSums(sums[i]);
                      }
                    });
  _tile_release();
  sums.Finish();
}

template <typename Form>
void MultiplyPanel(const PanelArgs& a) {
  if (a.num_rows <= kTileHeight) return MultiplySingle<Form>(a);
  MultiplySeveral<Form>(a);
}

// a.sums += one group of a tile's rows, whose sums of integers are `exact` (formula: ops/linear.h;
// the order is that of kernels_grouped.h).
template <int32_t kOffset, bool kHasOffsets>
void AddGroup(const PanelArgs& a, const float* exact, int64_t group, int first_row, int num_rows) {
  const int64_t at = group * kPanelColumns;
  const float* const* const x_scales = a.x_scales + first_row;
  const int32_t* const* const x_sums = a.x_sums + first_row;
  float* sums = a.sums + first_row * kPanelColumns;
  Vec scales[4];
  Vec offsets[kHasOffsets ? 4 : 1];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    scales[c] = Load(a.w_scales + at + 16 * c);
    if constexpr (kHasOffsets) offsets[c] = Load(a.w_offsets + at + 16 * c);
  }
  for (int r = 0; r < num_rows; ++r) {
    const float x_scale = x_scales[r][group];
    const int32_t x_sum = x_sums[r][group];
    const Vec scale = Set1(x_scale);
    const Vec scaled_x_sum = Set1(static_cast<float>(x_sum) * x_scale);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      Vec sum = IntegersMinus(Load(exact + 16 * c), kOffset * x_sum);
      sum = MulAdd(sum, Mul(scale, scales[c]), Load(sums + 16 * c));
      if constexpr (kHasOffsets) sum = MulAdd(scaled_x_sum, offsets[c], sum);
      Store(sums + 16 * c, sum);
    }
    exact += kPanelColumns;
    sums += kPanelColumns;
  }
}

// a.sums of groups of whole steps, whose size divides kMaxPartBytes.
template <typename Form, bool kIsSingle>
void MultiplyGroups(const PanelArgs& a) {
  alignas(64) float exact[kTileHeight * kPanelColumns];
  RowTiles rows(a);
  if (a.begin == 0)
    for (int i = 0; i < a.num_rows * kPanelColumns; i += 16) Store(a.sums + i, Zero());
  const int64_t size = a.group_size;
  const auto add =
      a.w_offsets == nullptr ? AddGroup<Form::kOffset, false> : AddGroup<Form::kOffset, true>;
  _tile_loadconfig(&kTilesOf.heights[rows.height()]);
  ForEachPart<Form>(
      a, size > kSmallPartBytes ? size : kSmallPartBytes, [&](const Part& part, const char* w) {
        Ask ask = AskBehind<Form>(a, part, rows.size());
        for (int i = 0; i < rows.size(); ++i) {
          const TileRows x = rows.Of(i, part);
          const int first_row = i * kTileHeight;
          const auto num_rows = static_cast<int>(Least(kTileHeight, a.num_rows - first_row));
          FinishStores();
          for (int64_t k = 0; k < part.size; k += size) {
            ClearSums();
            MultiplySteps<Form, kIsSingle>(x.data + k, x.stride, w + k / 4 * kQuadRowBytes,
                                           static_cast<int>(size / kTileBytes), ask);
            StoreSums(exact);
            add(a, exact, (part.at + k) / size, first_row, num_rows);
          }
        }
      });
  _tile_release();
}

// Whether tiles multiply integers; not those with scales in blocks, which files have of groups that
// are shorter than a tile.
bool HasTiles(const PanelArgs& a) {
  const bool has_steps =
      a.group_size == 0 || (a.group_size % kTileBytes == 0 && kMaxPartBytes % a.group_size == 0);
  return a.num_rows >= kLeastRowsOfIntegers && has_steps && a.w_scale_blocks == nullptr;
}

// By kernels that know no parts of k: all of it with the first.
void MultiplyWhole(const PanelArgs& a, void (*panel)(const PanelArgs&)) {
  if (a.begin == 0) panel(a);
}

template <typename Form>
void IntegerPanel(const PanelArgs& a, void (*otherwise)(const PanelArgs&)) {
  if (!HasTiles(a)) return MultiplyWhole(a, otherwise);
  const bool is_single = a.num_rows <= kTileHeight;
  if (a.group_size > 0 && is_single) return MultiplyGroups<Form, true>(a);
  if (a.group_size > 0) return MultiplyGroups<Form, false>(a);
  MultiplyPanel<Form>(a);
  if (a.end == 0 || a.end == a.in_features) ScaleSums<Form::kOffset>(a);
}

}  // namespace
}  // namespace inflight::ops::cpu
