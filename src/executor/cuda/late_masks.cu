// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "decoding/weights.h"
#include "executor/cuda/late_masks.h"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::LaunchStatus;
using inflight::cuda::ToStatus;

constexpr int kThreads = 256;
constexpr int kWordBits = 32;

size_t NumWordsOf(int vocab_size) {
  return (static_cast<size_t>(vocab_size) + kWordBits - 1) / kWordBits;
}

size_t BytesOf(int max_rows, int vocab_size) {
  return static_cast<size_t>(max_rows) * (1 + NumWordsOf(vocab_size)) * sizeof(uint32_t);
}

// CTA (part of the vocabulary, mask). A warp has the logits of one word.
__global__ void __launch_bounds__(kThreads)
    BanKernel(const int32_t* rows, const uint32_t* masks, size_t num_words, int vocab_size,
              float* logits) {
  const int token = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (token >= vocab_size) return;
  const uint32_t word = masks[blockIdx.y * num_words + token / kWordBits];
  if ((word >> (token % kWordBits) & 1) != 0) return;
  logits[static_cast<size_t>(rows[blockIdx.y]) * vocab_size + token] = decoding::kBanned;
}

}  // namespace

LateMasks::LateMasks(int max_rows, int vocab_size)
    : max_rows_(max_rows), vocab_size_(vocab_size), num_words_(NumWordsOf(vocab_size)) {}

LateMasks::~LateMasks() {
  if (sends_ != nullptr) cudaStreamSynchronize(sends_);
  if (sent_ != nullptr) cudaEventDestroy(sent_);
  if (sends_ != nullptr) cudaStreamDestroy(sends_);
}

uint64_t LateMasks::Bytes(const MemoryPlan& plan) {
  return BytesOf(plan.max_logits(), plan.prompt_rows.vocab_size);
}

Result<std::unique_ptr<LateMasks>> LateMasks::Create(const MemoryPlan& plan, Device& device) {
  std::unique_ptr<LateMasks> made(new LateMasks(plan.max_logits(), plan.prompt_rows.vocab_size));
  ASSIGN_OR_RETURN(made->device_, Buffer::Allocate(device, "masks of guides", Bytes(plan)));
  ASSIGN_OR_RETURN(made->host_, PinnedBuffer::Allocate(device, Bytes(plan)));
  RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&made->sends_, cudaStreamNonBlocking),
                           "cudaStreamCreate"));
  RETURN_IF_ERROR(
      ToStatus(cudaEventCreateWithFlags(&made->sent_, cudaEventDisableTiming), "cudaEventCreate"));
  return Result<std::unique_ptr<LateMasks>>(std::move(made));
}

void LateMasks::Add(int logit_row, std::span<const uint32_t> allowed) {
  CHECK_LT(num_rows_, max_rows_);
  CHECK_EQ(allowed.size(), num_words_);
  auto* const rows = reinterpret_cast<int32_t*>(host_.data());
  auto* const masks = reinterpret_cast<uint32_t*>(rows + max_rows_);
  rows[num_rows_] = logit_row;
  std::ranges::copy(allowed, masks + static_cast<size_t>(num_rows_) * num_words_);
  ++num_rows_;
}

Status LateMasks::Send() {
  if (num_rows_ == 0) return Status::Ok();
  const size_t num_bytes =
      BytesOf(max_rows_, 0) + static_cast<size_t>(num_rows_) * num_words_ * sizeof(uint32_t);
  RETURN_IF_ERROR(ToStatus(
      cudaMemcpyAsync(device_.data(), host_.data(), num_bytes, cudaMemcpyHostToDevice, sends_),
      "sending masks"));
  return ToStatus(cudaEventRecord(sent_, sends_), "cudaEventRecord");
}

Status LateMasks::Apply(float* logits, cudaStream_t stream) {
  if (num_rows_ == 0) return Status::Ok();
  RETURN_IF_ERROR(ToStatus(cudaStreamWaitEvent(stream, sent_), "waiting for masks"));
  const auto* const rows = reinterpret_cast<const int32_t*>(device_.data());
  const dim3 ctas(static_cast<unsigned>((vocab_size_ + kThreads - 1) / kThreads),
                  static_cast<unsigned>(num_rows_));
  BanKernel<<<ctas, kThreads, 0, stream>>>(
      rows, reinterpret_cast<const uint32_t*>(rows + max_rows_), num_words_, vocab_size_, logits);
  num_rows_ = 0;
  return LaunchStatus("masks of guides");
}

}  // namespace inflight::executor::cuda
