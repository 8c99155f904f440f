// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "decoding/ngram_drafts.h"
#include "executor/cuda/moved_kv.cuh"
#include "executor/cuda/step_kernels.h"
#include "ops/cuda/overlap.cuh"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::LaunchStatus;
using ops::cuda::BeginOverlapped;
using ops::cuda::LaunchOverlapped;

constexpr int kWarp = 32;
constexpr int kBeginThreads = scheduler::StepPlan::kMaxRows;  // a row each
constexpr int kFirstLine = 2 + StepArena::kFirstEntries;      // in int2
constexpr int kExpandThreads = 256;
constexpr int kSetUpThreads = 256;
constexpr int kEndThreads = 256;
constexpr int kMoveThreads = 128;
constexpr int kPlaceThreads = 128;
constexpr int kFillThreads = 256;
constexpr int kLookUpThreads = 256;
constexpr int kMaxSetUpBlocks = 64;

__device__ uint64_t NowNs() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ DecodeRow LoadDecodeRow(const StepArena& arena, int row) {
  static_assert(sizeof(DecodeRow) == sizeof(int));
  const int word = __ldcv(reinterpret_cast<const int*>(arena.decode_rows) + row);
  return {.slot = static_cast<uint16_t>(word & 0xffff),
          .draft = static_cast<uint16_t>(word >> 16 & 0xffff)};
}

// Of a row of the logits; null: its text stands at its positions.
__device__ void SetShifts(const StepTensors& out, int row, const uint8_t* shifts) {
  static_assert(ops::kMaxTreeDepth == sizeof(uint4));
  reinterpret_cast<uint4*>(out.tree_shifts)[row] =
      shifts == nullptr ? uint4{} : *reinterpret_cast<const uint4*>(shifts);
}

// Where the batch's token `token` is written, which stands at that place of the slot's text.
__device__ void SetMapping(const SlotState& slots, const StepTensors& out, int64_t slot, int place,
                           int token) {
  const int64_t entry = slot * slots.max_blocks + place / slots.block_size;
  for (int g = 0; g < slots.num_groups; ++g) {
    const int64_t block = slots.block_tables[g * slots.tables_of_group() + entry];
    out.slot_mapping[g * out.slots_of_group + token] =
        block * slots.block_size + place % slots.block_size;
  }
}

// One CTA, so that the entries are in the tables before rows look there.
__global__ void __launch_bounds__(kBeginThreads)
    BeginStepKernel(const StepArena* arenas, SlotState slots, StepTensors out,
                    StepPadding padding) {
  __shared__ int header[4];
  BeginOverlapped();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) *slots.begin_ns = NowNs();
  const StepArena& arena = arenas[*slots.num_steps % kNumArenas];
  DecodeRow decode = {};
  if (thread < padding.num_rows) decode = LoadDecodeRow(arena, thread);
  if (thread < kWarp) {  // lanes 0 and 1 the header, the others an entry each
    const int2 part = __ldcv(reinterpret_cast<const int2*>(&arena) + min(thread, kFirstLine - 1));
    if (thread < 2) {
      header[2 * thread] = part.x;
      header[2 * thread + 1] = part.y;
    }
    const int num_entries = __shfl_sync(0xffffffffU, part.x, 1);
    if (thread >= 2 && thread < kFirstLine && thread - 2 < num_entries)
      slots.block_tables[part.x] = part.y;
  }
  __syncthreads();
  const int num_rows = header[0];
  const int num_decode_rows = header[1];
  const int num_entries = header[2];
  const int num_logits = header[3];
  for (int i = thread + StepArena::kFirstEntries; i < num_entries; i += kBeginThreads) {
    const int2 entry =
        __ldcv(reinterpret_cast<const int2*>(arena.entries) + i - StepArena::kFirstEntries);
    slots.block_tables[entry.x] = entry.y;
  }
  if (num_entries > StepArena::kFirstEntries) __syncthreads();

  if (thread == 0) out.cu_seqlens_q[0] = 0;
  const int r = thread;
  if (r >= num_logits && r < padding.num_logits) {
    out.logit_rows[r] = 0;
    out.logit_slots[r] = -1;
  }
  if (r >= padding.num_rows) return;
  if (r >= num_decode_rows && r < num_rows) {
    const auto* const rows = reinterpret_cast<const int4*>(arena.prefill_rows) - num_decode_rows;
    const int4 row = __ldcv(rows + r);  // PrefillRow
    const int begin = r == num_decode_rows ? r : __ldcv(rows + r - 1).z;
    out.table_rows[r] = row.x;
    out.first_positions[r] = row.y;
    out.cu_seqlens_q[r + 1] = row.z;
    const int num_known = row.y + row.z - begin;
    out.seq_lens_kv[r] = num_known;
    const auto logit = static_cast<int16_t>(row.w & 0xffff);
    const int num_drafts = row.w >> 16;
    if (logit < 0) return;
    const bool is_drawn = row.x != slots.scratch_slot() && num_drafts == 0;
    for (int i = 0; i <= num_drafts; ++i) {
      out.logit_rows[logit + i] = row.z - 1 - num_drafts + i;
      out.logit_slots[logit + i] = is_drawn ? row.x : -1;
      if (out.logit_positions != nullptr) out.logit_positions[logit + i] = num_known;
      if (out.tree_shifts != nullptr) SetShifts(out, logit + i, nullptr);
    }
    return;
  }
  if (r >= num_rows && num_rows > num_decode_rows) {
    const int end = __ldcv(&arena.prefill_rows[num_rows - num_decode_rows - 1].end_token);
    out.table_rows[r] = slots.scratch_slot();
    out.first_positions[r] = 0;
    out.cu_seqlens_q[r + 1] = padding.num_tokens;
    out.seq_lens_kv[r] = r == num_rows ? padding.num_tokens - end : 0;
    return;
  }
  int slot = r < num_rows ? decode.slot : slots.scratch_slot();
  int place = slot == slots.scratch_slot() ? 0 : slots.num_tokens[slot] - 1 + decode.draft;
  int id = slots.tokens[static_cast<int64_t>(slot) * slots.max_tokens + place];
  if (id < 0) {  // a draft that was not found
    slot = slots.scratch_slot();
    place = 0;
    id = 0;
  }
  const bool is_scratch = slot == slots.scratch_slot();
  int known = place + 1;
  if (slots.tree != nullptr) {
    const uint8_t* const shifts = slots.tree->shifts[is_scratch ? 0 : decode.draft];
    SetShifts(out, r, shifts);
    known -= shifts[0];
  }
  SetMapping(slots, out, slot, place, r);
  out.ids[r] = id;
  if (out.prompt_rows != nullptr) out.prompt_rows[r] = nullptr;
  out.positions[r] = known - 1;
  out.table_rows[r] = slot;
  out.cu_seqlens_q[r + 1] = r + 1;
  out.seq_lens_kv[r] = known;
  out.logit_rows[r] = r;
  out.logit_slots[r] = is_scratch ? -1 : slot;
  if (out.logit_positions != nullptr) out.logit_positions[r] = known;
}

// How many tokens before `end` equal those at the end of all, at most kLongestMatch.
__device__ int MatchBefore(const int32_t* tokens, int num_tokens, int end) {
  int n = 0;
  while (n < min(end, decoding::kLongestMatch) && tokens[end - 1 - n] == tokens[num_tokens - 1 - n])
    ++n;
  return n;
}

// Whether the text, of `num_tokens` by now, went on as guessed and some of the guess is left: that
// is then put behind it, up to `room` drafts.
__device__ bool TakeGuess(const Guess* guess, const int32_t* all_ids, int32_t* tokens,
                          int num_tokens, int room) {
  __shared__ int fields[3];
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < 3) fields[thread] = __ldcv(reinterpret_cast<const int*>(guess) + thread);
  __syncthreads();
  const int num_known = fields[0];
  const int32_t* const ids = all_ids + fields[1];
  const int num_ids = fields[2];
  const int num_passed = num_tokens - num_known;
  if (num_passed < 0 || num_passed >= num_ids) return false;
  bool differs = false;
  for (int i = thread; i < num_passed; i += kLookUpThreads)
    differs |= __ldcv(ids + i) != tokens[num_known + i];
  if (__syncthreads_or(differs ? 1 : 0) != 0) return false;
  for (int i = thread; i < room; i += kLookUpThreads)
    tokens[num_tokens + i] = num_passed + i < num_ids ? __ldcv(ids + num_passed + i) : -1;
  return true;
}

// A CTA for each row.
__global__ void __launch_bounds__(kLookUpThreads)
    LookUpDraftsKernel(const __grid_constant__ DraftingRows rows, Guesses guesses,
                       SlotState slots) {
  __shared__ unsigned long long longest;  // how long a match is, then where it ends
  __shared__ int num_found;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto row = rows.rows[blockIdx.x];
  int32_t* const tokens = slots.tokens + static_cast<int64_t>(row.slot) * slots.max_tokens;
  const int num_tokens = slots.num_tokens[row.slot];
  const int room = min(int{row.num_drafts}, slots.max_tokens - num_tokens);
  if (guesses.rows != nullptr &&
      TakeGuess(guesses.rows + blockIdx.x, guesses.ids, tokens, num_tokens, room))
    return;
  if (thread == 0) longest = 0;
  __syncthreads();
  for (int end = decoding::kShortestMatch + thread; end < num_tokens; end += kLookUpThreads) {
    const int length = MatchBefore(tokens, num_tokens, end);
    if (length >= decoding::kShortestMatch)
      atomicMax(&longest, static_cast<unsigned long long>(length) << 32 | unsigned(end));
  }
  __syncthreads();
  int next = static_cast<int>(longest & 0xffffffffU);
  if (next == 0 && slots.forced_acceptance >= 0) next = num_tokens - 1;
  const int period = num_tokens - next;
  if (thread == 0) num_found = next == 0 ? 0 : room;
  __syncthreads();
  const int id = thread < room && next > 0 ? tokens[next + thread % period] : -1;
  // Up to the first id that is none of the vocabulary.
  if (next > 0 && thread < room && slots.prompt_tables != nullptr && id >= slots.first_row_id)
    atomicMin(&num_found, thread);
  __syncthreads();
  if (thread < room) tokens[num_tokens + thread] = thread < num_found ? id : -1;
}

__global__ void __launch_bounds__(kExpandThreads)
    ExpandPrefillKernel(SlotState slots, StepTensors out, int num_decode_rows, int num_rows,
                        int num_tokens) {
  BeginOverlapped();
  const int t = num_decode_rows + static_cast<int>(blockIdx.x * kExpandThreads + threadIdx.x);
  if (t >= num_tokens) return;
  int low = num_decode_rows;  // the last row that begins at or before t
  int high = num_rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (out.cu_seqlens_q[middle] <= t)
      low = middle;
    else
      high = middle - 1;
  }
  const int position = out.first_positions[low] + t - out.cu_seqlens_q[low];
  const int64_t slot = out.table_rows[low];
  const int32_t id = slots.tokens[slot * slots.max_tokens + position];
  out.ids[t] = id;
  if (out.prompt_rows != nullptr) {
    const bool is_row = id >= slots.first_row_id;
    out.prompt_rows[t] =
        is_row ? slots.prompt_tables[slot] + (id - slots.first_row_id) * slots.row_bytes : nullptr;
  }
  out.positions[t] = position;
  SetMapping(slots, out, slot, position, t);
}

__global__ void __launch_bounds__(kSetUpThreads)
    SetUpSlotKernel(SlotState slots, int slot, const int32_t* tokens, int num_tokens,
                    const std::byte* prompt_table) {
  const auto thread = static_cast<int>(blockIdx.x * kSetUpThreads + threadIdx.x);
  const auto stride = static_cast<int>(gridDim.x * kSetUpThreads);
  if (thread == 0) slots.num_tokens[slot] = num_tokens;
  if (thread == 0 && slots.prompt_tables != nullptr) slots.prompt_tables[slot] = prompt_table;
  int32_t* const to = slots.tokens + static_cast<int64_t>(slot) * slots.max_tokens;
  for (int i = thread; i < num_tokens; i += stride) to[i] = __ldcv(tokens + i);
  for (int g = 0; g < slots.num_groups; ++g) {
    int32_t* const table = slots.block_tables + g * slots.tables_of_group() +
                           static_cast<int64_t>(slot) * slots.max_blocks;
    for (int i = thread; i < slots.max_blocks; i += stride) table[i] = 0;
  }
}

// A CTA for each beam.
__global__ void __launch_bounds__(kPlaceThreads)
    PlaceBeamsKernel(SlotState slots, const __grid_constant__ BeamPlaces places,
                     const int32_t* tables, const int32_t* tokens) {
  const int64_t slot = places.slots[blockIdx.x];
  const auto thread = static_cast<int>(threadIdx.x);
  int32_t* const to = slots.tokens + slot * slots.max_tokens;
  if (thread == 0) {
    slots.num_tokens[slot] = places.num_tokens;
    if (tokens == nullptr) to[places.num_tokens - 1] = places.last_tokens[blockIdx.x];
  }
  if (tokens != nullptr) {  // four at a time: rows are multiples of it
    const auto* const from = reinterpret_cast<const int4*>(tokens + slot * slots.max_tokens);
    for (int i = thread; i < (places.num_tokens + 3) / 4; i += kPlaceThreads)
      reinterpret_cast<int4*>(to)[i] = __ldcv(from + i);
  }
  const int num_blocks = (places.num_tokens - 1 + slots.block_size - 1) / slots.block_size;
  for (int g = 0; g < slots.num_groups; ++g) {
    const int64_t table = g * slots.tables_of_group() + slot * slots.max_blocks;
    for (int i = thread; i < num_blocks; i += kPlaceThreads)
      slots.block_tables[table + i] = __ldcv(tables + table + i);
  }
}

__global__ void __launch_bounds__(kFillThreads)
    FillRangeKernel(int32_t* values, int first, int count) {
  const auto i = static_cast<int>(blockIdx.x * kFillThreads + threadIdx.x);
  if (i < count) values[i] = first + i;
}

// Whether logits j + 1 are those of the draft that follows the token of logits j.
__device__ bool IsDraftOf(const StepTensors& drawn, int j) {
  return drawn.logit_slots[j + 1] == drawn.logit_slots[j] &&
         drawn.logit_positions[j + 1] == drawn.logit_positions[j] + 1;
}

// Where drafts are accepted whatever they are: of the token behind logits j.
__device__ bool IsForced(const SlotState& slots, const StepTensors& drawn, int j) {
  uint32_t hash = static_cast<uint32_t>(drawn.logit_positions[j]) * 0x9E3779B1U ^
                  static_cast<uint32_t>(drawn.logit_slots[j]) * 0x85EBCA77U;
  hash = (hash ^ hash >> 15) * 0x2C1B3C6DU;
  hash = (hash ^ hash >> 12) * 0x297A2D39U;
  return static_cast<float>(hash >> 8) * 0x1p-24F < slots.forced_acceptance;
}

__device__ bool IsAccepted(const SlotState& slots, const StepTensors& drawn, int j) {
  if (slots.forced_acceptance >= 0) return IsForced(slots, drawn, j);
  return drawn.sampled_ids[j] == drawn.ids[drawn.logit_rows[j + 1]];
}

// Whether the j-th are the first logits of a row whose token is drawn here.
__device__ bool BeginsRow(const StepTensors& drawn, int j) {
  const int slot = drawn.logit_slots[j];
  return slot >= 0 && (j == 0 || drawn.logit_slots[j - 1] != slot);
}

// The first child of a draft among the drafts [1, num_drafts] of the row whose logits begin with
// the j-th that is the token drawn there; 0: there is none. Parents stand before children.
__device__ int NextOfTree(const SlotState& slots, const StepTensors& drawn, int j, int draft,
                          int num_drafts) {
  const bool is_forced = slots.forced_acceptance >= 0;
  if (is_forced && !IsForced(slots, drawn, j + draft)) return 0;
  for (int next = draft + 1; next <= num_drafts; ++next)
    if (slots.tree->parents[next] == draft &&
        (is_forced || drawn.ids[j + next] == drawn.sampled_ids[j + draft]))
      return next;
  return 0;
}

// A thread for each row of the logits. Of decode rows, which come first, tokens are rows.
__global__ void __launch_bounds__(kEndThreads)
    AcceptTreesKernel(SlotState slots, StepTensors drawn, int num_logits) {
  BeginOverlapped();
  const auto j = static_cast<int>(blockIdx.x * kEndThreads + threadIdx.x);
  if (j >= num_logits || !BeginsRow(drawn, j)) return;
  const int slot = drawn.logit_slots[j];
  int num_drafts = 0;
  while (j + num_drafts + 1 < num_logits && drawn.logit_slots[j + num_drafts + 1] == slot)
    ++num_drafts;
  const int num_known = drawn.logit_positions[j];
  int32_t* const tokens = slots.tokens + static_cast<int64_t>(slot) * slots.max_tokens;
  uint64_t accepted = 0;
  int num_yielded = 0;
  for (int draft = 0;;) {
    if (num_known + num_yielded < slots.max_tokens)
      tokens[num_known + num_yielded] = drawn.sampled_ids[j + draft];
    ++num_yielded;
    draft = NextOfTree(slots, drawn, j, draft, num_drafts);
    if (draft == 0) break;
    accepted |= uint64_t{1} << (draft - 1);
  }
  slots.num_tokens[slot] = min(num_known + num_yielded, slots.max_tokens);
  drawn.accepted[j] = accepted;
  drawn.num_nodes[j] = num_drafts;
}

// CTA (row of the logits, layer).
__global__ void __launch_bounds__(kMoveThreads)
    MoveAcceptedKernel(MovedKv kv, int group, SlotState slots, StepTensors drawn) {
  BeginOverlapped();
  const auto j = static_cast<int>(blockIdx.x);
  if (!BeginsRow(drawn, j) || drawn.accepted[j] == 0) return;
  const int first = drawn.logit_positions[j];  // the place of node 0
  MoveKv(kv, group, slots, drawn.logit_slots[j], [&](const auto& move) {
    int to = first;
    for (uint64_t left = drawn.accepted[j]; left != 0; left &= left - 1, ++to)
      move(first + __ffsll(static_cast<long long>(left)) - 1, to);
  });
}

// A CTA for each row of the logits.
__global__ void __launch_bounds__(kMoveThreads)
    KeepStatesKernel(StepTensors drawn, const std::byte* states, std::byte* kept,
                     int64_t row_bytes) {
  BeginOverlapped();
  const auto j = static_cast<int>(blockIdx.x);
  if (!BeginsRow(drawn, j)) return;
  const int last = 64 - __clzll(static_cast<long long>(drawn.accepted[j]));  // the draft
  const auto* const from =
      reinterpret_cast<const uint4*>(states + drawn.logit_rows[j + last] * row_bytes);
  auto* const to = reinterpret_cast<uint4*>(kept + drawn.logit_slots[j] * row_bytes);
  for (auto i = static_cast<int>(threadIdx.x);
       i < static_cast<int>(row_bytes / static_cast<int64_t>(sizeof(uint4))); i += kMoveThreads)
    to[i] = from[i];
}

// Of the row whose logits begin with the j-th.
__device__ void Accept(const SlotState& slots, const StepTensors& drawn, int j, int num_logits,
                       StepOutputs& out) {
  const int slot = drawn.logit_slots[j];
  const int num_known = drawn.logit_positions[j];
  int32_t* const tokens = slots.tokens + static_cast<int64_t>(slot) * slots.max_tokens;
  int num_yielded = 0;
  int num_drafted = 0;
  for (bool is_accepted = true;; ++num_drafted) {
    const int at = j + num_drafted;
    if (is_accepted && num_known + num_yielded < slots.max_tokens)
      tokens[num_known + num_yielded] = drawn.sampled_ids[at];
    if (is_accepted) ++num_yielded;
    if (at + 1 >= num_logits || !IsDraftOf(drawn, at)) break;
    is_accepted = is_accepted && IsAccepted(slots, drawn, at);
  }
  slots.num_tokens[slot] = min(num_known + num_yielded, slots.max_tokens);
  out.num_yielded[j] = static_cast<int16_t>(num_yielded);
  out.num_drafted[j] = static_cast<int16_t>(num_drafted);
}

__global__ void __launch_bounds__(kEndThreads)
    EndStepKernel(SlotState slots, StepTensors drawn, int num_logits, StepOutputs* outputs,
                  uint64_t* num_done) {
  BeginOverlapped();
  const uint64_t step = *slots.num_steps;
  StepOutputs& out = outputs[step % kNumArenas];
  for (auto j = static_cast<int>(threadIdx.x); j < num_logits; j += kEndThreads) {
    out.ids[j] = drawn.sampled_ids[j];
    out.log_probs[j] = drawn.log_probs[j];
    out.log_probs_all[j] = drawn.log_probs_all[j];
    if (drawn.accepted != nullptr) {
      if (!BeginsRow(drawn, j)) continue;
      out.accepted[j] = drawn.accepted[j];
      out.num_yielded[j] = static_cast<int16_t>(1 + __popcll(drawn.accepted[j]));
      out.num_drafted[j] = static_cast<int16_t>(drawn.num_nodes[j]);
      continue;
    }
    if (drawn.logit_positions != nullptr && drawn.logit_slots[j] >= 0 &&
        (j == 0 || !IsDraftOf(drawn, j - 1)))
      Accept(slots, drawn, j, num_logits, out);
  }
  if (threadIdx.x == 0) {
    out.begin_ns = *slots.begin_ns;
    out.end_ns = NowNs();
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  const uint64_t count = step + 1;
  *slots.num_steps = count;
  __threadfence_system();
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(num_done), "l"(count) : "memory");
}

__global__ void BadLaunchKernel() {}

__global__ void TrapKernel() { __trap(); }

__global__ void SpinKernel(uint64_t duration_ns) {
  const uint64_t end = NowNs() + duration_ns;
  while (NowNs() < end) __nanosleep(10000);
}

}  // namespace

Status SetUpSlot(const SlotState& slots, int slot, const int32_t* tokens, int num_tokens,
                 const std::byte* prompt_table, cudaStream_t stream) {
  const int work = std::max(num_tokens, slots.max_blocks);
  const int blocks =
      std::min((work + 4 * kSetUpThreads - 1) / (4 * kSetUpThreads), kMaxSetUpBlocks);
  SetUpSlotKernel<<<blocks, kSetUpThreads, 0, stream>>>(slots, slot, tokens, num_tokens,
                                                        prompt_table);
  return LaunchStatus("set_up_slot");
}

Status PlaceBeams(const SlotState& slots, const BeamPlaces& places, const int32_t* tables,
                  const int32_t* tokens, cudaStream_t stream) {
  PlaceBeamsKernel<<<places.num_beams, kPlaceThreads, 0, stream>>>(slots, places, tables, tokens);
  return LaunchStatus("place_beams");
}

Status FillRange(int32_t* values, int first, int count, cudaStream_t stream) {
  const int blocks = (count + kFillThreads - 1) / kFillThreads;
  FillRangeKernel<<<blocks, kFillThreads, 0, stream>>>(values, first, count);
  return LaunchStatus("fill_range");
}

DraftingRows DraftingRowsOf(const scheduler::StepPlan& plan) {
  DraftingRows rows;
  for (int r = 0; r < plan.num_decode_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    if (row.num_draft_tokens > 0)
      rows.rows[rows.num_rows++] = {.slot = static_cast<uint16_t>(row.slot),
                                    .num_drafts = row.num_draft_tokens};
  }
  return rows;
}

Status LookUpDrafts(const DraftingRows& rows, const Guesses& guesses, const SlotState& slots,
                    cudaStream_t stream) {
  LookUpDraftsKernel<<<rows.num_rows, kLookUpThreads, 0, stream>>>(rows, guesses, slots);
  return LaunchStatus("look_up_drafts");
}

Status BeginStep(const StepArena* arenas, const SlotState& slots, const StepTensors& tensors,
                 const StepPadding& padding, cudaStream_t stream) {
  LaunchOverlapped(BeginStepKernel, 1, kBeginThreads, 0, stream, arenas, slots, tensors, padding);
  return LaunchStatus("begin_step");
}

Status ExpandPrefill(const SlotState& slots, const StepTensors& tensors, int num_decode_rows,
                     int num_rows, int num_tokens, cudaStream_t stream) {
  const int blocks = (num_tokens - num_decode_rows + kExpandThreads - 1) / kExpandThreads;
  LaunchOverlapped(ExpandPrefillKernel, blocks, kExpandThreads, 0, stream, slots, tensors,
                   num_decode_rows, num_rows, num_tokens);
  return LaunchStatus("expand_prefill");
}

Status AcceptTrees(const SlotState& slots, const StepTensors& tensors, int num_logits,
                   cudaStream_t stream) {
  LaunchOverlapped(AcceptTreesKernel, (num_logits + kEndThreads - 1) / kEndThreads, kEndThreads, 0,
                   stream, slots, tensors, num_logits);
  return LaunchStatus("accept_trees");
}

Status MoveAccepted(const ops::KvCacheView& kv, int group, const SlotState& slots,
                    const StepTensors& tensors, int num_logits, cudaStream_t stream) {
  if (kv.num_layers == 0) return Status::Ok();
  LaunchOverlapped(MoveAcceptedKernel,
                   dim3(static_cast<unsigned>(num_logits), static_cast<unsigned>(kv.num_layers)),
                   kMoveThreads, 0, stream, MovedKvOf(kv), group, slots, tensors);
  return LaunchStatus("move_accepted");
}

Status KeepStates(const StepTensors& tensors, int num_logits, const std::byte* states,
                  std::byte* kept, int64_t row_bytes, cudaStream_t stream) {
  CHECK_EQ(static_cast<size_t>(row_bytes) % sizeof(uint4), 0U);
  LaunchOverlapped(KeepStatesKernel, num_logits, kMoveThreads, 0, stream, tensors, states, kept,
                   row_bytes);
  return LaunchStatus("keep_states");
}

Status EndStep(const SlotState& slots, const StepTensors& tensors, int num_logits,
               StepOutputs* outputs, uint64_t* num_done, cudaStream_t stream) {
  LaunchOverlapped(EndStepKernel, 1, kEndThreads, 0, stream, slots, tensors, num_logits, outputs,
                   num_done);
  return LaunchStatus("end_step");
}

Status LaunchBadly(cudaStream_t stream) {
  BadLaunchKernel<<<1, 4096, 0, stream>>>();  // more threads than any GPU allows
  return LaunchStatus("injected fault");
}

Status LaunchTrap(cudaStream_t stream) {
  TrapKernel<<<1, 1, 0, stream>>>();
  return LaunchStatus("injected trap");
}

Status LaunchSpin(int seconds, cudaStream_t stream) {
  SpinKernel<<<1, 1, 0, stream>>>(static_cast<uint64_t>(seconds) * 1'000'000'000);
  return LaunchStatus("injected spin");
}

}  // namespace inflight::executor::cuda
