// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "executor/cuda/drafts_to_host.h"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::LaunchStatus;

constexpr int kSendThreads = 256;
constexpr size_t kCountBytes = 128;  // a line

// One CTA, which says when all are there. -1 where there is no draft.
__global__ void __launch_bounds__(kSendThreads)
    SendDraftsKernel(const __grid_constant__ DraftingRows rows, SlotState slots, int max_drafts,
                     int32_t* ids, uint64_t* num_done, uint64_t count) {
  for (auto i = static_cast<int>(threadIdx.x); i < rows.num_rows * max_drafts; i += kSendThreads) {
    const auto row = rows.rows[i / max_drafts];
    const int draft = i % max_drafts;
    const int place = slots.num_tokens[row.slot] + draft;
    const bool is_there = draft < row.num_drafts && place < slots.max_tokens;
    ids[i] =
        is_there ? slots.tokens[static_cast<int64_t>(row.slot) * slots.max_tokens + place] : -1;
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(num_done), "l"(count) : "memory");
}

}  // namespace

DraftsToHost::DraftsToHost(const MemoryPlan& plan)
    : max_drafts_(plan.max_draft_len), vocab_size_(plan.prompt_rows.vocab_size) {
  slots_.reserve(DraftingRows::kMaxRows);
}

Result<std::unique_ptr<DraftsToHost>> DraftsToHost::Create(const MemoryPlan& plan, Device& device) {
  std::unique_ptr<DraftsToHost> made(new DraftsToHost(plan));
  const size_t num_ids =
      static_cast<size_t>(DraftingRows::kMaxRows) * static_cast<size_t>(plan.max_draft_len);
  ASSIGN_OR_RETURN(made->memory_,
                   PinnedBuffer::Allocate(device, kCountBytes + num_ids * sizeof(int32_t)));
  made->num_done_ = reinterpret_cast<uint64_t*>(made->memory_.data());
  made->ids_ = reinterpret_cast<int32_t*>(made->memory_.data() + kCountBytes);
  *made->num_done_ = 0;
  return Result<std::unique_ptr<DraftsToHost>>(std::move(made));
}

Status DraftsToHost::Send(const scheduler::StepPlan& plan, bool of_all, const SlotState& slots,
                          cudaStream_t stream) {
  DraftingRows rows;
  slots_.clear();
  for (int r = 0; r < plan.num_decode_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    if (row.num_draft_tokens == 0 || (!of_all && row.has_late_inputs == 0)) continue;
    CHECK_LT(rows.num_rows, DraftingRows::kMaxRows);
    rows.rows[rows.num_rows++] = {.slot = static_cast<uint16_t>(row.slot),
                                  .num_drafts = row.num_draft_tokens};
    slots_.push_back(row.slot);
  }
  if (rows.num_rows == 0) return Status::Ok();
  SendDraftsKernel<<<1, kSendThreads, 0, stream>>>(rows, slots, max_drafts_, ids_, num_done_,
                                                   ++num_sent_);
  return LaunchStatus("send_drafts");
}

std::span<const TokenId> DraftsToHost::Of(SlotId slot) const {
  const auto row = std::ranges::find(slots_, slot);
  CHECK(row != slots_.end());
  const std::span<const int32_t> ids(ids_ + (row - slots_.begin()) * max_drafts_,
                                     static_cast<size_t>(max_drafts_));
  const auto is_none = [this](int32_t id) { return id < 0 || id >= vocab_size_; };
  return ids.first(static_cast<size_t>(std::ranges::find_if(ids, is_none) - ids.begin()));
}

}  // namespace inflight::executor::cuda
