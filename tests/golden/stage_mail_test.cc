// SPDX-License-Identifier: Apache-2.0
// What the last stage drew joins the slots of a stage before it, whose keys and values move as its
// own did, and what the first one drafted those of a stage behind it: steps small enough to check
// by hand. One kernel after the other, so that tools may look on.
#include "executor/cuda/stage_mail.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"
#include "executor/cuda/stage_drafts.h"
#include "tensor/buffer.h"
#include "tensor/test_gpu.h"

namespace inflight::executor::cuda {
namespace {

constexpr int kSlots = 4;  // with the scratch slot
constexpr int kMaxTokens = 8;
using Ints = std::vector<int32_t>;

class StageMailTest : public testing::Test {
 protected:
  // Tokens of a stage.
  struct Stage {
    Buffer tokens, num_tokens, num_steps;
    SlotState slots;
  };

  void SetUp() override { NEED_TEST_GPU(); }

  static Device& device() { return **TestGpu(); }
  static Buffer Make(size_t num_bytes) {
    auto buffer = Buffer::Allocate(device(), "stage mail", num_bytes);
    CHECK(buffer.ok());
    return *std::move(buffer);
  }
  template <typename T>
  static Buffer Upload(const std::vector<T>& values) {
    Buffer buffer = Make(values.size() * sizeof(T));
    CHECK(device().Copy(buffer.data(), values.data(), values.size() * sizeof(T)).ok());
    return buffer;
  }
  static Ints Read(const Buffer& buffer, size_t count) {
    Ints values(count);
    CHECK(device().Copy(values.data(), buffer.data(), count * sizeof(int32_t)).ok());
    return values;
  }
  static Stage StageOf(const Ints& tokens, const Ints& num_tokens, uint64_t num_steps) {
    Stage stage{.tokens = Upload(tokens),
                .num_tokens = Upload(num_tokens),
                .num_steps = Upload(std::vector<uint64_t>{num_steps}),
                .slots = {}};
    stage.slots = {.num_slots = kSlots,
                   .max_tokens = kMaxTokens,
                   .tokens = reinterpret_cast<int32_t*>(stage.tokens.data()),
                   .num_tokens = reinterpret_cast<int32_t*>(stage.num_tokens.data()),
                   .num_steps = reinterpret_cast<uint64_t*>(stage.num_steps.data())};
    return stage;
  }
  static int32_t* Values(Buffer& buffer) { return reinterpret_cast<int32_t*>(buffer.data()); }

  // The last stage's step `step` to two stages before it, which take it.
  void Deliver(const Stage& last, StepTensors tensors, int num_logits, uint64_t step,
               std::vector<Stage*> before) {
    Buffer abort = Make(sizeof(uint32_t));
    StageMail sent{.abort = reinterpret_cast<const uint32_t*>(abort.data())};
    std::vector<Buffer> boxes;
    for (size_t i = 0; i < before.size(); ++i) {
      boxes.push_back(Make(kNumArenas * sizeof(StageLetter)));
      sent.boxes[sent.num_boxes++] = reinterpret_cast<StageLetter*>(boxes.back().data());
    }
    ASSERT_TRUE(SendDrawn(sent, last.slots, tensors, num_logits, nullptr).ok());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (size_t i = 0; i < before.size(); ++i) {
      const StageMail own{.num_boxes = 1, .boxes = {sent.boxes[i]}, .abort = sent.abort};
      ASSERT_TRUE(TakeDrawn(own, before[i]->slots, step, nullptr).ok());
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
  }
};

// Slots 2 and 0 drew 31 and 11; a row is nobody's.
TEST_F(StageMailTest, ATokenJoinsEachSlotThatDrew) {
  const uint64_t step = 37;
  const Stage last = StageOf({5, 6, 11, 0, 0,  0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
                              8, 9, 3,  4, 31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                             {3, 1, 5, 0}, step + 1);
  Stage first = StageOf({5, 6, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
                         8, 9, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                        {2, 1, 4, 0}, 0);
  Stage second = StageOf(Read(first.tokens, kSlots * kMaxTokens), {2, 1, 4, 0}, 0);
  Buffer slots = Upload(Ints{2, -1, 0});
  Buffer ids = Upload(Ints{31, 99, 11});
  Deliver(last, {.logit_slots = Values(slots), .sampled_ids = Values(ids)}, 3, step,
          {&first, &second});
  for (const Stage* stage : {&first, &second}) {
    EXPECT_EQ(Read(stage->tokens, kSlots * kMaxTokens), Read(last.tokens, kSlots * kMaxTokens));
    EXPECT_EQ(Read(stage->num_tokens, kSlots), (Ints{3, 1, 5, 0}));
  }
}

// What a host is told: the same, out of pinned memory.
TEST_F(StageMailTest, ALetterThatTheHostWroteIsTaken) {
  auto box = PinnedBuffer::Allocate(device(), kNumArenas * sizeof(StageLetter));
  ASSERT_TRUE(box.ok());
  Buffer abort = Make(sizeof(uint32_t));
  const StageMail mail{.num_boxes = 1,
                       .boxes = {reinterpret_cast<StageLetter*>(box->data())},
                       .abort = reinterpret_cast<const uint32_t*>(abort.data())};
  Ints tokens(kSlots * kMaxTokens, 0);
  Ints num_tokens = {2, 1, 4, 0};
  const Stage stage = StageOf(tokens, num_tokens, 0);
  // A token of slot 2 at each step, and of slot 0, with a draft that was accepted, at some; more
  // steps than there are places.
  for (uint64_t step = 0; step < kNumArenas + 3; ++step) {
    const auto at = static_cast<int32_t>(4 + step % 3);
    const auto id = static_cast<int32_t>(100 + step);
    std::vector<DrawnToken> drawn = {{.slot = 2, .at = at, .id = id, .num_tokens = at + 1}};
    tokens[static_cast<size_t>(2 * kMaxTokens + at)] = id;
    num_tokens[2] = at + 1;
    if (step % 5 == 0) {
      drawn.push_back({.slot = 0, .at = 2, .id = id + 50, .num_tokens = 4});
      drawn.push_back({.slot = 0, .at = 3, .id = id + 60, .num_tokens = 4});
      tokens[2] = id + 50;
      tokens[3] = id + 60;
      num_tokens[0] = 4;
    }
    ASSERT_TRUE(WriteLetter(mail, step, drawn).ok());
    ASSERT_TRUE(TakeDrawn(mail, stage.slots, step, nullptr).ok());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(Read(stage.tokens, kSlots * kMaxTokens), tokens) << step;
    EXPECT_EQ(Read(stage.num_tokens, kSlots), num_tokens) << step;
  }
  const std::vector<DrawnToken> too_many(scheduler::StepPlan::kMaxRows + 1);
  EXPECT_EQ(WriteLetter(mail, 0, too_many).code(), StatusCode::kInvalidArgument);
}

// Slot 2 has three drafts behind 3 tokens, the last of which is none; slot 0 one, of which there is
// no room for a second; slot 1 has no row.
TEST_F(StageMailTest, DraftsStandBehindTheTokensOfTheNextStage) {
  const Ints num_tokens = {7, 2, 3, 0};
  Ints tokens(kSlots * kMaxTokens, 0);
  tokens[7] = 55;
  const auto second = static_cast<size_t>(2 * kMaxTokens);
  tokens[second + 3] = 60, tokens[second + 4] = 61, tokens[second + 5] = -1;
  const Stage first = StageOf(tokens, num_tokens, 0);
  const Stage next = StageOf(Ints(kSlots * kMaxTokens, 9), num_tokens, 0);
  DraftingRows rows;
  rows.num_rows = 2;
  rows.rows[0] = {.slot = 2, .num_drafts = 3};
  rows.rows[1] = {.slot = 0, .num_drafts = 2};
  constexpr int kStride = 4;
  Buffer ids = Make(2 * kStride * sizeof(int32_t));
  ASSERT_TRUE(PackDrafts(rows, first.slots, Values(ids), kStride, nullptr).ok());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const Ints packed = Read(ids, 2 * kStride);
  EXPECT_EQ(Ints(packed.begin(), packed.begin() + 3), (Ints{60, 61, -1}));
  EXPECT_EQ(Ints(packed.begin() + kStride, packed.begin() + kStride + 2), (Ints{55, -1}));
  ASSERT_TRUE(PlaceDrafts(rows, next.slots, Values(ids), kStride, nullptr).ok());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Ints expected(kSlots * kMaxTokens, 9);
  expected[7] = 55;
  expected[second + 3] = 60, expected[second + 4] = 61, expected[second + 5] = -1;
  EXPECT_EQ(Read(next.tokens, kSlots * kMaxTokens), expected);
  EXPECT_EQ(Read(next.num_tokens, kSlots), num_tokens);
}

// Slot 1 knows 2 tokens; of three drafts one is accepted, so that it has 4. What was drawn behind
// the second draft is no token.
TEST_F(StageMailTest, OfDraftsThoseJoinThatWereAccepted) {
  const uint64_t step = kNumArenas * 3 - 1;
  Ints tokens(kSlots * kMaxTokens, 0);
  tokens[kMaxTokens] = 40, tokens[kMaxTokens + 1] = 41;
  Ints drawn = tokens;
  drawn[kMaxTokens + 2] = 42, drawn[kMaxTokens + 3] = 50;
  const Stage last = StageOf(drawn, {0, 4, 0, 0}, step + 1);
  tokens[kMaxTokens + 2] = 42, tokens[kMaxTokens + 3] = 43, tokens[kMaxTokens + 4] = 44;  // drafts
  Stage first = StageOf(tokens, {0, 2, 0, 0}, 0);
  Buffer slots = Upload(Ints{1, 1, 1, 1});
  Buffer ids = Upload(Ints{42, 50, 77, 78});
  Buffer positions = Upload(Ints{2, 3, 4, 5});
  Deliver(last,
          {.logit_slots = Values(slots),
           .logit_positions = Values(positions),
           .sampled_ids = Values(ids)},
          4, step, {&first});
  EXPECT_EQ(Read(first.num_tokens, kSlots), (Ints{0, 4, 0, 0}));
  Ints expected = drawn;
  expected[kMaxTokens + 4] = 44;  // a draft that nobody looks at
  EXPECT_EQ(Read(first.tokens, kSlots * kMaxTokens), expected);
}

// Keys and values of slot 1 in blocks 3 and 1, of two layers: in floats the key at a place of a
// layer begins with 100 * layer + place, the value with 1000 more.
struct SmallCache {
  static constexpr int kBlockSize = 4;
  static constexpr int kMaxBlocks = 2;  // of a slot
  static constexpr int kLayers = 2;

  ops::KvCacheView view = {.dtype = DType::kF32,
                           .num_layers = kLayers,
                           .num_blocks = 5,
                           .num_kv_heads = 1,
                           .block_size = kBlockSize,
                           .head_dim = 8};
  Ints tables = Ints(size_t{kSlots} * kMaxBlocks, 0);
  std::vector<float> values =
      std::vector<float>(view.block_bytes() / sizeof(float) * kLayers * 5, -1);

  SmallCache() {
    tables[kMaxBlocks] = 3, tables[kMaxBlocks + 1] = 1;
    for (int layer = 0; layer < kLayers; ++layer)
      for (int place = 0; place < kMaxTokens; ++place)
        for (const int is_value : {0, 1})
          At(layer, place, is_value) = static_cast<float>(100 * layer + place + 1000 * is_value);
  }
  float& At(int layer, int place, int is_value) {
    const auto block = static_cast<size_t>(tables[static_cast<size_t>(kMaxBlocks + place / 4)]);
    const size_t head = 5 * static_cast<size_t>(layer) + block;
    return values[(2 * head + static_cast<size_t>(is_value)) * view.head_bytes() / sizeof(float) +
                  static_cast<size_t>(place % kBlockSize * view.head_dim)];
  }
  void Move(int from, int to) {
    for (int layer = 0; layer < kLayers; ++layer)
      for (const int is_value : {0, 1}) At(layer, to, is_value) = At(layer, from, is_value);
  }
};

// Slot 1 knows 3 tokens, 40, 41, 42; of five nodes the second and the fifth were accepted, whose
// tokens are 61 and 64; behind them 70 was drawn. Slot 2 yields 80 without drafts, slot 0 nothing.
TEST_F(StageMailTest, OfATreeTheTokensOfItsPathJoinAndTheirKeysMove) {
  const uint64_t step = 5;
  Ints tokens(kSlots * kMaxTokens, 0);
  const size_t of_1 = kMaxTokens;
  const size_t of_2 = size_t{2} * kMaxTokens;
  tokens[of_1] = 40, tokens[of_1 + 1] = 41, tokens[of_1 + 2] = 42;
  tokens[of_2] = 50;
  Ints known = tokens;
  for (size_t node = 0; node < 5; ++node) tokens[of_1 + 3 + node] = static_cast<int>(60 + node);
  Stage first = StageOf(tokens, {0, 3, 1, 0}, 0);
  known[of_1 + 3] = 61, known[of_1 + 4] = 64, known[of_1 + 5] = 70;
  known[of_2 + 1] = 80;
  const Stage last = StageOf(known, {0, 6, 2, 0}, step + 1);
  Buffer slots = Upload(Ints{1, 1, 1, 1, 1, 1, 2, -1});
  Buffer ids = Upload(Ints{61, 9, 64, 9, 9, 70, 80, 9});
  Buffer positions = Upload(Ints{3, 4, 4, 5, 5, 5, 1, 1});
  Buffer accepted = Upload(std::vector<uint64_t>{0b10010, 0, 0, 0, 0, 0, 0, 0});
  Buffer nodes = Upload(Ints{5, 0, 0, 0, 0, 0, 0, 0});
  constexpr int kNumLogits = 8;

  SmallCache cache;
  Buffer table = Upload(cache.tables);
  first.slots.block_tables = Values(table);
  first.slots.max_blocks = SmallCache::kMaxBlocks;
  first.slots.block_size = SmallCache::kBlockSize;
  Buffer memory = Upload(cache.values);
  ops::KvCacheView kv = cache.view;
  kv.data = memory.data();

  Buffer abort = Make(sizeof(uint32_t));
  Buffer box = Make(kNumArenas * sizeof(StageLetter));
  const StageMail mail{.num_boxes = 1,
                       .boxes = {reinterpret_cast<StageLetter*>(box.data())},
                       .abort = reinterpret_cast<const uint32_t*>(abort.data())};
  const StepTensors tensors = {.logit_slots = Values(slots),
                               .logit_positions = Values(positions),
                               .sampled_ids = Values(ids),
                               .accepted = reinterpret_cast<uint64_t*>(accepted.data()),
                               .num_nodes = Values(nodes)};
  ASSERT_TRUE(SendDrawn(mail, last.slots, tensors, kNumLogits, nullptr).ok());
  ASSERT_TRUE(TakeDrawn(mail, first.slots, step, nullptr).ok());
  ASSERT_TRUE(MoveDrawn(mail, kv, /*group=*/0, first.slots, step, kNumLogits, nullptr).ok());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  EXPECT_EQ(Read(first.num_tokens, kSlots), (Ints{0, 6, 2, 0}));
  Ints expected = known;
  expected[of_1 + 6] = 63, expected[of_1 + 7] = 64;  // drafts that nobody looks at
  EXPECT_EQ(Read(first.tokens, kSlots * kMaxTokens), expected);
  cache.Move(4, 3);  // node 1
  cache.Move(7, 4);  // node 4
  std::vector<float> moved(cache.values.size());
  ASSERT_TRUE(device().Copy(moved.data(), memory.data(), moved.size() * sizeof(float)).ok());
  EXPECT_EQ(moved, cache.values);
}

}  // namespace
}  // namespace inflight::executor::cuda
