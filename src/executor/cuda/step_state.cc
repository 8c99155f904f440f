// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/step_state.h"

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"

namespace inflight::executor::cuda {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr int kFirstBlock = 1;   // of sequences; block 0 is the scratch block
constexpr int kSpareTokens = 4;  // rows in flight of a finished sequence may still append
static_assert(scheduler::StepPlan::kMaxRows + MemoryPlan::kMaxDraftedLogits <= INT16_MAX);

// Places the arrays from `base` on and returns their size; a null base only measures.
uint64_t LayOut(const MemoryPlan& plan, std::byte* base, SlotState& slots, StepTensors& tensors) {
  uint64_t size = 0;
  const auto place = [&]<typename T>(T*& array, int64_t count) {
    array = base == nullptr ? nullptr : reinterpret_cast<T*>(base + size);
    size += (static_cast<uint64_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  };
  slots.num_slots = plan.max_slots + 1;
  const int spare_tokens = kSpareTokens * (1 + plan.max_draft_len);
  slots.max_tokens = (plan.max_seq_len + spare_tokens + 3) / 4 * 4;
  slots.max_blocks = plan.max_blocks_per_seq();
  slots.block_size = plan.block_size;
  slots.num_groups = plan.num_groups();
  tensors.slots_of_group = plan.max_num_tokens;
  const int64_t num_slots = slots.num_slots;
  place(slots.tokens, num_slots * slots.max_tokens);
  place(slots.num_tokens, num_slots);
  place(slots.block_tables, plan.num_groups() * slots.tables_of_group());
  place(slots.num_steps, 1);
  place(slots.begin_ns, 1);
  if (plan.prompt_rows.max_rows > 0) {
    slots.first_row_id = plan.prompt_rows.first_id();
    slots.row_bytes = static_cast<int64_t>(plan.prompt_rows.row_bytes());
    place(slots.prompt_tables, num_slots);
    place(tensors.prompt_rows, plan.max_num_tokens);
  }
  place(tensors.ids, plan.max_num_tokens);
  place(tensors.positions, plan.max_num_tokens);
  place(tensors.slot_mapping, int64_t{plan.num_groups()} * plan.max_num_tokens);
  const int64_t rows = plan.max_logits() + kFillRows;
  place(tensors.cu_seqlens_q, rows + 1);
  place(tensors.seq_lens_kv, rows);
  place(tensors.table_rows, rows);
  place(tensors.first_positions, rows);
  place(tensors.logit_rows, rows);
  place(tensors.context_rows, rows);
  place(tensors.logit_slots, rows);
  if (plan.drafts != DraftSource::kNone) place(tensors.logit_positions, rows);
  if (plan.draft_tree) {
    place(slots.tree, 1);
    place(tensors.tree_shifts, rows * ops::kMaxTreeDepth);
    place(tensors.accepted, rows);
    place(tensors.num_nodes, rows);
  }
  place(tensors.sampled_ids, rows);
  place(tensors.log_probs, rows);
  place(tensors.log_probs_all, rows);
  return size;
}

// `tree` has at most DraftTree::kMaxNodes nodes, none deeper than ops::kMaxTreeDepth.
TreeOnDevice TreeOf(const decoding::DraftTree& tree) {
  static_assert(decoding::DraftTree::kMaxNodes < TreeOnDevice::kMaxDrafts);
  static_assert(decoding::DraftTree::kMaxChoices <= 1 + UINT8_MAX);
  TreeOnDevice out = {};
  for (int i = 0; i < tree.size(); ++i) {
    const decoding::DraftTree::Node& node = tree[i];
    CHECK_LE(node.depth, ops::kMaxTreeDepth);
    out.parents[i + 1] = static_cast<uint8_t>(node.parent + 1);
    out.choices[i + 1] = static_cast<uint8_t>(node.choice);
    out.depths[i + 1] = static_cast<uint8_t>(node.depth);
    // A node of depth d that is node n stands n - (d - 1) places behind its position.
    for (int n = i; n >= 0; n = tree[n].parent)
      out.shifts[i + 1][node.depth - tree[n].depth] = static_cast<uint8_t>(n + 1 - tree[n].depth);
  }
  return out;
}

}  // namespace

uint64_t StepState::Bytes(const MemoryPlan& plan) {
  SlotState slots;
  StepTensors tensors;
  return LayOut(plan, nullptr, slots, tensors);
}

Result<std::unique_ptr<StepState>> StepState::Create(const MemoryPlan& plan, Device& device,
                                                     float forced_acceptance) {
  std::unique_ptr<StepState> state(new StepState());
  ASSIGN_OR_RETURN(state->buffer_, Buffer::Allocate(device, "step inputs", Bytes(plan)));
  LayOut(plan, state->buffer_.data(), state->slots_, state->tensors_);
  state->slots_.forced_acceptance = forced_acceptance;
  if (plan.draft_tree) {
    const TreeOnDevice tree = TreeOf(*plan.draft_tree);
    RETURN_IF_ERROR(
        device.Copy(const_cast<TreeOnDevice*>(state->slots_.tree), &tree, sizeof(tree)));
  }
  state->looks_drafts_up_ =
      plan.drafts == DraftSource::kNgram || plan.drafts == DraftSource::kSuffix;
  const size_t host_tokens = static_cast<size_t>(plan.max_slots) *
                             static_cast<size_t>(state->slots_.max_tokens) * sizeof(int32_t);
  ASSIGN_OR_RETURN(state->tokens_, PinnedBuffer::Allocate(device, host_tokens));
  // As on the device, so that beams are placed by the same offsets.
  const auto num_groups = static_cast<size_t>(plan.num_groups());
  const auto num_entries = static_cast<size_t>(state->slots_.tables_of_group());
  const auto num_spares = static_cast<size_t>(plan.max_slots);
  ASSIGN_OR_RETURN(
      state->tables_memory_,
      PinnedBuffer::Allocate(device, num_groups * (num_entries + num_spares) * sizeof(int32_t)));
  auto* const tables = reinterpret_cast<int32_t*>(state->tables_memory_.data());
  for (size_t g = 0; g < num_groups; ++g)
    state->tables_.push_back({.blocks = tables + g * num_entries,
                              .spares = tables + num_groups * num_entries + g * num_spares,
                              .max_blocks = state->slots_.max_blocks,
                              .block_size = plan.block_size,
                              .first_block = kFirstBlock,
                              .group = static_cast<int>(g)});
  ASSIGN_OR_RETURN(state->arenas_, PinnedBuffer::Allocate(device, kNumArenas * sizeof(StepArena)));
  ASSIGN_OR_RETURN(state->outputs_,
                   PinnedBuffer::Allocate(device, kNumArenas * sizeof(StepOutputs)));
  ASSIGN_OR_RETURN(state->counter_, PinnedBuffer::Allocate(device, kAlignment));
  state->num_done_ = reinterpret_cast<uint64_t*>(state->counter_.data());
  return state;
}

StepShape StepState::Pack(const scheduler::StepPlan& plan, StepArena* arena) const {
  int num_decode_rows = 0;
  for (int r = 0; r < plan.num_decode_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    for (int i = 0; i <= row.num_draft_tokens; ++i)
      arena->decode_rows[num_decode_rows++] = {.slot = static_cast<uint16_t>(row.slot),
                                               .draft = static_cast<uint16_t>(i)};
  }
  int num_tokens = num_decode_rows;
  int num_logits = num_decode_rows;
  for (int r = plan.num_decode_rows; r < plan.num_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    num_tokens += row.num_query_tokens;
    arena->prefill_rows[r - plan.num_decode_rows] = {
        .slot = row.slot,
        .first_position = row.first_position,
        .end_token = num_tokens,
        .logit = static_cast<int16_t>(row.yields != 0 ? num_logits : -1),
        .num_drafts = row.num_draft_tokens};
    if (row.yields != 0) num_logits += 1 + row.num_draft_tokens;
  }
  for (const SlotTables& tables : tables_) tables.Apply(plan);
  int num_entries = 0;
  for (int i = 0; i < plan.num_updates; ++i) {
    const scheduler::BlockTableUpdate& update = plan.updates[static_cast<size_t>(i)];
    if (update.first_idx == scheduler::BlockTableUpdate::kSpare) continue;  // the host's alone
    const auto at =
        static_cast<int32_t>(update.group * slots_.tables_of_group() +
                             int64_t{update.slot} * slots_.max_blocks + update.first_idx);
    for (int b = 0; b < update.num_blocks; ++b) {
      const auto id = static_cast<size_t>(update.offset + b);
      TableEntry& entry = num_entries < StepArena::kFirstEntries
                              ? arena->first_entries[num_entries]
                              : arena->entries[num_entries - StepArena::kFirstEntries];
      entry = {.at = at + b, .block = plan.block_ids[id] + kFirstBlock};
      ++num_entries;
    }
  }
  const int num_rows = num_decode_rows + plan.num_rows - plan.num_decode_rows;
  arena->num_rows = num_rows;
  arena->num_decode_rows = num_decode_rows;
  arena->num_entries = num_entries;
  arena->num_logits = num_logits;
  return {.num_rows = num_rows,
          .num_decode_rows = num_decode_rows,
          .num_tokens = num_tokens,
          .num_logits = num_logits};
}

Status StepState::LookUpDrafts(const scheduler::StepPlan& plan, const Guesses& guesses,
                               cudaStream_t stream) const {
  static_assert(DraftingRows::kMaxRows >= MemoryPlan::kMaxDraftedLogits);
  if (!looks_drafts_up_ && guesses.rows == nullptr) return Status::Ok();
  const DraftingRows rows = DraftingRowsOf(plan);
  return rows.num_rows == 0 ? Status::Ok() : cuda::LookUpDrafts(rows, guesses, slots_, stream);
}

Status StepState::PlaceBeams(std::span<const scheduler::SlotId> slots,
                             std::span<const int32_t> last_tokens, int num_tokens, bool with_tokens,
                             cudaStream_t stream) const {
  CHECK_LE(slots.size(), static_cast<size_t>(BeamPlaces::kMaxBeams));
  BeamPlaces places = {.num_beams = static_cast<int>(slots.size()), .num_tokens = num_tokens};
  std::ranges::copy(slots, places.slots);
  std::ranges::copy(last_tokens, places.last_tokens);
  const auto* const tokens = reinterpret_cast<const int32_t*>(tokens_.data());
  return cuda::PlaceBeams(slots_, places, tables_.front().blocks, with_tokens ? tokens : nullptr,
                          stream);
}

Status StepState::Begin(const StepShape& shape, cudaStream_t stream) const {
  const auto* const arenas = reinterpret_cast<const StepArena*>(arenas_.data());
  RETURN_IF_ERROR(BeginStep(
      arenas, slots_, tensors_,
      {.num_rows = shape.num_rows, .num_tokens = shape.num_tokens, .num_logits = shape.num_logits},
      stream));
  if (!shape.has_prefill()) return Status::Ok();
  return ExpandPrefill(slots_, tensors_, shape.num_decode_rows, shape.num_rows, shape.num_tokens,
                       stream);
}

model::Batch StepState::BatchOf(const StepShape& shape) const {
  const int rows = shape.num_rows;
  const int tokens = shape.num_tokens;
  TensorView tree_shifts;
  if (tensors_.tree_shifts != nullptr)
    tree_shifts = {tensors_.tree_shifts, DType::kU8, {rows, ops::kMaxTreeDepth}};
  model::Batch batch{.ids = {tensors_.ids, DType::kI32, {tokens}},
                     .paged = {.num_rows = rows,
                               .num_tokens = tokens,
                               .cu_seqlens_q = {tensors_.cu_seqlens_q, DType::kI32, {rows + 1}},
                               .seq_lens_kv = {tensors_.seq_lens_kv, DType::kI32, {rows}},
                               .positions = {tensors_.positions, DType::kI32, {tokens}},
                               .slot_mapping = {tensors_.slot_mapping, DType::kI64, {tokens}},
                               .block_tables = {slots_.block_tables,
                                                DType::kI32,
                                                {slots_.num_slots, slots_.max_blocks}},
                               .tree_shifts = tree_shifts,
                               .num_decode_rows = shape.num_decode_rows,
                               .table_rows = {tensors_.table_rows, DType::kI32, {rows}}},
                     .logit_rows = {tensors_.logit_rows, DType::kI32, {shape.num_logits}},
                     // A decode row computes what was generated, which is no row of a table.
                     .prompt_rows = shape.has_prefill() ? tensors_.prompt_rows : nullptr};
  for (int g = 1; g < slots_.num_groups; ++g) {
    ops::PagedBatch& paged = batch.other_groups.emplace_back().paged;
    paged = batch.paged;
    paged.slot_mapping.data = tensors_.slot_mapping + g * tensors_.slots_of_group;
    paged.block_tables.data = slots_.block_tables + g * slots_.tables_of_group();
  }
  return batch;
}

}  // namespace inflight::executor::cuda
