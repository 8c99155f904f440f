// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "executor/cuda/stage_drafts.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/overlap.cuh"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

constexpr int kDraftThreads = 32;
constexpr int kIdsOfVector = 4;  // rows between stages are vectors of 16 bytes

// A CTA for each row.
__global__ void __launch_bounds__(kDraftThreads)
    PackDraftsKernel(const __grid_constant__ DraftingRows rows, SlotState slots, int32_t* ids,
                     int stride) {
  ops::cuda::BeginOverlapped();
  const auto row = rows.rows[blockIdx.x];
  const int32_t* const tokens = slots.tokens + static_cast<int64_t>(row.slot) * slots.max_tokens;
  const int num_tokens = slots.num_tokens[row.slot];
  for (auto i = static_cast<int>(threadIdx.x); i < row.num_drafts; i += kDraftThreads)
    ids[static_cast<int64_t>(blockIdx.x) * stride + i] =
        num_tokens + i < slots.max_tokens ? tokens[num_tokens + i] : -1;
}

__global__ void __launch_bounds__(kDraftThreads)
    PlaceDraftsKernel(const __grid_constant__ DraftingRows rows, SlotState slots,
                      const int32_t* ids, int stride) {
  ops::cuda::BeginOverlapped();
  const auto row = rows.rows[blockIdx.x];
  int32_t* const tokens = slots.tokens + static_cast<int64_t>(row.slot) * slots.max_tokens;
  const int num_tokens = slots.num_tokens[row.slot];
  for (auto i = static_cast<int>(threadIdx.x); i < row.num_drafts; i += kDraftThreads)
    if (num_tokens + i < slots.max_tokens)
      tokens[num_tokens + i] = ids[static_cast<int64_t>(blockIdx.x) * stride + i];
}

int StrideOf(const MemoryPlan& plan) {
  return (plan.max_draft_len + kIdsOfVector - 1) / kIdsOfVector * kIdsOfVector;
}

}  // namespace

Status PackDrafts(const DraftingRows& rows, const SlotState& slots, int32_t* ids, int stride,
                  cudaStream_t stream) {
  ops::cuda::LaunchOverlapped(PackDraftsKernel, static_cast<unsigned>(rows.num_rows), kDraftThreads,
                              0, stream, rows, slots, ids, stride);
  return inflight::cuda::LaunchStatus("drafts for the next stage");
}

Status PlaceDrafts(const DraftingRows& rows, const SlotState& slots, const int32_t* ids, int stride,
                   cudaStream_t stream) {
  ops::cuda::LaunchOverlapped(PlaceDraftsKernel, static_cast<unsigned>(rows.num_rows),
                              kDraftThreads, 0, stream, rows, slots, ids, stride);
  return inflight::cuda::LaunchStatus("drafts of the stage before");
}

uint64_t StageDrafts::Bytes(const MemoryPlan& plan) {
  if (plan.num_stages == 1 || plan.drafts != DraftSource::kModel) return 0;
  const int num_rows = std::min(plan.max_batch_size, DraftingRows::kMaxRows);
  return static_cast<uint64_t>(num_rows) * static_cast<uint64_t>(StrideOf(plan)) * sizeof(int32_t);
}

Result<std::unique_ptr<StageDrafts>> StageDrafts::Create(const MemoryPlan& plan,
                                                         const model::RankPart& part,
                                                         comm::Communicator* pipeline,
                                                         Device& device) {
  const uint64_t bytes = Bytes(plan);
  if (bytes == 0) return std::unique_ptr<StageDrafts>();
  CHECK(pipeline != nullptr);
  std::unique_ptr<StageDrafts> made(new StageDrafts(part, *pipeline, StrideOf(plan)));
  ASSIGN_OR_RETURN(made->ids_, Buffer::Allocate(device, "drafts between stages", bytes));
  return Result<std::unique_ptr<StageDrafts>>(std::move(made));
}

TensorView StageDrafts::Ids(int num_rows) const {
  const TensorView ids = {ids_.data(), DType::kI32, {int64_t{num_rows} * stride_}};
  CHECK_LE(ids.num_bytes(), ids_.size());
  return ids;
}

Status StageDrafts::Take(const scheduler::StepPlan& plan, const SlotState& slots, Stream& stream) {
  const DraftingRows rows = DraftingRowsOf(plan);
  if (part_.is_first_stage() || rows.num_rows == 0) return Status::Ok();
  RETURN_IF_ERROR(pipeline_.Receive(Ids(rows.num_rows), part_.pp_rank - 1, stream));
  return PlaceDrafts(rows, slots, reinterpret_cast<const int32_t*>(ids_.data()), stride_,
                     ops::cuda::AsCuda(stream).handle());
}

Status StageDrafts::Hand(const scheduler::StepPlan& plan, const SlotState& slots, Stream& stream) {
  const DraftingRows rows = DraftingRowsOf(plan);
  if (part_.is_last_stage() || rows.num_rows == 0) return Status::Ok();
  // A stage between has them as they came.
  if (part_.is_first_stage())
    RETURN_IF_ERROR(PackDrafts(rows, slots, reinterpret_cast<int32_t*>(ids_.data()), stride_,
                               ops::cuda::AsCuda(stream).handle()));
  return pipeline_.Send(Ids(rows.num_rows), part_.pp_rank + 1, stream);
}

}  // namespace inflight::executor::cuda
