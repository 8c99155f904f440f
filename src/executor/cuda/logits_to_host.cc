// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/logits_to_host.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "executor/cuda/step_kernels.h"
#include "ops/cuda/cuda_stream.h"

namespace inflight::executor::cuda {

using inflight::cuda::ToStatus;

LogitsToHost::LogitsToHost(Device& device, const BackendInfo& info)
    : device_(device),
      vocab_size_(info.vocab_size),
      max_rows_(info.max_batch_size),
      max_tokens_(info.max_num_tokens),
      depth_(info.depth),
      rows_(info.max_slots, info.vocab_size, /*device_draws=*/true, /*max_concurrency=*/1) {
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
  if (is_search || output.return_generation_logits || output.num_top_log_probs > 0)
    wants.num_rows = is_search ? static_cast<int>(setup.beam_slots.size()) : 1;
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
  for (const Wants& wants : wants_) {
    num_rows += wants.num_rows;
    num_context += wants.num_context;
  }
  const auto most = static_cast<size_t>(max_rows_ + max_tokens_);
  const auto wanted = static_cast<size_t>(std::min<int64_t>(num_rows, max_rows_) +
                                          std::min<int64_t>(num_context, max_tokens_));
  if (wanted <= num_buffer_rows_) return Status::Ok();
  const size_t buffer_rows = std::min(std::bit_ceil(wanted), most);
  const size_t bytes = buffer_rows * static_cast<size_t>(vocab_size_) * sizeof(float);
  std::vector<PinnedBuffer> buffers;
  for (int i = 0; i < depth_; ++i) {
    ASSIGN_OR_RETURN(PinnedBuffer buffer, PinnedBuffer::Allocate(device_, bytes));
    buffers.push_back(std::move(buffer));
  }
  for (const PinnedBuffer& buffer : free_) pinned_bytes_ -= buffer.size();
  for (const PinnedBuffer& buffer : buffers) pinned_bytes_ += buffer.size();
  free_ = std::move(buffers);
  num_buffer_rows_ = buffer_rows;
  return Status::Ok();
}

void LogitsToHost::Find(const StepPlan& plan, Step* step) {
  step->rows = rows_.Find(plan, &step->memory);
  step->context.clear();
  size_t num_rows = step->rows.size();
  int first_token = 0;
  for (int r = 0; r < plan.num_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    const HostRows::Range wanted = rows_.ContextTokens(row);
    if (wanted.size() > 0) {
      step->context.push_back({.plan_row = r,
                               .first_token = first_token + wanted.begin - row.first_position,
                               .num_tokens = wanted.size()});
      num_rows += static_cast<size_t>(wanted.size());
    }
    first_token += row.num_query_tokens;
  }
  if (step->empty()) return;
  CHECK(!free_.empty());
  CHECK_LE(num_rows, num_buffer_rows_);
  step->buffer = std::move(free_.back());
  free_.pop_back();
  for (size_t i = 0; i < step->rows.size(); ++i) step->rows[i].logits = RowOf(*step, i);
}

void LogitsToHost::Release(Step* step) {
  const size_t bytes = num_buffer_rows_ * static_cast<size_t>(vocab_size_) * sizeof(float);
  PinnedBuffer buffer = std::move(step->buffer);
  if (buffer.size() == bytes)
    free_.push_back(std::move(buffer));
  else
    pinned_bytes_ -= buffer.size();
  step->rows = {};
  step->context.clear();
}

// Rows that follow each other are one copy.
Status LogitsToHost::CopyRows(const Step& step, const float* logits, int32_t* logit_slots,
                              cudaStream_t stream) const {
  const auto row_bytes = static_cast<size_t>(vocab_size_) * sizeof(float);
  const std::span<HostRows::Row> rows = step.rows;
  for (size_t begin = 0; begin < rows.size();) {
    const bool is_search = rows[begin].search != nullptr;
    const auto follows = [&](size_t i) {
      return rows[i].logit == rows[i - 1].logit + 1 && (rows[i].search != nullptr) == is_search;
    };
    size_t end = begin + 1;
    while (end < rows.size() && follows(end)) ++end;
    const auto first = static_cast<size_t>(rows[begin].logit);
    RETURN_IF_ERROR(ToStatus(
        cudaMemcpyAsync(rows[begin].logits, logits + first * static_cast<size_t>(vocab_size_),
                        (end - begin) * row_bytes, cudaMemcpyDeviceToHost, stream),
        "copying logits to the host"));
    if (is_search)  // -1 in each
      RETURN_IF_ERROR(ToStatus(
          cudaMemsetAsync(logit_slots + first, 0xff, (end - begin) * sizeof(int32_t), stream),
          "leaving rows out of sampling"));
    begin = end;
  }
  return Status::Ok();
}

// As many tokens at a time as the decoder has room for.
Status LogitsToHost::CopyContext(const Step& step, int32_t* logit_rows, model::Decoder* decoder,
                                 Stream* stream) const {
  cudaStream_t const handle = ops::cuda::AsCuda(*stream).handle();
  size_t next = step.rows.size();
  for (const Context& context : step.context) {
    for (int done = 0; done < context.num_tokens;) {
      const int n = std::min(context.num_tokens - done, max_rows_);
      RETURN_IF_ERROR(FillRange(logit_rows, context.first_token + done, n, handle));
      ASSIGN_OR_RETURN(const TensorView logits,
                       decoder->Logits({logit_rows, DType::kI32, {n}}, *stream));
      RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(RowOf(step, next), logits.data, logits.num_bytes(),
                                               cudaMemcpyDeviceToHost, handle),
                               "copying logits of a prompt to the host"));
      next += static_cast<size_t>(n);
      done += n;
    }
  }
  return Status::Ok();
}

void LogitsToHost::Read(const Step& step) {
  device_.cpu_pool().ParallelFor(
      std::ssize(step.rows), [&](int64_t i) { rows_.Read(&step.rows[static_cast<size_t>(i)]); });
}

void LogitsToHost::ReturnContext(const Step& step, StepResult* result) const {
  size_t next = step.rows.size();
  for (const Context& context : step.context) {
    AppendRows(RowOf(step, next), context.num_tokens, vocab_size_,
               &result->LogitsOf(context.plan_row).context);
    next += static_cast<size_t>(context.num_tokens);
  }
}

}  // namespace inflight::executor::cuda
