// SPDX-License-Identifier: Apache-2.0
#include "simulation/fake_backend.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "kv_cache/kv_cache.h"
#include "scheduler/scheduler.h"

namespace inflight::testing {
namespace {

using executor::LateInputs;
using executor::SlotSetup;
using executor::StepPlan;
using scheduler::BlockId;
using scheduler::PlanRow;

constexpr uint64_t kGarbage = 0xDEADDEADDEADDEADull;

bool IsAllowed(const LateInputs::Mask& mask, TokenId token) {
  const auto id = static_cast<uint32_t>(token);
  return (mask.allowed_bits[id / 32] >> (id % 32) & 1) != 0;
}

std::string At(const PlanRow& row) {
  return "slot " + std::to_string(row.slot) + " position " + std::to_string(row.first_position);
}

}  // namespace

executor::BackendInfo SmallInfo(int depth) {
  return {.depth = depth,
          .max_slots = 4 + depth - 1,
          .max_batch_size = 4,
          .max_num_tokens = 32,
          .max_seq_len = 40,
          .max_input_len = 32,
          .vocab_size = 97,
          .kv_groups = {{.block_size = 4, .num_blocks = 16, .window = 0}}};
}

FakeBackend::FakeBackend(FakeBackendOptions options)
    : options_(std::move(options)),
      slots_(static_cast<size_t>(options_.info.max_slots)),
      ready_state_(options_.ready_seed) {
  for (const executor::KvGroup& config : options_.info.kv_groups) {
    Group& group = groups_.emplace_back();
    const int64_t num_blocks = config.num_blocks + config.num_host_blocks;
    group.contents.assign(static_cast<size_t>(num_blocks * config.block_size), kGarbage);
    group.uses.resize(static_cast<size_t>(config.num_blocks));
  }
  outstanding_.reserve(static_cast<size_t>(options_.info.depth));
  spare_.resize(static_cast<size_t>(options_.info.depth));
  for (Outstanding& step : spare_) step.rows.reserve(StepPlan::kMaxRows);
  result_.Reserve(options_.info.max_batch_size);
}

bool FakeBackend::Violated(const std::string& what) {
  if (violation_.empty()) violation_ = what;
  return false;
}

Status FakeBackend::SetupSlot(const SlotSetup& setup) {
  if (options_.on_setup) options_.on_setup(setup);
  if (setup.seed == options_.fail_setup_of_seed) return ResourceExhausted("fake device: no room");
  const int width = setup.request->sampling.beam_width;
  if (setup.beam_slots.size() != (width > 1 ? static_cast<size_t>(width) : 0))
    Violated("slot " + std::to_string(setup.slot) + " set up with another number of beams");
  SetUpOne(setup, setup.slot);
  for (const scheduler::SlotId slot : setup.beam_slots) {
    if (slot != setup.slot) SetUpOne(setup, slot);
    slots_[static_cast<size_t>(slot)].first_beam_slot = setup.slot;
  }
  Slot& first = slots_[static_cast<size_t>(setup.slot)];
  first.beam_slots.assign(setup.beam_slots.begin(), setup.beam_slots.end());
  first.num_beam_steps = 0;
  first.num_returned = setup.request->sampling.num_return_sequences.value_or(width);
  return violation_.empty() ? Status::Ok() : Broken();
}

void FakeBackend::SetUpOne(const SlotSetup& setup, scheduler::SlotId slot_id) {
  Slot& slot = slots_.at(static_cast<size_t>(slot_id));
  if (slot.last_step_id > collected_step_id_)
    Violated("slot " + std::to_string(slot_id) + " set up while a step in flight holds it");
  slot.is_set_up = true;
  slot.ended = FinishReason::kNotFinished;
  slot.seed = setup.seed;
  slot.cum_log_prob = setup.cum_log_prob;
  slot.num_kv_tokens = -1;
  slot.first_beam_slot = -1;
  slot.stop = {.end_ids = setup.request->end_ids,
               .stop_words = setup.request->stop_words,
               .num_prompt_tokens = setup.num_prompt_tokens,
               .max_seq_len = setup.max_seq_len};
  slot.num_prompt_drafts = static_cast<int>(setup.request->draft_ids.size());
  const auto max_len = static_cast<size_t>(setup.max_seq_len);
  slot.tokens.reserve(max_len);
  slot.tokens.assign(setup.tokens.begin(), setup.tokens.end());
  slot.hashes.reserve(max_len + 1);
  slot.hashes.assign(1, 0);
  for (const TokenId token : slot.tokens) slot.hashes.push_back(Chain(slot.hashes.back(), token));
  slot.tables.resize(groups_.size());
  slot.spares.assign(groups_.size(), -1);
  for (std::vector<BlockId>& table : slot.tables) {
    table.clear();
    table.reserve(max_len);
  }
}

Result<executor::Ticket> FakeBackend::Launch(const StepPlan& plan) {
  if (options_.on_launch) options_.on_launch(plan);
  if (plan.step_id == options_.fail_launch_of_step) return Internal("fake device: launch failed");
  if (options_.checks_plans && !CheckPlan(plan)) return Broken();
  if (!ApplyUpdates(plan)) return Broken();
  if (options_.checks_plans && !CheckCopies(plan)) return Broken();
  last_step_id_ = plan.step_id;
  CHECK(!spare_.empty());
  Outstanding step = std::move(spare_.back());
  spare_.pop_back();
  step.step_id = plan.step_id;
  step.num_prefill_tokens = 0, step.needs_late_inputs = false;
  step.rows.assign(plan.rows.begin(), plan.rows.begin() + plan.num_rows);
  step.copies.assign(plan.copies.begin(), plan.copies.begin() + plan.num_copies);
  step.masks.clear();
  step.drafts.clear();
  for (const PlanRow& row : step.rows) {
    step.needs_late_inputs |= row.has_late_inputs != 0;
    if (row.is_prefill != 0) step.num_prefill_tokens += row.num_query_tokens;
    if (options_.checks_plans && !CheckUse(plan, row)) return Broken();
    slots_[static_cast<size_t>(row.slot)].last_step_id = plan.step_id;
  }
  outstanding_.push_back(std::move(step));
  return plan.step_id;
}

bool FakeBackend::CheckPlan(const StepPlan& plan) {
  if (num_outstanding() >= options_.info.depth) return Violated("more steps than the depth");
  if (plan.step_id != last_step_id_ + 1) return Violated("step ids do not count up");
  if (AwaitsInputs()) return Violated("a step behind one that waits for late inputs");
  if (plan.num_rows < 1 || plan.num_rows > options_.info.max_batch_size)
    return Violated("rows: " + std::to_string(plan.num_rows));
  const executor::BackendInfo& info = options_.info;
  if (!info.looks_ahead &&
      plan.num_rows > scheduler::Scheduler::MaxStepRows(info.max_batch_size, info.depth) &&
      plan.num_rows > info.max_beam_width)
    return Violated("more rows than a stage's share");
  if (plan.num_tokens > options_.info.max_num_tokens)
    return Violated("tokens: " + std::to_string(plan.num_tokens));
  int num_tokens = 0, num_yields = 0;
  for (int r = 0; r < plan.num_rows; ++r) {
    const PlanRow& row = plan.rows[static_cast<size_t>(r)];
    if (row.slot < 0 || row.slot >= options_.info.max_slots) return Violated("no such slot");
    if (!slots_[static_cast<size_t>(row.slot)].is_set_up)
      return Violated("slot " + std::to_string(row.slot) + " was not set up");
    for (int other = 0; other < r; ++other) {
      if (plan.rows[static_cast<size_t>(other)].slot == row.slot)
        return Violated("slot " + std::to_string(row.slot) + " has two rows");
    }
    if (row.num_query_tokens < 1) return Violated("a row without tokens");
    if ((row.is_prefill == 0) != (r < plan.num_decode_rows))
      return Violated("prefill rows before decode rows");
    if (row.is_prefill == 0 &&
        (row.num_query_tokens > options_.info.max_tokens_per_row || row.yields == 0 ||
         row.num_query_tokens != 1 + row.num_draft_tokens))
      return Violated("a decode row computes as many tokens as it may yield, and yields");
    if (!options_.info.looks_ahead && row.is_prefill == 0 &&
        slots_[static_cast<size_t>(row.slot)].last_step_id > collected_step_id_)
      return Violated("a row looked ahead");
    if (row.num_draft_tokens > 0 && row.yields == 0) return Violated("drafts that nobody judges");
    if (row.is_prefill != 0 &&
        row.num_draft_tokens > slots_[static_cast<size_t>(row.slot)].num_prompt_drafts)
      return Violated("a prompt has other drafts");
    num_tokens += row.num_query_tokens;
    num_yields += row.yields;
    if (!CheckBeams(plan, r)) return false;
  }
  if (num_tokens != plan.num_tokens || num_yields != plan.num_yields)
    return Violated("sums of tokens or yields");
  return true;
}

// A search has one row while it computes its prompt, then one for each beam next to each other, and
// none while one is in flight.
bool FakeBackend::CheckBeams(const StepPlan& plan, int row_idx) {
  const PlanRow& row = plan.rows[static_cast<size_t>(row_idx)];
  const scheduler::SlotId first_slot = slots_[static_cast<size_t>(row.slot)].first_beam_slot;
  if (first_slot < 0) return true;
  const Slot& first = slots_[static_cast<size_t>(first_slot)];
  const auto& beams = first.beam_slots;
  const auto beam = std::find(beams.begin(), beams.end(), row.slot) - beams.begin();
  if (row.is_prefill != 0) {
    return beam == 0 && first.num_beam_steps == 0 ? true : Violated("a beam computes a prompt");
  }
  if (first.last_step_id > collected_step_id_) return Violated("a beam search looked ahead");
  const auto begin = row_idx - beam;
  for (size_t j = 0; j < beams.size(); ++j) {
    const auto r = static_cast<size_t>(begin) + j;
    if (begin < 0 || r >= static_cast<size_t>(plan.num_rows) || plan.rows[r].slot != beams[j])
      return Violated("the beams of a search are not together");
  }
  return true;
}

bool FakeBackend::ApplyUpdates(const StepPlan& plan) {
  for (int u = 0; u < plan.num_updates; ++u) {
    const scheduler::BlockTableUpdate& update = plan.updates[static_cast<size_t>(u)];
    std::vector<BlockId>& table =
        slots_.at(static_cast<size_t>(update.slot)).tables.at(static_cast<size_t>(update.group));
    if (update.first_idx == scheduler::BlockTableUpdate::kSpare) {
      slots_[static_cast<size_t>(update.slot)].spares[static_cast<size_t>(update.group)] =
          plan.block_ids[static_cast<size_t>(update.offset)];
      continue;
    }
    if (update.first_idx != static_cast<int>(table.size()))
      return Violated("a block table does not grow at its end");
    if (update.offset + update.num_blocks > plan.num_block_ids) return Violated("block ids");
    const auto num_blocks = options_.info.kv_groups[static_cast<size_t>(update.group)].num_blocks;
    for (int i = 0; i < update.num_blocks; ++i) {
      const BlockId block = plan.block_ids[static_cast<size_t>(update.offset + i)];
      const bool is_hidden =
          block == -1 && options_.info.kv_groups[static_cast<size_t>(update.group)].window > 0;
      if (!is_hidden && (block < 0 || block >= num_blocks)) return Violated("no such block");
      table.push_back(block);
    }
  }
  return true;
}

// All blocks that the row reads or writes are mapped, nobody else in flight writes what it reads,
// and nobody else in flight uses what it writes.
bool FakeBackend::CheckUse(const StepPlan& plan, const PlanRow& row) {
  const Slot& slot = slots_[static_cast<size_t>(row.slot)];
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int block_size = options_.info.kv_groups[g].block_size;
    const int first_written = (row.first_position - NumUncertain(row)) / block_size;
    const int last_written = (row.first_position + row.num_query_tokens - 1) / block_size;
    if (last_written >= static_cast<int>(slot.tables[g].size()))
      return Violated("block not mapped: " + At(row));
    const int first_position = row.first_position - NumUncertain(row);
    for (int i = 0; i <= last_written; ++i) {
      if (!IsSeen(slot, g, i * block_size, first_position) &&
          !IsSeen(slot, g, (i + 1) * block_size - 1, first_position))
        continue;
      const BlockId block = slot.tables[g][static_cast<size_t>(i)];
      if (block < 0) return Violated("block given back: " + At(row));
      BlockUse& use = groups_[g].uses[static_cast<size_t>(block)];
      if (!NoteUse(&use, row.slot, plan.step_id, i >= first_written)) return false;
    }
  }
  return true;
}

// Whether tokens from position `from` on see the key at `position`. Beams keep all of theirs.
bool FakeBackend::IsSeen(const Slot& slot, size_t group, int position, int from) const {
  const executor::KvGroup& config = options_.info.kv_groups[group];
  return config.window == 0 || slot.first_beam_slot >= 0 || position < config.num_sinks ||
         position > from - (config.window - config.num_sinks);
}

// A copy reads and writes nothing that a step in flight may still write or read.
bool FakeBackend::CheckCopies(const StepPlan& plan) {
  for (int c = 0; c < plan.num_copies; ++c) {
    const scheduler::HostBlockCopy& copy = plan.copies[static_cast<size_t>(c)];
    const executor::KvGroup& group = options_.info.kv_groups.at(static_cast<size_t>(copy.group));
    const auto is_host = [&group](BlockId block) { return block >= group.num_blocks; };
    if (is_host(copy.from) == is_host(copy.to)) return Violated("a copy within one pool");
    for (const BlockId block : {copy.from, copy.to}) {
      if (block < 0 || block >= group.num_blocks + group.num_host_blocks)
        return Violated("a copy of no such block");
      if (is_host(block)) continue;
      const BlockUse& use =
          groups_[static_cast<size_t>(copy.group)].uses[static_cast<size_t>(block)];
      if (use.written > collected_step_id_)
        return Violated("a copy of what a step in flight writes");
      if (block == copy.to && use.used > collected_step_id_)
        return Violated("a copy over what a step in flight uses");
    }
  }
  return true;
}

void FakeBackend::MakeCopies(const Outstanding& step) {
  for (const scheduler::HostBlockCopy& copy : step.copies) {
    const auto g = static_cast<size_t>(copy.group);
    const int block_size = options_.info.kv_groups[g].block_size;
    auto& contents = groups_[g].contents;
    std::copy_n(contents.begin() + copy.from * block_size, block_size,
                contents.begin() + copy.to * block_size);
    // What was copied away may be written from now on: nobody finds it there by chance.
    std::fill_n(contents.begin() + copy.from * block_size, block_size, kGarbage);
  }
}

// How far a row about to be launched may begin before its planned position.
int FakeBackend::NumUncertain(const PlanRow& row) const {
  if (row.is_prefill != 0 || options_.info.max_tokens_per_row == 1) return 0;
  int num_drafts = 0;
  for (const Outstanding& step : outstanding_) {
    for (const PlanRow& other : step.rows) {
      num_drafts += other.slot == row.slot ? other.num_draft_tokens : 0;
    }
  }
  return num_drafts;
}

bool FakeBackend::NoteUse(BlockUse* use, scheduler::SlotId slot, int64_t step_id, bool writes) {
  if (use->writer != slot && use->written > collected_step_id_)
    return Violated("slot " + std::to_string(slot) + " uses a block that a step in flight writes");
  if (use->user != slot) {
    use->other_user = use->user;
    use->used_by_other = use->used;
    use->user = slot;
  }
  use->used = step_id;
  if (!writes) return true;
  if (use->used_by_other > collected_step_id_ && use->other_user != slot)
    return Violated("slot " + std::to_string(slot) + " writes a block that a step in flight uses");
  use->writer = slot;
  use->written = step_id;
  return true;
}

Status FakeBackend::ProvideLateInputs(executor::Ticket ticket, const LateInputs& inputs) {
  for (Outstanding& step : outstanding_) {
    if (step.step_id != ticket) continue;
    step.needs_late_inputs = false;
    step.masks = inputs.masks;
    step.mask_bits.clear();
    for (LateInputs::Mask& mask : step.masks) {
      step.mask_bits.emplace_back(mask.allowed_bits.begin(), mask.allowed_bits.end());
    }
    for (size_t i = 0; i < step.masks.size(); ++i) step.masks[i].allowed_bits = step.mask_bits[i];
    return Status::Ok();
  }
  Violated("late inputs for a step that is not outstanding");
  return Broken();
}

Result<std::span<const TokenId>> FakeBackend::DraftsOf(executor::Ticket ticket,
                                                       scheduler::SlotId slot_id) {
  Outstanding& step = outstanding_.front();
  const auto row = std::ranges::find(step.rows, slot_id, &PlanRow::slot);
  if (step.step_id != ticket || !step.needs_late_inputs || row == step.rows.end() ||
      row->has_late_inputs == 0 || row->num_draft_tokens == 0) {
    Violated("drafts of a row that has none to be asked for");
    return Broken();
  }
  const Slot& slot = slots_[static_cast<size_t>(slot_id)];
  std::vector<TokenId>& drafts = step.drafts[slot_id];
  if (options_.guess) {
    drafts = options_.guess(slot.tokens, row->num_draft_tokens);
  } else {
    for (uint64_t hash = slot.hashes.back(); std::ssize(drafts) < row->num_draft_tokens;) {
      drafts.push_back(DrawToken(hash, slot.seed, options_.info.vocab_size).token);
      hash = Chain(hash, drafts.back());
    }
  }
  return std::span<const TokenId>(drafts);
}

bool FakeBackend::Ready(executor::Ticket) const {
  if (options_.ready_seed == 0) return false;
  ready_state_ = Mix(ready_state_);
  return ready_state_ % 2 == 0;
}

Result<const executor::StepResult*> FakeBackend::Collect(executor::Ticket ticket) {
  if (outstanding_.empty() || outstanding_.front().step_id != ticket) {
    Violated("collected out of order");
    return Broken();
  }
  if (ticket == options_.fail_collect_of_step) return Internal("fake device: step failed");
  Outstanding step = std::move(outstanding_.front());
  outstanding_.erase(outstanding_.begin());
  const int64_t took_ns = options_.step_ns + options_.prefill_token_ns * step.num_prefill_tokens;
  if (options_.clock != nullptr) options_.clock->AdvanceNs(took_ns);
  result_.device_begin_ns = result_.device_end_ns + options_.idle_ns;
  result_.device_end_ns = result_.device_begin_ns + took_ns;
  if (step.needs_late_inputs) {
    Violated("step " + std::to_string(ticket) + " never got its late inputs");
    return Broken();
  }
  if (!Execute(step)) return Broken();
  collected_step_id_ = ticket;
  spare_.push_back(std::move(step));
  return &result_;
}

bool FakeBackend::Execute(const Outstanding& step) {
  result_.Clear(static_cast<int>(step.rows.size()));
  MakeCopies(step);
  for (size_t r = 0; r < step.rows.size(); ++r) {
    if (!ExecuteRow(step, static_cast<int>(r))) return false;
    result_.token_begin[r + 1] = static_cast<int32_t>(result_.token_ids.size());
  }
  return true;
}

bool FakeBackend::ExecuteRow(const Outstanding& step, int row_idx) {
  const PlanRow& row = step.rows[static_cast<size_t>(row_idx)];
  Slot& slot = slots_[static_cast<size_t>(row.slot)];
  const int num_known = static_cast<int>(slot.tokens.size());
  if (slot.ended != FinishReason::kNotFinished) {  // ended while this row was in flight
    if (slot.ended == FinishReason::kLength) return Violated("planned past the length: " + At(row));
    ++num_wasted_rows_;
    WriteContents(slot, row.first_position, row.first_position + row.num_query_tokens,
                  /*garbage=*/true);
    return true;
  }
  const bool is_first = slot.num_kv_tokens < 0;
  const bool has_beams = slot.first_beam_slot >= 0;
  int begin = row.first_position;
  if (row.is_prefill == 0) {
    begin = num_known - 1;
    const int slack = (options_.info.depth - 1) * (options_.info.max_tokens_per_row - 1);
    if (row.first_position < begin || row.first_position > begin + slack)
      return Violated("positions have a gap: " + At(row));
  } else {
    if (!is_first && begin != slot.num_kv_tokens)
      return Violated("positions have a gap: " + At(row));
    const int end = begin + row.num_query_tokens - row.num_draft_tokens;
    if (end > num_known) return Violated("unknown tokens: " + At(row));
    if ((row.yields != 0) != (end == num_known))
      return Violated("the chunk that completes the prompt yields, no other: " + At(row));
  }
  if (options_.checks_plans &&
      !CheckContents(slot, begin, /*every_position=*/is_first || has_beams))
    return false;
  int end = begin + row.num_query_tokens;
  if (row.yields != 0 && !has_beams) {
    end -= row.num_draft_tokens + 1 - Yield(step, row, &slot, row_idx);
  }
  if (options_.checks_plans) {
    WriteContents(slot, begin, end, /*garbage=*/false);
    WriteContents(slot, end, begin + row.num_query_tokens, /*garbage=*/true);
  }
  slot.num_kv_tokens = end;
  if (!has_beams || row.yields == 0) return true;
  Slot& first = slots_[static_cast<size_t>(slot.first_beam_slot)];
  const auto num_rows = row.is_prefill != 0 ? 1 : std::ssize(first.beam_slots);
  if (row.is_prefill != 0 || row.slot == first.beam_slots.back())
    AdvanceBeams(&first, row_idx - static_cast<int>(num_rows) + 1, row.is_prefill != 0);
  return true;
}

// All rows of a search were computed: its beams go on, their tables with them.
void FakeBackend::AdvanceBeams(Slot* first, int row_idx, bool is_prefill) {
  const int n = ++first->num_beam_steps;
  const auto width = static_cast<int>(first->beam_slots.size());
  const int num_tokens = first->num_kv_tokens;
  std::vector<Slot*> beams;
  std::vector<std::vector<TokenId>> tokens_before;
  std::vector<std::vector<uint64_t>> hashes_before;
  for (const scheduler::SlotId slot : first->beam_slots) {
    beams.push_back(&slots_[static_cast<size_t>(slot)]);
    tokens_before.push_back(beams.back()->tokens);
    hashes_before.push_back(beams.back()->hashes);
  }
  std::vector<int32_t> parents;
  for (int j = 0; j < width; ++j) {
    const int parent = ParentOf(first->seed, n, j, width);
    Slot& beam = *beams[static_cast<size_t>(j)];
    beam.tokens = tokens_before[static_cast<size_t>(parent)];
    beam.hashes = hashes_before[static_cast<size_t>(parent)];
    const TokenId token =
        DrawToken(beam.hashes.back(), BeamSeed(first->seed, j), options_.info.vocab_size).token;
    beam.tokens.push_back(token);
    beam.hashes.push_back(Chain(beam.hashes.back(), token));
    beam.num_kv_tokens = num_tokens;
    parents.push_back(parent);
    if (!is_prefill) result_.parents[static_cast<size_t>(row_idx + j)] = parent;
  }
  if (IsOver(first->seed, n) || static_cast<int>(first->tokens.size()) == first->stop.max_seq_len) {
    for (Slot* beam : beams) beam->ended = FinishReason::kLength;
    result_.finish_reasons[static_cast<size_t>(row_idx)] = FinishReason::kLength;
    return;
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int block_size = options_.info.kv_groups[g].block_size;
    std::vector<kv_cache::BeamTableView> views;
    for (Slot* beam : beams) {
      beam->tables[g].resize(static_cast<size_t>(kv_cache::BlocksFor(num_tokens, block_size)), -1);
      views.push_back({beam->tables[g].data(), &beam->spares[g]});
    }
    std::vector<kv_cache::BlockCopy> copies;
    kv_cache::ReorderBeams(views, parents, num_tokens, block_size, &copies);
    for (const kv_cache::BlockCopy& copy : copies) {
      if (copy.to < 0) {
        Violated("a beam forks without a spare block");
        return;
      }
      std::copy_n(groups_[g].contents.begin() + copy.from * block_size, copy.num_tokens,
                  groups_[g].contents.begin() + copy.to * block_size);
    }
  }
}

std::vector<Beam> FakeBackend::BestBeams(scheduler::SlotId slot, bool /*is_last*/) const {
  const Slot& first = slots_[static_cast<size_t>(slot)];
  std::vector<Beam> beams;
  for (int j = 0; j < first.num_returned; ++j) {
    const Slot& beam = slots_[static_cast<size_t>(first.beam_slots[static_cast<size_t>(j)])];
    beams.emplace_back().output_ids.assign(beam.tokens.begin() + first.stop.num_prompt_tokens,
                                           beam.tokens.end());
    beams.back().finish_reason = first.ended;
  }
  return beams;
}

// K and V of the first `num_tokens` tokens are this sequence's own or an equal prefix.
bool FakeBackend::CheckContents(const Slot& slot, int num_tokens, bool every_position) {
  if (num_tokens == 0) return true;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int block_size = options_.info.kv_groups[g].block_size;
    const int step = every_position ? 1 : block_size;
    for (int p = every_position ? 0 : std::min(block_size, num_tokens) - 1; p < num_tokens;
         p = std::min(p + step, std::max(num_tokens - 1, p + 1))) {
      if (!IsSeen(slot, g, p, num_tokens)) continue;
      const BlockId block = slot.tables[g][static_cast<size_t>(p / block_size)];
      const auto entry = static_cast<size_t>(block * block_size + p % block_size);
      if (groups_[g].contents[entry] != slot.hashes[static_cast<size_t>(p) + 1])
        return Violated("block " + std::to_string(block) + " does not hold position " +
                        std::to_string(p) + " of its sequence");
    }
  }
  return true;
}

void FakeBackend::WriteContents(const Slot& slot, int begin, int end, bool garbage) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int block_size = options_.info.kv_groups[g].block_size;
    for (int p = begin; p < end; ++p) {
      const BlockId block = slot.tables[g][static_cast<size_t>(p / block_size)];
      groups_[g].contents[static_cast<size_t>(block * block_size + p % block_size)] =
          garbage ? kGarbage : slot.hashes[static_cast<size_t>(p) + 1];
    }
  }
}

// How many tokens.
int FakeBackend::Yield(const Outstanding& step, const PlanRow& row, Slot* slot, int row_idx) {
  if (row.has_late_inputs != 0) return YieldByMasks(step, row, slot, row_idx);
  const uint64_t chance = Mix(slot->hashes.back() ^ slot->seed);
  const int most = 1 + static_cast<int>(chance % (1 + static_cast<uint64_t>(row.num_draft_tokens)));
  int num_yielded = 0;
  while (num_yielded < most && slot->ended == FinishReason::kNotFinished) {
    Append(DrawToken(slot->hashes.back(), slot->seed, options_.info.vocab_size), slot);
    ++num_yielded;
  }
  // As planned, or as many as are accepted.
  EndYield(*slot, chance >> 32 & 1 ? row.num_draft_tokens : most - 1, row_idx);
  return num_yielded;
}

// What is drawn behind the newest token, and behind each draft that was drawn before it.
int FakeBackend::YieldByMasks(const Outstanding& step, const PlanRow& row, Slot* slot,
                              int row_idx) {
  const auto found = step.drafts.find(row.slot);
  const auto drafts = found == step.drafts.end() ? std::span<const TokenId>() : found->second;
  for (int draft = 0;; ++draft) {
    Draw draw = DrawToken(slot->hashes.back(), slot->seed, options_.info.vocab_size);
    const auto mask = std::ranges::find_if(step.masks, [&](const LateInputs::Mask& m) {
      return m.slot == row.slot && m.draft == draft;
    });
    if (mask == step.masks.end()) {  // of a sequence that is over, whose drafts nobody asked for
      if (draft > 0) Violated("a token is drawn without its mask: " + At(row));
    } else if (std::ranges::any_of(mask->allowed_bits, [](uint32_t word) { return word != 0; })) {
      while (!IsAllowed(*mask, draw.token))
        draw.token = (draw.token + 1) % options_.info.vocab_size;
    } else {
      draw = {};  // nothing may come
    }
    Append(draw, slot);
    const bool is_accepted =
        std::cmp_less(draft, drafts.size()) && drafts[static_cast<size_t>(draft)] == draw.token;
    if (is_accepted && slot->ended == FinishReason::kNotFinished) continue;
    EndYield(*slot, static_cast<int>(drafts.size()), row_idx);
    return 1 + draft;
  }
}

void FakeBackend::Append(const Draw& draw, Slot* slot) {
  slot->tokens.push_back(draw.token);
  slot->hashes.push_back(Chain(slot->hashes.back(), draw.token));
  slot->cum_log_prob += draw.log_prob;
  slot->ended = decoding::CheckStop(slot->stop, slot->tokens);
  result_.token_ids.push_back(draw.token);
  result_.log_probs.push_back(draw.log_prob);
}

void FakeBackend::EndYield(const Slot& slot, int num_drafted, int row_idx) {
  result_.cum_log_probs[static_cast<size_t>(row_idx)] = slot.cum_log_prob;
  result_.finish_reasons[static_cast<size_t>(row_idx)] = slot.ended;
  result_.num_drafted[static_cast<size_t>(row_idx)] = num_drafted;
}

}  // namespace inflight::testing
