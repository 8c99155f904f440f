// SPDX-License-Identifier: Apache-2.0
// Which tokens of a step have which adapter, as the device finds it, against the rows that say so.
#include "executor/cuda/step_adapters.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "gpu_test.h"

namespace inflight::executor::cuda {
namespace {

class StepAdaptersTest : public gpu::GpuTest {
 protected:
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    buffers_.push_back(
        gpu::Must(Buffer::Allocate(device(), "test", (values.size() + 1) * sizeof(T))));
    gpu::Must(device().Copy(buffers_.back().data(), values.data(), values.size() * sizeof(T)));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return reinterpret_cast<T*>(buffers_.back().data());
  }
  template <typename T>
  std::vector<T> Read(const T* data, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    gpu::Must(device().Copy(values.data(), data, count * sizeof(T)));
    return values;
  }

  // Rows of slots 0, 1, 2 ... backwards, of `lengths` tokens; adapters[slot] as SetUp counts them.
  void ExpectTiles(const std::vector<int>& lengths, const std::vector<int32_t>& adapters,
                   int tile_tokens) {
    const size_t num_rows = lengths.size();
    std::vector<int32_t> row_slots;
    std::vector<int32_t> ends = {0};
    std::map<int, std::set<int>> tokens_of;  // by adapter, from 0
    for (size_t r = 0; r < num_rows; ++r) {
      const size_t slot = num_rows - 1 - r;
      row_slots.push_back(static_cast<int32_t>(slot));
      ends.push_back(ends.back() + lengths[r]);
      for (int t = ends[r]; adapters[slot] > 0 && t < ends[r + 1]; ++t)
        tokens_of[adapters[slot] - 1].insert(t);
    }
    std::erase_if(tokens_of, [](const auto& entry) { return entry.second.empty(); });
    const auto num_tokens = static_cast<size_t>(ends.back());
    int32_t* const order = Upload(std::vector<int32_t>(num_tokens, -1));
    ops::LoraTile* const tiles = Upload(std::vector<ops::LoraTile>(num_tokens));
    int32_t* const num_tiles = Upload(std::vector<int32_t>{-1});
    gpu::Must(FindTiles({.slot_adapters = Upload(adapters),
                         .row_slots = Upload(row_slots),
                         .row_ends = Upload(ends),
                         .num_rows = static_cast<int>(num_rows),
                         .tile_tokens = tile_tokens,
                         .order = order,
                         .tiles = tiles,
                         .num_tiles = num_tiles},
                        nullptr));
    const std::vector<int32_t> got_order = Read(order, num_tokens);
    const auto num = static_cast<size_t>(Read(num_tiles, 1)[0]);
    ASSERT_LE(num, num_tokens);
    std::map<int, std::set<int>> found;
    std::map<int, int> tiles_of;
    for (const ops::LoraTile& tile : Read(tiles, num)) {
      ASSERT_GE(tile.num, 1);
      ASSERT_LE(tile.num, tile_tokens);
      ++tiles_of[tile.adapter];
      for (int i = tile.first; i < tile.first + tile.num; ++i)
        EXPECT_TRUE(found[tile.adapter].insert(got_order.at(static_cast<size_t>(i))).second);
    }
    EXPECT_EQ(found, tokens_of);
    for (const auto& [adapter, tokens] : tokens_of)
      EXPECT_EQ(tiles_of[adapter],
                (static_cast<int>(tokens.size()) + tile_tokens - 1) / tile_tokens);
  }

 private:
  std::vector<Buffer> buffers_;
};

TEST_F(StepAdaptersTest, TilesHoldTheTokensOfEachAdapter) {
  std::mt19937 random(1);
  ExpectTiles({1}, {0}, 8);
  ExpectTiles({1}, {256}, 8);
  ExpectTiles({1, 1, 1, 700, 0, 31, 1}, {3, 0, 3, 1, 256, 3, 2}, 32);
  for (const size_t num_rows : {7U, 64U, 256U, 1024U})
    for (const unsigned num_adapters : {1U, 8U, 256U})
      for (const int tile_tokens : {ops::kSmallLoraTile, ops::kLargeLoraTile}) {
        std::vector<int> lengths;
        std::vector<int32_t> adapters;
        for (size_t r = 0; r < num_rows; ++r) {
          lengths.push_back(tile_tokens == ops::kSmallLoraTile ? 1
                                                               : static_cast<int>(random() % 9));
          adapters.push_back(static_cast<int32_t>(random() % (num_adapters + 1)));
        }
        ExpectTiles(lengths, adapters, tile_tokens);
      }
}

}  // namespace
}  // namespace inflight::executor::cuda
