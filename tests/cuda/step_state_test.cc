// SPDX-License-Identifier: Apache-2.0
// What a step's inputs are derived to on the device, against the few lines that say what they ought
// to be; and what launching costs.
#include "executor/cuda/step_state.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "base/status_macros.h"
#include "executor/cuda/step_graphs.h"
#include "gpu_test.h"

namespace inflight::executor::cuda {
namespace {

MemoryPlan SmallPlan() {
  MemoryPlan plan;
  plan.device = DeviceKind::kCuda;
  plan.block_size = 16;
  plan.max_batch_size = 6;
  plan.max_slots = 8;
  plan.max_num_tokens = 64;
  plan.max_seq_len = 100;
  plan.num_blocks = 40;
  return plan;
}

class StepStateTest : public gpu::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    state_ = gpu::Must(StepState::Create(SmallPlan(), device()));
    cudaDeviceSynchronize();
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  void TearDown() override {
    if (stream_ == nullptr) return;
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    cudaStreamDestroy(stream_);
  }

  template <typename T>
  std::vector<T> Read(const T* data, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    gpu::Must(device().Copy(values.data(), data, count * sizeof(T)));
    return values;
  }

  // `known` tokens: 1000 * slot + position.
  void SetUpSlot(int slot, int known) {
    const auto tokens = state_->host_tokens(slot);
    for (int p = 0; p < known; ++p) tokens[static_cast<size_t>(p)] = 1000 * slot + p;
    gpu::Must(state_->SetUpSlot(slot, known, /*prompt_table=*/nullptr, stream_));
  }

  std::unique_ptr<StepState> state_;
  cudaStream_t stream_ = nullptr;
};

void AddRow(scheduler::StepPlan* plan, scheduler::PlanRow row, int first_idx = 0,
            const std::vector<int>& blocks = {}) {
  if (!blocks.empty()) {
    plan->updates[static_cast<size_t>(plan->num_updates++)] = {
        .slot = row.slot,
        .num_blocks = static_cast<int16_t>(blocks.size()),
        .first_idx = first_idx,
        .offset = plan->num_block_ids};
    for (const int block : blocks)
      plan->block_ids[static_cast<size_t>(plan->num_block_ids++)] = block;
  }
  plan->rows[static_cast<size_t>(plan->num_rows++)] = row;
  plan->num_tokens += row.num_query_tokens;
  plan->num_decode_rows += row.is_prefill != 0 ? 0 : 1;
  plan->num_yields += row.yields;
}

TEST_F(StepStateTest, MixedRowsAreDerived) {
  SetUpSlot(2, 17);
  SetUpSlot(5, 40);
  SetUpSlot(1, 33);
  scheduler::StepPlan plan;
  AddRow(&plan, {.slot = 2, .num_query_tokens = 1, .first_position = 16, .yields = 1}, 0, {7, 9});
  AddRow(&plan, {.slot = 5, .num_query_tokens = 20, .first_position = 10, .is_prefill = 1}, 0,
         {20, 21});
  AddRow(&plan,
         {.slot = 1, .num_query_tokens = 3, .first_position = 30, .is_prefill = 1, .yields = 1}, 0,
         {30, 31, 32});
  const StepShape shape = state_->Pack(plan, &state_->arena(0));
  EXPECT_EQ(shape.num_tokens, 24);
  EXPECT_EQ(shape.num_logits, 2);
  gpu::Must(state_->Begin(shape, stream_));

  const StepTensors& t = state_->tensors();
  EXPECT_EQ(Read(t.cu_seqlens_q, 4), (std::vector<int32_t>{0, 1, 21, 24}));
  EXPECT_EQ(Read(t.seq_lens_kv, 3), (std::vector<int32_t>{17, 30, 33}));
  EXPECT_EQ(Read(t.table_rows, 3), (std::vector<int32_t>{2, 5, 1}));
  EXPECT_EQ(Read(t.logit_rows, 2), (std::vector<int32_t>{0, 23}));
  EXPECT_EQ(Read(t.logit_slots, 2), (std::vector<int32_t>{2, 1}));
  std::vector<int32_t> ids{2016}, positions{16};
  std::vector<int64_t> slots{10 * 16};  // block 9 is the device's 10
  const auto add = [&](int slot, int begin, int end, const std::vector<int>& blocks) {
    for (int p = begin; p < end; ++p) {
      ids.push_back(1000 * slot + p);
      positions.push_back(p);
      slots.push_back((blocks[static_cast<size_t>(p / 16)] + 1) * 16 + p % 16);
    }
  };
  add(5, 10, 30, {20, 21});
  add(1, 30, 33, {30, 31, 32});
  EXPECT_EQ(Read(t.ids, 24), ids);
  EXPECT_EQ(Read(t.positions, 24), positions);
  EXPECT_EQ(Read(t.slot_mapping, 24), slots);
  // Entries without a block are the scratch block.
  const SlotState& s = state_->slots();
  EXPECT_EQ(s.max_blocks, 7);
  EXPECT_EQ(Read(s.block_tables + 2 * 7, 7), (std::vector<int32_t>{8, 10, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Read(s.block_tables + 3 * 7, 7), (std::vector<int32_t>(7)));
  // Set up again, nothing of the sequence before is left.
  SetUpSlot(2, 3);
  EXPECT_EQ(Read(s.block_tables + 2 * 7, 7), (std::vector<int32_t>(7)));
  EXPECT_EQ(Read(s.num_tokens + 2, 1), (std::vector<int32_t>{3}));
}

TEST_F(StepStateTest, GraphsFillUpWithRowsOfTheScratchSlotAndTakeTheirArenaByTheCount) {
  const SlotState& s = state_->slots();
  const StepTensors& t = state_->tensors();
  int num_enqueued = 0;
  StepGraphs graphs(GraphShapes(6, 60), stream_, [&](const StepShape& shape, StepVariant) {
    ++num_enqueued;
    RETURN_IF_ERROR(state_->Begin(shape, stream_));
    return state_->End(shape, stream_);
  });
  ASSERT_EQ(graphs.shapes().size(), 7U);
  EXPECT_EQ(graphs.shapes()[4].num_rows, 6);
  EXPECT_EQ(graphs.shapes()[6].num_tokens, 32);
  for (int slot = 0; slot < 5; ++slot) SetUpSlot(slot, 10 + slot);
  for (uint64_t step = 0; step < 10; ++step) {
    // Rows of other slots each time; all know block 3 + slot.
    scheduler::StepPlan plan;
    for (int r = 0; r < 5; ++r) {
      const auto slot = static_cast<int>((static_cast<uint64_t>(r) + step) % 5);
      AddRow(&plan, {.slot = slot, .num_query_tokens = 1, .yields = 1}, 0,
             step == 0 ? std::vector<int>{3 + slot} : std::vector<int>{});
    }
    state_->Pack(plan, &state_->arena(step));
    gpu::Must(graphs.Launch(graphs.Find(StepShape::Decode(5)), StepVariant::kGreedy));
    std::vector<int32_t> slots, lens, ids, logit_slots;
    std::vector<int64_t> mapping;
    for (uint64_t r = 0; r < 5; ++r) {
      const auto slot = static_cast<int32_t>((r + step) % 5);
      slots.push_back(slot);
      logit_slots.push_back(slot);
      lens.push_back(10 + slot);
      ids.push_back(1000 * slot + 9 + slot);
      mapping.push_back((4 + slot) * 16 + 9 + slot);
    }
    slots.push_back(s.scratch_slot());
    logit_slots.push_back(-1);
    lens.push_back(1);
    ids.push_back(0);
    mapping.push_back(0);
    EXPECT_EQ(Read(t.table_rows, 6), slots) << step;
    EXPECT_EQ(Read(t.logit_slots, 6), logit_slots) << step;
    EXPECT_EQ(Read(t.seq_lens_kv, 6), lens) << step;
    EXPECT_EQ(Read(t.ids, 6), ids) << step;
    EXPECT_EQ(Read(t.slot_mapping, 6), mapping) << step;
    EXPECT_EQ(Read(t.cu_seqlens_q, 7), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(Read(t.logit_rows, 6), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(state_->num_done(), step + 1);
    EXPECT_GT(state_->outputs(step).end_ns, state_->outputs(step).begin_ns);
  }
  EXPECT_EQ(num_enqueued, 1) << "recorded once";
}

TEST_F(StepStateTest, PromptsAreFilledUpByOneRowOfTheScratchSlot) {
  const SlotState& s = state_->slots();
  const StepTensors& t = state_->tensors();
  SetUpSlot(3, 20);
  SetUpSlot(4, 9);
  scheduler::StepPlan plan;
  AddRow(&plan, {.slot = 3, .num_query_tokens = 12, .is_prefill = 1}, 0, {5});
  AddRow(&plan, {.slot = 4, .num_query_tokens = 9, .is_prefill = 1, .yields = 1}, 0, {6});
  for (const int tokens : {32, 21}) {
    const StepShape larger = StepShape::Prefill(4, tokens);
    const StepShape shape = state_->Pack(plan, &state_->arena(0));
    EXPECT_TRUE(larger.Holds(shape));
    gpu::Must(state_->Begin(larger, stream_));
    EXPECT_EQ(Read(t.table_rows, 5),
              (std::vector<int32_t>{3, 4, s.scratch_slot(), s.scratch_slot(), s.scratch_slot()}));
    EXPECT_EQ(Read(t.cu_seqlens_q, 6), (std::vector<int32_t>{0, 12, 21, tokens, tokens, tokens}));
    EXPECT_EQ(Read(t.seq_lens_kv, 5), (std::vector<int32_t>{12, 9, tokens - 21, 0, 0}));
    EXPECT_EQ(Read(t.logit_rows, 4), (std::vector<int32_t>{20, 0, 0, 0}));
    EXPECT_EQ(Read(t.logit_slots, 4), (std::vector<int32_t>{4, -1, -1, -1}));
    std::vector<int32_t> ids, positions;
    std::vector<int64_t> slots;
    for (int p = 0; p < tokens; ++p) {
      positions.push_back(p < 12 ? p : p < 21 ? p - 12 : p - 21);
      ids.push_back(p < 12 ? 3000 + p : p < 21 ? 4000 + p - 12 : 0);
      slots.push_back((p < 12 ? 6 : p < 21 ? 7 : 0) * 16 + positions.back());
    }
    EXPECT_EQ(Read(t.ids, ids.size()), ids);
    EXPECT_EQ(Read(t.positions, ids.size()), positions);
    EXPECT_EQ(Read(t.slot_mapping, ids.size()), slots);
  }
  EXPECT_FALSE(StepShape::Prefill(1, 32).Holds(state_->Pack(plan, &state_->arena(0))));
  EXPECT_FALSE(StepShape::Prefill(4, 20).Holds(state_->Pack(plan, &state_->arena(0))));
  EXPECT_FALSE(StepShape::Decode(6).Holds(state_->Pack(plan, &state_->arena(0))));
}

TEST_F(StepStateTest, OutputsAreThoseOfTheStep) {
  SetUpSlot(0, 5);
  const StepTensors& t = state_->tensors();
  for (uint64_t step = 0; step < 6; ++step) {
    scheduler::StepPlan plan;
    AddRow(&plan, {.slot = 0, .num_query_tokens = 1, .yields = 1});
    const StepShape shape = state_->Pack(plan, &state_->arena(step));
    gpu::Must(state_->Begin(shape, stream_));
    const auto id = static_cast<int32_t>(100 + step);
    const float log_prob = -0.5F * static_cast<float>(step);
    gpu::Must(device().Copy(t.sampled_ids, &id, sizeof(id)));
    gpu::Must(device().Copy(t.log_probs, &log_prob, sizeof(log_prob)));
    cudaDeviceSynchronize();
    gpu::Must(state_->End(shape, stream_));
    while (state_->num_done() <= step) {
    }
    EXPECT_EQ(state_->outputs(step).ids[0], id);
    EXPECT_EQ(state_->outputs(step).log_probs[0], log_prob);
  }
}

// Many block entries: more than stand in the first line, more than threads.
TEST_F(StepStateTest, LongTablesAreWritten) {
  for (const int count : {13, 14, 15, 40, 2000}) {
    StepArena& arena = state_->arena(0);
    scheduler::StepPlan plan;
    const SlotState& s = state_->slots();
    std::vector<int32_t> expected(static_cast<size_t>(s.num_slots * s.max_blocks));
    for (int slot = 0; slot < s.scratch_slot(); ++slot) SetUpSlot(slot, 90);
    for (int i = 0, slot = 0; i < count; ++i) {  // one entry again and again: the last one counts
      const int idx = i / s.scratch_slot() % s.max_blocks;
      scheduler::BlockTableUpdate& update =
          plan.updates[static_cast<size_t>(plan.num_updates % 1024)];
      if (plan.num_updates < 1024) {
        update = {.slot = slot, .num_blocks = 1, .first_idx = idx, .offset = plan.num_updates};
        plan.block_ids[static_cast<size_t>(plan.num_updates)] = slot * 7 + idx;
        expected[static_cast<size_t>(slot * s.max_blocks + idx)] = slot * 7 + idx + 1;
        ++plan.num_updates;
      }
      slot = (slot + 1) % s.scratch_slot();
    }
    plan.num_block_ids = plan.num_updates;
    AddRow(&plan, {.slot = 3, .num_query_tokens = 1, .yields = 1});
    const StepShape shape = state_->Pack(plan, &arena);
    gpu::Must(state_->Begin(shape, stream_));
    EXPECT_EQ(Read(s.block_tables, expected.size()), expected) << count;
    const int block = expected[static_cast<size_t>(3 * s.max_blocks + 89 / 16)];
    EXPECT_EQ(Read(state_->tensors().slot_mapping, 1),
              (std::vector<int64_t>{int64_t{block} * 16 + 89 % 16}));
  }
}

// Two beams after the prompt, which the first one computed: both go on from there.
TEST_F(StepStateTest, BeamsArePlacedWhereTheHostSays) {
  SetUpSlot(1, 33);
  scheduler::StepPlan plan;
  AddRow(&plan, {.slot = 1, .num_query_tokens = 33, .is_prefill = 1, .yields = 1}, 0, {4, 5, 6});
  for (const int slot : {1, 3}) {
    plan.updates[static_cast<size_t>(plan.num_updates++)] = {
        .slot = slot,
        .num_blocks = 1,
        .first_idx = scheduler::BlockTableUpdate::kSpare,
        .offset = plan.num_block_ids};
    plan.block_ids[static_cast<size_t>(plan.num_block_ids++)] = 20 + slot;
  }
  const SlotState& s = state_->slots();
  const auto others = Read(s.block_tables, static_cast<size_t>(s.max_blocks));
  gpu::Must(state_->Begin(state_->Pack(plan, &state_->arena(0)), stream_));
  const std::vector<int32_t> slots = {1, 3};
  std::vector<kv_cache::BlockCopy> copies;
  state_->host_tables().Reorder(slots, std::vector<int32_t>{0, 0}, /*num_tokens=*/33, &copies);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].from, 7);
  EXPECT_EQ(copies[0].to, 24);
  EXPECT_EQ(copies[0].num_tokens, 1);
  gpu::Must(state_->PlaceBeams(slots, std::vector<int32_t>{70, 71}, /*num_tokens=*/34,
                               /*with_tokens=*/false, stream_));
  EXPECT_EQ(Read(s.block_tables, static_cast<size_t>(s.max_blocks)), others) << "of slot 0";

  scheduler::StepPlan next;
  for (const int slot : slots)
    AddRow(&next, {.slot = slot, .num_query_tokens = 1, .first_position = 33, .yields = 1});
  gpu::Must(state_->Begin(state_->Pack(next, &state_->arena(0)), stream_));
  const StepTensors& t = state_->tensors();
  EXPECT_EQ(Read(t.ids, 2), (std::vector<int32_t>{70, 71}));
  EXPECT_EQ(Read(t.positions, 2), (std::vector<int32_t>{33, 33}));
  EXPECT_EQ(Read(t.slot_mapping, 2), (std::vector<int64_t>{7 * 16 + 1, 24 * 16 + 1}));
  EXPECT_EQ(Read(t.seq_lens_kv, 2), (std::vector<int32_t>{34, 34}));
  const auto table = Read(s.block_tables + 3 * s.max_blocks, 3);
  EXPECT_EQ(table, (std::vector<int32_t>{5, 6, 24})) << "of beam 1";

  std::vector<int32_t> tokens(34);
  for (const int slot : slots) {
    std::iota(tokens.begin(), tokens.end(), 1000 * slot);
    std::ranges::copy(tokens, state_->host_tokens(slot).begin());
  }
  gpu::Must(state_->PlaceBeams(slots, std::vector<int32_t>{1033, 3033}, /*num_tokens=*/34,
                               /*with_tokens=*/true, stream_));
  EXPECT_EQ(Read(s.tokens + 3 * s.max_tokens, tokens.size()), tokens) << "of beam 1";
  std::iota(tokens.begin(), tokens.end(), 1000);
  EXPECT_EQ(Read(s.tokens + 1 * s.max_tokens, tokens.size()), tokens) << "of beam 0";
}

// The second KV group has given back the first block of slot 2, and has other blocks than the
// first.
TEST_F(StepStateTest, EachKvGroupHasItsPlacesAndTables) {
  MemoryPlan memory = SmallPlan();
  memory.other_groups = {{.window = 16, .num_blocks = 12}};
  state_ = gpu::Must(StepState::Create(memory, device()));
  cudaDeviceSynchronize();
  SetUpSlot(2, 34);
  SetUpSlot(5, 40);
  scheduler::StepPlan plan;
  const auto update = [&](int slot, int group, const std::vector<int>& blocks) {
    plan.updates[static_cast<size_t>(plan.num_updates++)] = {
        .slot = slot,
        .group = static_cast<int16_t>(group),
        .num_blocks = static_cast<int16_t>(blocks.size()),
        .first_idx = 0,
        .offset = plan.num_block_ids};
    for (const int block : blocks)
      plan.block_ids[static_cast<size_t>(plan.num_block_ids++)] = block;
  };
  update(2, 0, {7, 9, 11});
  update(2, 1, {-1, 3, 4});
  update(5, 0, {20, 21});
  update(5, 1, {0, 1});
  AddRow(&plan, {.slot = 2, .num_query_tokens = 1, .first_position = 33, .yields = 1});
  AddRow(&plan, {.slot = 5, .num_query_tokens = 2, .first_position = 15, .is_prefill = 1});
  const StepShape shape = state_->Pack(plan, &state_->arena(0));
  gpu::Must(state_->Begin(shape, stream_));
  const model::Batch batch = state_->BatchOf(shape);
  ASSERT_EQ(batch.other_groups.size(), 1U);
  const ops::PagedBatch& second = batch.other_groups[0].paged;
  // Device ids are the plan's plus one.
  EXPECT_EQ(Read(batch.paged.slot_mapping.as<int64_t>(), 3),
            (std::vector<int64_t>{12 * 16 + 1, 21 * 16 + 15, 22 * 16}));
  EXPECT_EQ(Read(second.slot_mapping.as<int64_t>(), 3),
            (std::vector<int64_t>{5 * 16 + 1, 1 * 16 + 15, 2 * 16}));
  const SlotState& s = state_->slots();
  const auto table_of = [&](const ops::PagedBatch& paged, int slot) {
    return Read(paged.block_tables.as<int32_t>() + slot * s.max_blocks, 3);
  };
  EXPECT_EQ(table_of(batch.paged, 2), (std::vector<int32_t>{8, 10, 12}));
  EXPECT_EQ(table_of(second, 2), (std::vector<int32_t>{0, 4, 5}));
  EXPECT_EQ(table_of(second, 5), (std::vector<int32_t>{1, 2, 0}));
  // A search of two beams: each group has its tables on the host, and the device takes both.
  for (int g = 0; g < 2; ++g) {
    std::vector<kv_cache::BlockCopy> copies;
    state_->host_tables(g).Reorder(std::vector<int32_t>{2, 5}, std::vector<int32_t>{0, 0},
                                   /*num_tokens=*/32, &copies);
    EXPECT_TRUE(copies.empty()) << "all blocks are full";
  }
  gpu::Must(state_->PlaceBeams(std::vector<int32_t>{2, 5}, std::vector<int32_t>{70, 71},
                               /*num_tokens=*/33, /*with_tokens=*/false, stream_));
  EXPECT_EQ(table_of(batch.paged, 5), (std::vector<int32_t>{8, 10, 0}));
  EXPECT_EQ(table_of(second, 5), (std::vector<int32_t>{0, 4, 0}));
  // Set up again, nothing of the sequence before is left.
  SetUpSlot(2, 3);
  EXPECT_EQ(table_of(batch.paged, 2), (std::vector<int32_t>(3)));
  EXPECT_EQ(table_of(second, 2), (std::vector<int32_t>(3)));
}

TEST_F(StepStateTest, DraftsAreFoundAndAcceptedAsFarAsTheyAreDrawn) {
  MemoryPlan memory = SmallPlan();
  memory.drafts = DraftSource::kNgram;
  memory.max_draft_len = 3;
  state_ = gpu::Must(StepState::Create(memory, device()));
  cudaDeviceSynchronize();
  SetUpSlot(4, 20);
  SetUpSlot(1, 35);
  std::ranges::copy(std::vector<int32_t>{5, 6, 7, 8, 5, 6}, state_->host_tokens(2).begin());
  gpu::Must(state_->SetUpSlot(2, 6, /*prompt_table=*/nullptr, stream_));
  scheduler::StepPlan plan;
  const auto decode = [](int slot, int num_drafts) {
    return scheduler::PlanRow{.slot = slot,
                              .num_query_tokens = 1 + num_drafts,
                              .yields = 1,
                              .num_draft_tokens = static_cast<uint8_t>(num_drafts)};
  };
  AddRow(&plan, decode(2, 3), 0, {7});
  AddRow(&plan, decode(4, 2), 0, {8, 9});  // its tokens never repeat
  AddRow(&plan,
         {.slot = 1,
          .num_query_tokens = 5,
          .first_position = 30,
          .is_prefill = 1,
          .yields = 1,
          .num_draft_tokens = 2},
         0, {20, 21, 22});
  const StepShape shape = state_->Pack(plan, &state_->arena(0));
  EXPECT_EQ(shape.num_decode_rows, 7);
  EXPECT_EQ(shape.num_rows, 8);
  EXPECT_EQ(shape.num_tokens, 12);
  EXPECT_EQ(shape.num_logits, 10);
  gpu::Must(state_->LookUpDrafts(plan, /*guesses=*/{}, stream_));
  gpu::Must(state_->Begin(shape, stream_));
  const StepTensors& t = state_->tensors();
  EXPECT_EQ(Read(t.ids, 12),
            (std::vector<int32_t>{6, 7, 8, 5, 4019, 0, 0, 1030, 1031, 1032, 1033, 1034}));
  EXPECT_EQ(Read(t.positions, 12),
            (std::vector<int32_t>{5, 6, 7, 8, 19, 0, 0, 30, 31, 32, 33, 34}));
  EXPECT_EQ(Read(t.seq_lens_kv, 8), (std::vector<int32_t>{6, 7, 8, 9, 20, 1, 1, 35}));
  EXPECT_EQ(Read(t.slot_mapping, 4), (std::vector<int64_t>{133, 134, 135, 136}));
  EXPECT_EQ(Read(t.logit_rows, 10), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 9, 10, 11}));
  EXPECT_EQ(Read(t.logit_slots, 10),
            (std::vector<int32_t>{2, 2, 2, 2, 4, -1, -1, -1, -1, -1}));  // the host draws the last
  EXPECT_EQ(Read(t.logit_positions, 5), (std::vector<int32_t>{6, 7, 8, 9, 20}));

  const std::vector<int32_t> drawn = {7, 8, 9, 10, 50, 0, 0, 0, 0, 0};
  EXPECT_EQ(cudaMemcpyAsync(t.sampled_ids, drawn.data(), drawn.size() * sizeof(int32_t),
                            cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  gpu::Must(state_->End(shape, stream_));
  const SlotState& s = state_->slots();
  const auto num_tokens = Read(s.num_tokens, 8);
  EXPECT_EQ(num_tokens[2], 9);
  EXPECT_EQ(num_tokens[4], 21);
  EXPECT_EQ(Read(s.tokens + 2 * s.max_tokens, 9),
            (std::vector<int32_t>{5, 6, 7, 8, 5, 6, 7, 8, 9}));
  EXPECT_EQ(Read(s.tokens + 4 * s.max_tokens + 20, 1), (std::vector<int32_t>{50}));
  const StepOutputs& out = state_->outputs(0);
  EXPECT_EQ(out.num_yielded[0], 3);
  EXPECT_EQ(out.num_drafted[0], 3);
  EXPECT_EQ(out.num_yielded[4], 1);
  EXPECT_EQ(out.num_drafted[4], 0);
}

// Of six rows: a guess the first of whose ids the text has taken since; one that it has not; one
// that is used up; none; one longer than there are drafts; one that is shorter.
TEST_F(StepStateTest, WhatIsLeftOfAGuessIsDraftedWhereTheTextWentOnLikeThat) {
  MemoryPlan memory = SmallPlan();
  memory.drafts = DraftSource::kSuffix;
  memory.max_draft_len = 3;
  state_ = gpu::Must(StepState::Create(memory, device()));
  cudaDeviceSynchronize();
  const std::vector<int32_t> text = {5, 6, 7, 8, 5, 6};  // 7, 8, 5 come next by n-grams
  scheduler::StepPlan plan;
  for (int slot = 1; slot <= 6; ++slot) {
    std::ranges::copy(text, state_->host_tokens(slot).begin());
    gpu::Must(state_->SetUpSlot(slot, 6, /*prompt_table=*/nullptr, stream_));
    AddRow(&plan, {.slot = slot, .num_query_tokens = 4, .yields = 1, .num_draft_tokens = 3}, 0,
           {slot});
  }
  PinnedBuffer pinned = gpu::Must(PinnedBuffer::Allocate(device(), 1024));
  auto* const rows = reinterpret_cast<Guess*>(pinned.data());
  auto* const ids = reinterpret_cast<int32_t*>(pinned.data() + 512);
  std::ranges::copy(std::vector<int32_t>{5, 6, 20, 21, 22, 23}, ids);
  rows[0] = {.num_known = 4, .first_id = 0, .num_ids = 6};
  rows[1] = {.num_known = 3, .first_id = 0, .num_ids = 6};
  rows[2] = {.num_known = 4, .first_id = 0, .num_ids = 2};
  rows[3] = {.num_known = 6, .first_id = 0, .num_ids = 0};
  rows[4] = {.num_known = 6, .first_id = 2, .num_ids = 4};
  rows[5] = {.num_known = 5, .first_id = 1, .num_ids = 2};
  gpu::Must(state_->LookUpDrafts(plan, {.rows = rows, .ids = ids}, stream_));
  const SlotState& s = state_->slots();
  const auto drafts = [&](int slot) { return Read(s.tokens + slot * s.max_tokens + 6, 3); };
  EXPECT_EQ(drafts(1), (std::vector<int32_t>{20, 21, 22}));
  EXPECT_EQ(drafts(2), (std::vector<int32_t>{7, 8, 5})) << "n-grams";
  EXPECT_EQ(drafts(3), (std::vector<int32_t>{7, 8, 5}));
  EXPECT_EQ(drafts(4), (std::vector<int32_t>{7, 8, 5}));
  EXPECT_EQ(drafts(5), (std::vector<int32_t>{20, 21, 22}));
  EXPECT_EQ(drafts(6), (std::vector<int32_t>{20, -1, -1}));
}

// Figures to look at: what the kernels around a forward pass take, and what a launch costs while
// the step before still runs.
TEST_F(StepStateTest, TimesOfEmptySteps) {
  MemoryPlan plan = SmallPlan();
  plan.max_batch_size = plan.max_num_tokens = 1024;
  plan.max_slots = 1024;
  const auto state = gpu::Must(StepState::Create(plan, device()));
  cudaDeviceSynchronize();
  for (int slot = 0; slot < 1024; ++slot) {
    state->host_tokens(slot)[0] = 1;
    gpu::Must(state->SetUpSlot(slot, 1, /*prompt_table=*/nullptr, stream_));
  }
  using Clock = std::chrono::steady_clock;
  const auto us = [](Clock::duration d) {
    return std::chrono::duration<double, std::micro>(d).count();
  };
  constexpr int kRepeats = 100;
  uint64_t step = 0;
  for (const bool ends : {false, true}) {
    for (const int rows : {1, 64, 256, 1024}) {
      for (const int entries : {0, 14, 40}) {
        if (ends && entries > 0) continue;
        scheduler::StepPlan step_plan;
        for (int r = 0; r < rows; ++r)
          AddRow(&step_plan, {.slot = r, .num_query_tokens = 1, .yields = 1}, 0,
                 r < std::min(rows, entries) ? std::vector<int>{r} : std::vector<int>{});
        const StepShape shape = StepShape::Decode(rows);
        for (uint64_t i = 0; i < kNumArenas; ++i) state->Pack(step_plan, &state->arena(i));
        StepGraphs graphs({shape}, stream_, [&](const StepShape&, StepVariant) {
          for (int i = 0; i < kRepeats; ++i)
            RETURN_IF_ERROR(ends ? state->End(shape, stream_) : state->Begin(shape, stream_));
          return Status::Ok();
        });
        gpu::Must(graphs.Launch(0, StepVariant::kGreedy));
        EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
        const auto begin = Clock::now();
        gpu::Must(graphs.Launch(0, StepVariant::kGreedy));
        EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
        std::printf("%s of %d rows, %d table entries: %.2f us\n", ends ? "end" : "begin", rows,
                    entries, us(Clock::now() - begin) / kRepeats);
      }
    }
  }
  step = state->num_done();
  // Whole steps, as long as a decode step of a large model has kernels.
  StepGraphs graphs({StepShape::Decode(64)}, stream_, [&](const StepShape& shape, StepVariant) {
    RETURN_IF_ERROR(state->Begin(shape, stream_));
    for (int i = 0; i < 300; ++i) RETURN_IF_ERROR(LaunchSpin(0, stream_));
    return state->End(shape, stream_);
  });
  const auto begin = Clock::now();
  gpu::Must(graphs.Record(0, StepVariant::kGreedy));
  std::printf("recording 302 kernels: %.0f us\n", us(Clock::now() - begin));
  std::vector<double> launch, gap, length;
  for (const uint64_t first = step; step < first + 60; ++step) {
    scheduler::StepPlan step_plan;
    for (int r = 0; r < 64; ++r)
      AddRow(&step_plan, {.slot = r, .num_query_tokens = 1, .yields = 1});
    state->Pack(step_plan, &state->arena(step));
    const auto before = Clock::now();
    gpu::Must(graphs.Launch(0, StepVariant::kGreedy));
    launch.push_back(us(Clock::now() - before));
    if (step < first + 2) continue;
    while (state->num_done() < step) {  // of the step before the one just launched
    }
    const StepOutputs& last = state->outputs(step - 1);
    const StepOutputs& before_last = state->outputs(step - 2);
    length.push_back(static_cast<double>(last.end_ns - last.begin_ns) * 1e-3);
    gap.push_back((static_cast<double>(last.begin_ns) - static_cast<double>(before_last.end_ns)) *
                  1e-3);
  }
  for (std::vector<double>* values : {&launch, &gap, &length}) std::ranges::sort(*values);
  std::printf(
      "launch: median %.1f us, largest %.1f us; gap between steps: median %.2f us, "
      "largest %.2f us; steps of %.1f us\n",
      launch[launch.size() / 2], launch.back(), gap[gap.size() / 2], gap.back(),
      length[length.size() / 2]);
}

}  // namespace
}  // namespace inflight::executor::cuda
