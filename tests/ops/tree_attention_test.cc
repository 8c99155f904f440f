// SPDX-License-Identifier: Apache-2.0
// Attention of trees of drafts: each token as in a row of its ancestors alone, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "cases.h"
#include "compare.h"
#include "ops/attention.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

// Nodes behind a root, which is their parent -1; parents stand before their children.
using Parents = std::vector<int>;

struct TreeCase {
  const char* name;
  int num_heads, num_kv_heads, head_dim, block_size;
  int num_text;  // keys before the root
  Parents parents;
  SlidingWindow sliding = {};
};

Parents Comb(int num_nodes) {  // a chain with a sibling at each of its nodes
  Parents parents;
  for (int i = 0; i < num_nodes; ++i) parents.push_back(i < 2 ? -1 : (i - 2) / 2 * 2);
  return parents;
}

std::vector<TreeCase> TreeCases() {
  const Parents bushy = {-1, -1, 0, 0, 1, 2, 2, 3, 5};
  return {
      {"no text", 2, 1, 16, 16, 0, bushy},
      {"a chain", 2, 2, 8, 16, 5, {-1, 0, 1, 2}},
      {"siblings", 4, 2, 40, 16, 14, {-1, -1, -1, -1}},
      {"over a block", 6, 2, 64, 16, 13, bushy},
      {"over a tile", 6, 2, 40, 64, 59, bushy},
      {"behind a tile", 8, 1, 80, 16, 63, bushy},
      {"long text", 4, 4, 64, 64, 700, bushy},
      {"the largest", 2, 1, 24, 64, 100, Comb(63)},
      {"many heads", 80, 1, 8, 16, 30, bushy},
      {"a window", 4, 2, 40, 16, 90, bushy, {40, 4}},
      {"a narrow window", 4, 2, 16, 16, 70, bushy, {2, 0}},
  };
}

std::vector<int> PathTo(const TreeCase& c, int node) {  // root and node included, as token indices
  std::vector<int> path;
  for (; node >= 0; node = c.parents[static_cast<size_t>(node)])
    path.insert(path.begin(), node + 1);
  path.insert(path.begin(), 0);
  return path;
}

void CopyToken(const PagedCache& from, int from_seq, int from_place, const PagedCache& to,
               int to_seq, int to_place) {
  const KvCacheView& a = from.view();
  const KvCacheView& b = to.view();
  for (int head = 0; head < a.num_kv_heads; ++head) {
    const auto block = [](const PagedCache& cache, int seq, int place) {
      return cache.blocks(seq)[static_cast<size_t>(place / cache.view().block_size)];
    };
    const int i = from_place % a.block_size;
    const int j = to_place % b.block_size;
    for (int d = 0; d < a.head_dim; ++d) {
      StoreFloat(
          b.Keys(0, block(to, to_seq, to_place), head), b.dtype, b.KeyIndex(j, d),
          LoadFloat(a.Keys(0, block(from, from_seq, from_place), head), a.dtype, a.KeyIndex(i, d)));
      StoreFloat(b.Values(0, block(to, to_seq, to_place), head), b.dtype, b.ValueIndex(j, d),
                 LoadFloat(a.Values(0, block(from, from_seq, from_place), head), a.dtype,
                           a.ValueIndex(i, d)));
    }
  }
}

// A row of a root and its tree behind a text.
struct TreeInputs {
  TreeInputs(const TreeCase& c, DType kv_dtype)
      : num_tokens(static_cast<int>(c.parents.size()) + 1),
        num_places(c.num_text + num_tokens),
        cache({kv_dtype, c.num_kv_heads, c.head_dim, c.block_size}, {num_places}, 3),
        batch(cache, {{num_tokens, num_places}}, {0}),
        q(Tensor::Random(DType::kF32, {num_tokens, c.num_heads, c.head_dim}, 4, 1)) {
    cache.Fill(0, 0, num_places, 17);
    std::vector<int64_t> bits;
    std::vector<int> at;
    for (int t = 0; t < num_tokens; ++t) {
      const std::vector<int> path = PathTo(c, t - 1);
      uint64_t mask = 0;
      for (int i = 0; i < kMaxTreePlaces; ++i) {
        const int place = num_places - 1 - i;
        const bool is_text = place >= 0 && place < c.num_text;
        if (is_text || std::count(path.begin(), path.end(), place - c.num_text) > 0)
          mask |= uint64_t{1} << i;
      }
      bits.push_back(static_cast<int64_t>(mask));
      at.push_back(c.num_text + static_cast<int>(path.size()) - 1);
    }
    masks = Tensor::Int64(bits);
    positions = Tensor::Int32(at);
  }
  AttentionParams Params(const TreeCase& c, const Tensor& y) const {
    PagedBatch tree = batch.view();
    tree.positions = positions.view();
    tree.tree_masks = masks.view();
    return {.q = q.view(),
            .batch = tree,
            .kv = cache.view(),
            .layer = 0,
            .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
            .sliding = c.sliding,
            .y = y.view()};
  }
  int num_tokens, num_places;
  PagedCache cache;
  BatchArrays batch;
  Tensor q, masks, positions;
};

class TreeAttentionTest : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Device> device_ = Device::Cpu(3);
  Stream stream_{*device_};
};

TEST_P(TreeAttentionTest, ATokenIsThatOfARowOfItsAncestors) {
  for (const TreeCase& c : TreeCases()) {
    const TreeInputs in(c, GetParam());
    const int64_t width = int64_t{c.num_heads} * c.head_dim;
    for (const OpTable& table : CpuOpTables({.kv_dtype = GetParam(), .head_dim = c.head_dim})) {
      const Tensor tree(DType::kF32, {in.num_tokens, width}, 1);
      ASSERT_EQ(table.attention(in.Params(c, tree), stream_), Status::Ok()) << c.name;
      for (int t = 0; t < in.num_tokens; ++t) {
        const std::vector<int> path = PathTo(c, t - 1);
        const int length = c.num_text + static_cast<int>(path.size());
        const PagedCache chain({GetParam(), c.num_kv_heads, c.head_dim, c.block_size}, {length}, 9);
        for (int p = 0; p < length; ++p)
          CopyToken(in.cache, 0,
                    p < c.num_text ? p : c.num_text + path[static_cast<size_t>(p - c.num_text)],
                    chain, 0, p);
        const BatchArrays batch(chain, {{1, length}}, {0});
        const Tensor y(DType::kF32, {1, width}, 1);
        AttentionParams params = in.Params(c, y);
        params.batch = batch.view();
        params.kv = chain.view();
        params.q = {in.q.view().as<float>() + t * width, DType::kF32, {1, c.num_heads, c.head_dim}};
        ASSERT_EQ(table.attention(params, stream_), Status::Ok());
        const std::vector<float> all = tree.ToFloats();
        const std::vector<float> got(all.begin() + t * width, all.begin() + (t + 1) * width);
        EXPECT_TRUE(SameBits(got, y.ToFloats())) << table.name << " " << c.name << " token " << t;
      }
    }
  }
}

// A root at place 1 behind one key of text, and two drafts of it. All queries score the keys alike,
// so that each token has the mean of the values that it sees: 10, 20, 30 and 40 by place.
TEST_P(TreeAttentionTest, HandCheckedMasks) {
  const TreeCase c = {"", 1, 1, 8, 16, 1, {-1, -1}};
  const TreeInputs in(c, GetParam());
  const KvCacheView& kv = in.cache.view();
  for (int place = 0; place < 4; ++place)
    for (int d = 0; d < 8; ++d) {
      const int64_t block = in.cache.blocks(0)[0];
      StoreFloat(kv.Keys(0, block, 0), kv.dtype, kv.KeyIndex(place, d), 0);
      StoreFloat(kv.Values(0, block, 0), kv.dtype, kv.ValueIndex(place, d),
                 10.0F * static_cast<float>(place + 1));
    }
  // By bits, from the last place: the second draft, the first, the root, the text.
  EXPECT_EQ(in.masks.view().as<int64_t>()[0], 0b1100);
  EXPECT_EQ(in.masks.view().as<int64_t>()[1], 0b1110);
  EXPECT_EQ(in.masks.view().as<int64_t>()[2], 0b1101);
  for (const OpTable& table : CpuOpTables({.kv_dtype = GetParam(), .head_dim = 8})) {
    const Tensor y(DType::kF32, {3, 8}, 1);
    ASSERT_EQ(table.attention(in.Params(c, y), stream_), Status::Ok());
    EXPECT_NEAR(y.Get(0), 15, 0.1) << table.name;         // (10 + 20) / 2
    EXPECT_NEAR(y.Get(8), 20, 0.1) << table.name;         // (10 + 20 + 30) / 3
    EXPECT_NEAR(y.Get(16), 70.0 / 3, 0.2) << table.name;  // (10 + 20 + 40) / 3
  }
}

TEST_P(TreeAttentionTest, AMaskHasItsOwnTokenLastAndAsManyKeysAsItsPosition) {
  const TreeCase c = {"", 1, 1, 8, 16, 1, {-1, -1}};
  const TreeInputs in(c, GetParam());
  const Tensor y(DType::kF32, {3, 8}, 1);
  const auto error = [&](int64_t mask) {
    in.masks.view().as<int64_t>()[1] = mask;
    return ReferenceTable().attention(in.Params(c, y), stream_).message();
  };
  EXPECT_EQ(error(0b1111),  // it sees the draft behind it
            "batch.tree_masks[1]: got 0xf at position 2, 1 places before the last of 4, needed 3 "
            "keys, its own the last of them");
  EXPECT_NE(error(0b1100), "");   // not itself
  EXPECT_NE(error(0b0110), "");   // fewer
  EXPECT_NE(error(0b11110), "");  // no such place
  EXPECT_EQ(error(0b1110), "");
}

INSTANTIATE_TEST_SUITE_P(KvDTypes, TreeAttentionTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::ops
