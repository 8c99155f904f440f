// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/logits_to_host.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "executor/cuda/step_kernels.h"
#include "ops/cuda/cuda_stream.h"

namespace inflight::executor::cuda {

using decoding::BestLogits;
using decoding::DeviceSampleParams;
using decoding::DeviceSampler;
using inflight::cuda::ToStatus;

LogitsToHost::LogitsToHost(Device& device, const BackendInfo& info, int max_rows)
    : device_(device),
      vocab_size_(info.vocab_size),
      max_rows_(max_rows),
      max_drafts_(info.max_tokens_per_row - 1),
      max_tokens_(info.max_num_tokens),
      depth_(info.depth),
      rows_(info.max_slots, info.vocab_size, /*device_draws=*/true,
            device.cpu_pool().num_threads()) {
  wants_.resize(static_cast<size_t>(info.max_slots));
}

Status LogitsToHost::SetUp(const SlotSetup& setup) {
  Wants& wants = wants_[static_cast<size_t>(setup.slot)];
  wants = {};
  if (!HostRows::AreWanted(*setup.request)) {
    rows_.Clear(setup.slot);
    return Status::Ok();
  }
  const OutputOptions& output = setup.request->output;
  const bool is_search = !setup.beam_slots.empty();
  wants.best = HostRows::NumBest(*setup.request) > 0;
  if (!wants.best && is_search) {
    wants.num_rows = static_cast<int>(setup.beam_slots.size());
  } else if (output.return_generation_logits || output.num_top_log_probs > 0 ||
             !setup.request->draft_ids.empty()) {
    wants.num_rows = 1 + max_drafts_;
  }
  if (setup.context_logits_from)
    wants.num_context = setup.num_prompt_tokens - *setup.context_logits_from;
  for (const SlotId beam : setup.beam_slots)
    if (beam != setup.slot) wants_[static_cast<size_t>(beam)] = {};
  const Status reserved = Reserve();
  if (!reserved.ok()) {
    wants = {};
    rows_.Clear(setup.slot);
    return reserved.WithPrefix("logits for the host");
  }
  rows_.SetUp(setup);
  return Status::Ok();
}

// Buffers that hold whatever a step may have of the slots as they are.
Status LogitsToHost::Reserve() {
  int64_t num_rows = 0;
  int64_t num_context = 0;
  bool any_best = false;
  for (const Wants& wants : wants_) {
    num_rows += wants.num_rows;
    num_context += wants.num_context;
    any_best |= wants.best;
  }
  const auto most = static_cast<size_t>(max_rows_ + max_tokens_);
  const auto wanted = static_cast<size_t>(std::min<int64_t>(num_rows, max_rows_) +
                                          std::min<int64_t>(num_context, max_tokens_));
  if (wanted > 0)
    RETURN_IF_ERROR(
        Grow(&whole_, wanted * RowBytes(), std::min(std::bit_ceil(wanted), most) * RowBytes()));
  if (!any_best) return Status::Ok();
  const size_t best_bytes =
      static_cast<size_t>(max_rows_) * BestLogits::Bytes(BestLogits::kMaxCount);
  return Grow(&best_, best_bytes, best_bytes);
}

// Unless buffers hold `wanted` bytes already, `depth_` new ones of `num_bytes`.
Status LogitsToHost::Grow(Pool* pool, size_t wanted, size_t num_bytes) {
  if (wanted <= pool->buffer_bytes) return Status::Ok();
  std::vector<PinnedBuffer> buffers;
  for (int i = 0; i < depth_; ++i) {
    ASSIGN_OR_RETURN(PinnedBuffer buffer, PinnedBuffer::Allocate(device_, num_bytes));
    buffers.push_back(std::move(buffer));
  }
  for (const auto* left : {&pool->free, &pool->outgrown})
    for (const PinnedBuffer& buffer : *left) pinned_bytes_ -= buffer.size();
  pool->outgrown.clear();
  for (const PinnedBuffer& buffer : buffers) pinned_bytes_ += buffer.size();
  pool->free = std::move(buffers);
  pool->buffer_bytes = num_bytes;
  return Status::Ok();
}

PinnedBuffer LogitsToHost::Take(Pool* pool, size_t num_bytes) {
  if (num_bytes == 0) return {};
  CHECK(!pool->free.empty());
  CHECK_LE(num_bytes, pool->buffer_bytes);
  PinnedBuffer buffer = std::move(pool->free.back());
  pool->free.pop_back();
  return buffer;
}

void LogitsToHost::GiveBack(Pool* pool, PinnedBuffer buffer) {
  if (buffer.size() == 0) return;
  auto& kept = buffer.size() == pool->buffer_bytes ? pool->free : pool->outgrown;
  kept.push_back(std::move(buffer));
}

void LogitsToHost::Find(const StepPlan& plan, Step* step) {
  step->rows = rows_.Find(plan, &step->memory);
  rows_.FindContext(plan, &step->context);
  size_t num_rows = 0;
  size_t best_bytes = 0;
  for (const HostRows::Row& row : step->rows) {
    num_rows += row.num_best == 0 ? 1 + static_cast<size_t>(row.num_drafts) : 0;
    best_bytes += row.num_best == 0 ? 0 : BestLogits::Bytes(row.num_best);
  }
  step->num_whole = num_rows;
  for (const HostRows::Context& context : step->context)
    num_rows += static_cast<size_t>(context.num_tokens);
  step->buffer = Take(&whole_, num_rows * RowBytes());
  step->best = Take(&best_, best_bytes);
  size_t next = 0;
  std::byte* best = step->best.data();
  for (HostRows::Row& row : step->rows) {
    if (row.num_best == 0) {
      row.logits = RowOf(*step, next);
      next += 1 + static_cast<size_t>(row.num_drafts);
      continue;
    }
    row.best = reinterpret_cast<BestLogits*>(best);
    best += BestLogits::Bytes(row.num_best);
  }
}

void LogitsToHost::Release(Step* step) {
  GiveBack(&whole_, std::move(step->buffer));
  GiveBack(&best_, std::move(step->best));
  step->rows = {};
  step->context.clear();
}

// Rows of one kind that follow each other are one copy, or one kernel.
Status LogitsToHost::CopyRows(const Step& step, const DeviceSampler& sampler,
                              const DeviceSampleParams& params, int32_t* logit_slots,
                              Stream* stream) const {
  cudaStream_t const handle = ops::cuda::AsCuda(*stream).handle();
  const std::span<HostRows::Row> rows = step.rows;
  for (size_t begin = 0; begin < rows.size();) {
    const HostRows::Row& row = rows[begin];
    const bool is_search = row.search != nullptr;
    const auto follows = [&](size_t i) {
      return rows[i].logit == rows[i - 1].logit + 1 + rows[i - 1].num_drafts &&
             rows[i].num_best == row.num_best && (rows[i].search != nullptr) == is_search;
    };
    size_t end = begin + 1;
    while (end < rows.size() && follows(end)) ++end;
    const auto first = static_cast<size_t>(row.logit);
    DeviceSampleParams run = params;
    run.row_slots += first;
    const int num_rows = rows[end - 1].logit + 1 + rows[end - 1].num_drafts - row.logit;
    run.num_rows = num_rows;
    run.logits += first * static_cast<size_t>(vocab_size_);
    if (run.row_positions != nullptr) run.row_positions += first;
    if (run.row_shifts != nullptr) run.row_shifts += first * DeviceSampleParams::kTextShifts;
    if (row.num_best > 0)
      RETURN_IF_ERROR(sampler.FindBest(run, row.num_best, row.best, *stream));
    else
      RETURN_IF_ERROR(ToStatus(
          cudaMemcpyAsync(row.logits, run.logits, static_cast<size_t>(num_rows) * RowBytes(),
                          cudaMemcpyDeviceToHost, handle),
          "copying logits to the host"));
    if (is_search)  // -1 in each
      RETURN_IF_ERROR(
          ToStatus(cudaMemsetAsync(logit_slots + first, 0xff,
                                   static_cast<size_t>(num_rows) * sizeof(int32_t), handle),
                   "leaving rows out of sampling"));
    begin = end;
  }
  return Status::Ok();
}

// As many tokens at a time as the decoder has room for.
Status LogitsToHost::CopyContext(const Step& step, int32_t* rows, model::Decoder* decoder,
                                 Stream* stream) const {
  cudaStream_t const handle = ops::cuda::AsCuda(*stream).handle();
  size_t next = step.num_whole;
  for (const HostRows::Context& context : step.context) {
    for (int done = 0; done < context.num_tokens;) {
      const int n = std::min(context.num_tokens - done, max_rows_);
      RETURN_IF_ERROR(FillRange(rows, context.first_token + done, n, handle));
      ASSIGN_OR_RETURN(const TensorView logits, decoder->Logits({rows, DType::kI32, {n}}, *stream));
      RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(RowOf(step, next), logits.data, logits.num_bytes(),
                                               cudaMemcpyDeviceToHost, handle),
                               "copying logits of a prompt to the host"));
      next += static_cast<size_t>(n);
      done += n;
    }
  }
  return Status::Ok();
}

// Other threads help with whole rows alone: waking them takes longer than reading what was chosen.
void LogitsToHost::Read(const Step& step, const std::function<void(HostRows::Row*)>& read) {
  if (step.num_whole > 0)
    return device_.cpu_pool().ParallelFor(
        std::ssize(step.rows), [&](int64_t i) { read(&step.rows[static_cast<size_t>(i)]); });
  for (HostRows::Row& row : step.rows) read(&row);
}

void LogitsToHost::ReturnContext(const Step& step, StepResult* result) const {
  size_t next = step.num_whole;
  for (const HostRows::Context& context : step.context) {
    AppendRows(RowOf(step, next), context.num_tokens, vocab_size_,
               &result->LogitsOf(context.plan_row).context);
    next += static_cast<size_t>(context.num_tokens);
  }
}

}  // namespace inflight::executor::cuda
