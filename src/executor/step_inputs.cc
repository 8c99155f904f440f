// SPDX-License-Identifier: Apache-2.0
#include "executor/step_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace inflight::executor {
namespace {

constexpr size_t kAlignment = 64;

// Lays arrays one after another, each 64-byte aligned.
struct Layout {
  size_t end = 0;
  size_t Add(size_t count, size_t element_bytes) {
    const size_t begin = end;
    end = (end + count * element_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }
};

struct Offsets {
  size_t ids, positions, prompt_rows, slot_mapping, tree_masks, cu_seqlens_q, seq_lens_kv,
      logit_rows, row_tables, slot_tables, spares, total;
};

Offsets ComputeOffsets(const MemoryPlan& plan, int max_slots) {
  const auto tokens = static_cast<size_t>(plan.max_num_tokens);
  const auto rows = static_cast<size_t>(plan.max_batch_size);
  const auto table = static_cast<size_t>(plan.max_blocks_per_seq());
  const auto groups = static_cast<size_t>(plan.num_groups());
  Layout layout;
  Offsets at{};
  at.ids = layout.Add(tokens, sizeof(int32_t));
  at.positions = layout.Add(tokens, sizeof(int32_t));
  at.prompt_rows = layout.Add(plan.prompt_rows.max_rows > 0 ? tokens : 0, sizeof(void*));
  at.slot_mapping = layout.Add(tokens, groups * sizeof(int64_t));
  at.tree_masks = layout.Add(plan.max_draft_len > 0 ? tokens : 0, sizeof(int64_t));
  at.cu_seqlens_q = layout.Add(rows + 1, sizeof(int32_t));
  at.seq_lens_kv = layout.Add(rows, sizeof(int32_t));
  at.logit_rows = layout.Add(static_cast<size_t>(plan.max_logits()), sizeof(int32_t));
  at.row_tables = layout.Add(rows * table, groups * sizeof(int32_t));
  at.slot_tables = layout.Add(static_cast<size_t>(max_slots) * table, groups * sizeof(int32_t));
  at.spares = layout.Add(static_cast<size_t>(max_slots), groups * sizeof(int32_t));
  at.total = layout.end;
  return at;
}

}  // namespace

uint64_t StepInputs::Bytes(const MemoryPlan& plan, int max_slots) {
  return ComputeOffsets(plan, max_slots).total;
}

Result<std::unique_ptr<StepInputs>> StepInputs::Create(const MemoryPlan& plan, int max_slots,
                                                       Device& device) {
  std::unique_ptr<StepInputs> inputs(new StepInputs(plan));
  const Offsets at = ComputeOffsets(plan, max_slots);
  ASSIGN_OR_RETURN(inputs->buffer_, Buffer::Allocate(device, "step inputs", at.total));
  std::byte* base = inputs->buffer_.data();
  inputs->ids_ = reinterpret_cast<int32_t*>(base + at.ids);
  inputs->positions_ = reinterpret_cast<int32_t*>(base + at.positions);
  inputs->prompt_rows_ = reinterpret_cast<const void**>(base + at.prompt_rows);
  inputs->tree_masks_ = reinterpret_cast<int64_t*>(base + at.tree_masks);
  inputs->cu_seqlens_q_ = reinterpret_cast<int32_t*>(base + at.cu_seqlens_q);
  inputs->seq_lens_kv_ = reinterpret_cast<int32_t*>(base + at.seq_lens_kv);
  inputs->logit_rows_ = reinterpret_cast<int32_t*>(base + at.logit_rows);
  const int width = plan.max_blocks_per_seq();
  for (int g = 0; g < plan.num_groups(); ++g) {
    inputs->slot_mappings_.push_back(reinterpret_cast<int64_t*>(base + at.slot_mapping) +
                                     int64_t{g} * plan.max_num_tokens);
    inputs->row_tables_.push_back(reinterpret_cast<int32_t*>(base + at.row_tables) +
                                  int64_t{g} * plan.max_batch_size * width);
    inputs->tables_.push_back(
        {.blocks =
             reinterpret_cast<int32_t*>(base + at.slot_tables) + int64_t{g} * max_slots * width,
         .spares = reinterpret_cast<int32_t*>(base + at.spares) + int64_t{g} * max_slots,
         .max_blocks = width,
         .block_size = plan.block_size,
         .group = g});
  }
  return inputs;
}

Result<model::Batch> StepInputs::Prepare(const scheduler::StepPlan& plan,
                                         std::span<const SlotTokens> slots,
                                         const PromptTables& tables) {
  const int width = plan_.max_blocks_per_seq();
  int num_tokens = 0;
  int num_logits = 0;
  bool has_prompt_rows = false;
  bool has_trees = false;
  const TokenId first_row_id = plan_.prompt_rows.first_id();
  cu_seqlens_q_[0] = 0;
  for (int r = 0; r < plan.num_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    const auto& [tokens, drafts, tree] = slots[static_cast<size_t>(row.slot)];
    const auto known = static_cast<int>(tokens.size());
    const int num_drafts = row.num_draft_tokens;
    const int first =
        row.is_prefill != 0 ? row.first_position : known + num_drafts - row.num_query_tokens;
    const int end = first + row.num_query_tokens;
    if (first < 0 || end - num_drafts > known || num_drafts > std::ssize(drafts) ||
        num_tokens + row.num_query_tokens > plan_.max_num_tokens)
      return Internal(
          fmt::format("step {}: row {} wants tokens [{}, {}) of slot {}, which knows {}",
                      plan.step_id, r, first, end, row.slot, known));
    const bool is_tree = tree != nullptr && num_drafts > 0;
    if (is_tree && !std::exchange(has_trees, true))
      std::fill_n(tree_masks_, plan_.max_num_tokens, 0);
    PlaceRow(r, row.slot, {.first = first, .end = end, .first_token = num_tokens});
    for (int place = first; place < end; ++place, ++num_tokens) {
      const TokenId id = place < known ? tokens[static_cast<size_t>(place)]
                                       : drafts[static_cast<size_t>(place - known)];
      ids_[num_tokens] = id;
      if (id >= first_row_id) {
        if (!std::exchange(has_prompt_rows, true))
          std::fill_n(prompt_rows_, plan_.max_num_tokens, nullptr);
        prompt_rows_[num_tokens] = tables.RowOf(row.slot, id);
      }
      positions_[num_tokens] = place;
      if (is_tree && place >= known) {
        const int node = place - known;
        positions_[num_tokens] = known - 1 + (*tree)[node].depth;
        tree_masks_[num_tokens] = tree->Mask(node, num_drafts, end);
      }
    }
    cu_seqlens_q_[r + 1] = num_tokens;
    seq_lens_kv_[r] = end;
    if (row.yields == 0) continue;
    for (int i = num_drafts; i >= 0; --i) logit_rows_[num_logits++] = num_tokens - 1 - i;
  }
  model::Batch batch{
      .ids = {ids_, DType::kI32, {num_tokens}},
      .paged = {.num_rows = plan.num_rows,
                .num_tokens = num_tokens,
                .cu_seqlens_q = {cu_seqlens_q_, DType::kI32, {plan.num_rows + 1}},
                .seq_lens_kv = {seq_lens_kv_, DType::kI32, {plan.num_rows}},
                .positions = {positions_, DType::kI32, {num_tokens}},
                .slot_mapping = {slot_mappings_[0], DType::kI64, {num_tokens}},
                .block_tables = {row_tables_[0], DType::kI32, {plan.num_rows, width}}},
      .logit_rows = {logit_rows_, DType::kI32, {num_logits}},
      .prompt_rows = has_prompt_rows ? prompt_rows_ : nullptr,
  };
  if (has_trees) batch.paged.tree_masks = {tree_masks_, DType::kI64, {num_tokens}};
  for (size_t g = 1; g < tables_.size(); ++g) {
    ops::PagedBatch& paged = batch.other_groups.emplace_back().paged;
    paged = batch.paged;
    paged.slot_mapping.data = slot_mappings_[g];
    paged.block_tables.data = row_tables_[g];
  }
  return batch;
}

void StepInputs::PlaceRow(int row, scheduler::SlotId slot, const RowPlaces& places) {
  const int block_size = plan_.block_size;
  for (size_t g = 0; g < tables_.size(); ++g) {
    const int32_t* const table = tables_[g].Of(slot);
    int64_t* mapping = slot_mappings_[g] + places.first_token;
    for (int place = places.first; place < places.end; ++place)
      *mapping++ = int64_t{table[place / block_size]} * block_size + place % block_size;
    std::copy_n(table, kv_cache::BlocksFor(places.end, block_size),
                row_tables_[g] + int64_t{row} * plan_.max_blocks_per_seq());
  }
}

}  // namespace inflight::executor
