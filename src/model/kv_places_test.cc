// SPDX-License-Identifier: Apache-2.0
#include "model/kv_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::model {
namespace {

using ::testing::ElementsAre;

// Six layers, of which each third sees the whole text and the others 8 tokens.
ModelConfig SixLayers() {
  ModelConfig config;
  config.num_layers = 6;
  config.sliding_window = 8;
  config.sliding_layers = {true, true, false, true, true, false};
  return config;
}

AttentionWindows InGroups(const ModelConfig& config, std::vector<int> groups) {
  AttentionWindows windows = LayerWindows(config, {});
  windows.groups = std::move(groups);
  return windows;
}

std::vector<int> PlacesOfAll(const KvPlaces& places, int num_layers) {
  std::vector<int> out;
  for (int i = 0; i < num_layers; ++i) out.push_back(places.kv_layer_of(static_cast<size_t>(i)));
  return out;
}

TEST(KvPlacesTest, LayersOfAGroupFollowEachOther) {
  const ModelConfig config = SixLayers();
  const AttentionWindows windows = InGroups(config, {0, 8});
  EXPECT_THAT(KvLayers(config, windows), ElementsAre(2, 4));
  const KvPlaces places(config, windows);
  EXPECT_THAT(PlacesOfAll(places, 6), ElementsAre(0, 1, 0, 2, 3, 1));
  Batch batch;
  batch.other_groups.resize(1);
  const ops::KvCacheView first;
  const KvPlaces::Inputs all = places.Of(places.window_of(2), batch, first);
  EXPECT_EQ(all.paged, &batch.paged);
  EXPECT_EQ(all.kv, &first);
  const KvPlaces::Inputs some = places.Of(places.window_of(3), batch, first);
  EXPECT_EQ(some.paged, &batch.other_groups[0].paged);
  EXPECT_EQ(some.kv, &batch.other_groups[0].kv);
}

TEST(KvPlacesTest, OneGroupHasAllLayersInTheirOrder) {
  const ModelConfig config = SixLayers();
  const AttentionWindows windows = LayerWindows(config, {});
  EXPECT_EQ(windows.num_groups(), 1);
  EXPECT_THAT(KvLayers(config, windows), ElementsAre(6));
  const KvPlaces places(config, windows);
  EXPECT_THAT(PlacesOfAll(places, 6), ElementsAre(0, 1, 2, 3, 4, 5));
}

// The second of three stages has no layer that sees all.
TEST(KvPlacesTest, AStageMayHaveNoLayerOfAGroup) {
  ModelConfig config = SixLayers();
  config.part = {.pp_rank = 1, .pp_size = 3, .first_layer = 3, .num_layers = 6};
  config.num_layers = 2;
  const AttentionWindows windows = InGroups(config, {0, 8});
  EXPECT_THAT(KvLayers(config, windows), ElementsAre(0, 2));
  const KvPlaces places(config, windows);
  EXPECT_THAT(PlacesOfAll(places, 2), ElementsAre(0, 1));
  ASSERT_EQ(places.windows().size(), 2U);
  const auto own = static_cast<size_t>(places.window_of(0));
  EXPECT_TRUE(places.has_layers(own));
  EXPECT_FALSE(places.has_layers(1 - own));
}

TEST(KvPlacesTest, AWindowIsInTheNarrowestGroupThatKeepsIt) {
  const AttentionWindows windows = {.windows = {}, .num_sinks = 0, .groups = {0, 64, 16}};
  EXPECT_EQ(windows.GroupOf(0), 0);
  EXPECT_EQ(windows.GroupOf(65), 0);
  EXPECT_EQ(windows.GroupOf(64), 1);
  EXPECT_EQ(windows.GroupOf(17), 1);
  EXPECT_EQ(windows.GroupOf(16), 2);
  EXPECT_EQ(windows.GroupOf(4), 2);
}

}  // namespace
}  // namespace inflight::model
