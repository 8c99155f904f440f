// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "bench/limits/peak.h"

namespace inflight::bench {
namespace {

// Eight tiles of sixteen rows of 64 bytes (Intel 64 and IA-32 Architectures Software Developer's
// Manual, LDTILECFG). Static, since g++ 12 drops what is stored into an automatic one.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t reserved[15] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kWholeTiles;
constexpr int kTileRows = 16;
constexpr int kProducts = 4;  // of a round, each with sums of its own

void Begin() {
  _tile_loadconfig(&kWholeTiles);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
}

void End(float* sink) {
  float sums[kTileRows * 16];
  _tile_stored(0, sums, 64);
  *sink = sums[0];
  _tile_release();
}

double Operations(int64_t rounds, int features) {
  return 2.0 * kTileRows * 16 * features * kProducts * static_cast<double>(rounds);
}

}  // namespace

double PeakBf16Amx(int64_t rounds, float* sink) {
  Begin();
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  End(sink);
  return Operations(rounds, 32);
}

double PeakInt8Amx(int64_t rounds, float* sink) {
  Begin();
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbsud(0, 4, 5);
    _tile_dpbsud(1, 4, 5);
    _tile_dpbsud(2, 4, 5);
    _tile_dpbsud(3, 4, 5);
  }
  End(sink);
  return Operations(rounds, 64);
}

}  // namespace inflight::bench
