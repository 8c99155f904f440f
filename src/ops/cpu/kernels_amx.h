// SPDX-License-Identifier: Apache-2.0
// AMX's tiles as panels and attention use them: 0 to 3 hold sums of sixteen rows by 64 columns, 4
// has x, 5 to 7 weights. Included once by the translation unit of AMX, after its Vec; all names
// have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

constexpr int kTileHeight = 16;  // rows of x
constexpr int kTileBytes = 64;   // of a row of x: one step of k

// Of Intel 64 and IA-32 Architectures Software Developer's Manual, LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles of 64 bytes by sixteen rows; those of sums and of x by fewer rows where a call has fewer.
struct TileConfigs {
  constexpr TileConfigs() {
    for (int height = 1; height <= kTileHeight; ++height) {
      for (int i = 0; i < 8; ++i) {
        heights[height].row_bytes[i] = kTileBytes;
        heights[height].rows[i] = static_cast<uint8_t>(i <= 4 ? height : kTileHeight);
      }
    }
  }
  TileConfig heights[kTileHeight + 1] = {};
};

// Static: g++ 12 drops what is stored into an automatic one, since it does not see that LDTILECFG
// reads it.
constexpr TileConfigs kTilesOf;

// What was written before is what tiles read: the compiler does not know that they do.
INFLIGHT_INLINE void FinishStores() { asm volatile("" ::: "memory"); }

INFLIGHT_INLINE void ClearSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// `stride` is in elements from row to row.
INFLIGHT_INLINE void LoadSums(const float* sums, int64_t stride = kPanelColumns) {
  _tile_loadd(0, sums, stride * 4);
  _tile_loadd(1, sums + 16, stride * 4);
  _tile_loadd(2, sums + 32, stride * 4);
  _tile_loadd(3, sums + 48, stride * 4);
}

INFLIGHT_INLINE void StoreSums(float* sums, int64_t stride = kPanelColumns) {
  _tile_stored(0, sums, stride * 4);
  _tile_stored(1, sums + 16, stride * 4);
  _tile_stored(2, sums + 32, stride * 4);
  _tile_stored(3, sums + 48, stride * 4);
}

}  // namespace
}  // namespace inflight::ops::cpu
