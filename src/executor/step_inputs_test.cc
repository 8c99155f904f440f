// SPDX-License-Identifier: Apache-2.0
#include "executor/step_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::executor {
namespace {

using ::testing::ElementsAre;

constexpr int kBlock = 16;

template <typename T>
std::vector<T> Values(const TensorView& view, int64_t begin, int64_t count) {
  const auto* const data = view.as<const T>() + begin;
  return {data, data + count};
}

void Update(scheduler::StepPlan* plan, int slot, int group, int first_idx,
            const std::vector<scheduler::BlockId>& blocks) {
  plan->updates[static_cast<size_t>(plan->num_updates++)] = {
      .slot = slot,
      .group = static_cast<int16_t>(group),
      .num_blocks = static_cast<int16_t>(blocks.size()),
      .first_idx = first_idx,
      .offset = plan->num_block_ids};
  for (const scheduler::BlockId block : blocks)
    plan->block_ids[static_cast<size_t>(plan->num_block_ids++)] = block;
}

// Slot 1 decodes its 34th token, slot 0 computes the places [16, 20) of a prompt. The second group
// has given the first block of slot 1 back.
TEST(StepInputsTest, EachKvGroupHasItsPlacesAndTables) {
  MemoryPlan plan;
  plan.max_seq_len = 64;
  plan.block_size = kBlock;
  plan.max_batch_size = 4;
  plan.max_num_tokens = 8;
  plan.other_groups = {{.window = 16}};
  const auto device = Device::Cpu(1);
  auto inputs = StepInputs::Create(plan, /*max_slots=*/4, *device);
  ASSERT_TRUE(inputs.ok()) << inputs.status().ToString();
  PromptTables tables(*device, {}, 4);

  scheduler::StepPlan step;
  step.num_rows = 2;
  step.num_decode_rows = 1;
  step.rows[0] = {.slot = 1, .num_query_tokens = 1, .first_position = 33, .yields = 1};
  step.rows[1] = {.slot = 0, .num_query_tokens = 4, .first_position = 16, .is_prefill = 1};
  Update(&step, 1, /*group=*/0, 0, {5, 6, 7});
  Update(&step, 1, /*group=*/1, 0, {-1, 2, 9});
  Update(&step, 0, /*group=*/0, 0, {3, 4});
  Update(&step, 0, /*group=*/1, 0, {8, 1});
  for (const SlotTables& of_group : (*inputs)->all_tables()) of_group.Apply(step);

  std::vector<SlotTokens> slots(4);
  slots[1].tokens.assign(34, 7);
  slots[0].tokens.assign(30, 6);
  const auto batch = (*inputs)->Prepare(step, slots, tables);
  ASSERT_TRUE(batch.ok()) << batch.status().ToString();
  ASSERT_EQ(batch->other_groups.size(), 1U);
  const ops::PagedBatch& first = batch->paged;
  const ops::PagedBatch& second = batch->other_groups[0].paged;
  EXPECT_THAT(Values<int64_t>(first.slot_mapping, 0, 5),
              ElementsAre(7 * 16 + 1, 4 * 16, 4 * 16 + 1, 4 * 16 + 2, 4 * 16 + 3));
  EXPECT_THAT(Values<int64_t>(second.slot_mapping, 0, 5),
              ElementsAre(9 * 16 + 1, 1 * 16, 1 * 16 + 1, 1 * 16 + 2, 1 * 16 + 3));
  EXPECT_EQ(first.block_tables.shape[1], 4);
  EXPECT_THAT(Values<int32_t>(first.block_tables, 0, 3), ElementsAre(5, 6, 7));
  EXPECT_THAT(Values<int32_t>(first.block_tables, 4, 2), ElementsAre(3, 4));
  EXPECT_THAT(Values<int32_t>(second.block_tables, 0, 3), ElementsAre(-1, 2, 9));
  EXPECT_THAT(Values<int32_t>(second.block_tables, 4, 2), ElementsAre(8, 1));
  EXPECT_EQ(second.positions.data, first.positions.data);
  EXPECT_EQ(second.num_tokens, 5);
}

TEST(StepInputsTest, OneKvGroupTakesWhatItTook) {
  MemoryPlan plan;
  plan.max_seq_len = 64;
  plan.block_size = kBlock;
  plan.max_batch_size = 4;
  plan.max_num_tokens = 8;
  const uint64_t one = StepInputs::Bytes(plan, 4);
  plan.other_groups.resize(1);
  // 8 places of 8 bytes, 4 rows and 4 slots of 4 blocks, 4 spares, each in lines of 64 bytes.
  EXPECT_EQ(StepInputs::Bytes(plan, 4) - one, 64U + 64 + 64 + 0)
      << "the spares of both are in one line";
}

}  // namespace
}  // namespace inflight::executor
