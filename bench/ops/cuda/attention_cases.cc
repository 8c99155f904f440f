// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "cases.h"
#include "llama_3_8b.h"
#include "ops/cuda/kernels.h"

namespace inflight::bench {
namespace {

using ops::SequenceRow;
using ops::Tensor;

constexpr int kNumHeads = kShape.num_heads;
constexpr int kNumKvHeads = kShape.num_kv_heads;
constexpr int kHeadDim = kShape.head_dim;
constexpr int kBlockSize = 64;
constexpr int64_t kQkvWidth = (kNumHeads + 2 * kNumKvHeads) * kHeadDim;
constexpr float kScales[2] = {0.5F, 0.25F};

// A step of attention: its rows' blocks lie in random order in a cache of which each call has its
// own.
class Step {
 public:
  Step(CudaBench& bench, const std::vector<SequenceRow>& rows, bool is_decode, DType kv_dtype,
       ops::SlidingWindow sliding = {})
      : bench_(bench), kv_dtype_(kv_dtype), sliding_(sliding) {
    std::vector<int> cu_seqlens = {0};
    std::vector<int> seq_lens;
    int max_blocks = 0;
    for (const SequenceRow& row : rows) {
      cu_seqlens.push_back(cu_seqlens.back() + row.num_queries);
      seq_lens.push_back(row.seq_len);
      const int blocks = (row.seq_len + kBlockSize - 1) / kBlockSize;
      max_blocks = std::max(max_blocks, blocks);
      num_blocks_ += blocks;
    }
    std::vector<int> order(static_cast<size_t>(num_blocks_));
    std::iota(order.begin(), order.end(), 0);
    ops::Random random(7);
    for (size_t i = order.size() - 1; i > 0; --i)
      std::swap(order[i], order[static_cast<size_t>(random.Below(static_cast<int>(i) + 1))]);
    std::vector<int> tables(rows.size() * static_cast<size_t>(max_blocks), 0);
    size_t next = 0;
    for (size_t r = 0; r < rows.size(); ++r)
      for (int i = 0; i < (rows[r].seq_len + kBlockSize - 1) / kBlockSize; ++i)
        tables[r * static_cast<size_t>(max_blocks) + static_cast<size_t>(i)] = order[next++];

    const auto num_rows = static_cast<int>(rows.size());
    const auto upload = [&](ops::DeviceTensor& to, const std::vector<int>& values) {
      to = ops::DeviceTensor(bench.device(), Tensor::Int32(values));
      return to.view();
    };
    batch_ = {.num_rows = num_rows,
              .num_tokens = cu_seqlens.back(),
              .cu_seqlens_q = upload(cu_seqlens_, cu_seqlens),
              .seq_lens_kv = upload(seq_lens_, seq_lens),
              .block_tables = upload(tables_, tables),
              .num_decode_rows = is_decode ? num_rows : 0};
    batch_.block_tables.shape = {num_rows, max_blocks};
    cache_ =
        Rotation(bench.device(), kv_dtype, {num_blocks_, 2, kNumKvHeads, kBlockSize, kHeadDim});
    qkv_ = Rotation(bench.device(), DType::kBF16, {batch_.num_tokens, kQkvWidth});
    y_ = Rotation(bench.device(), DType::kBF16, {batch_.num_tokens, kNumHeads * kHeadDim});
    ops::Must(Plan());
    ops::Synchronize();
  }

  Status Plan() {
    return ops::cuda::PlanAttention(
        {.batch = batch_, .kv = View(nullptr), .num_heads = kNumHeads, .sliding = sliding_},
        bench_.stream());
  }

  Status Launch(int call) {
    return ops::cuda::Attention({.q = {.data = qkv_.At(call).data,
                                       .dtype = DType::kBF16,
                                       .shape = {batch_.num_tokens, kNumHeads, kHeadDim}},
                                 .q_stride = kQkvWidth,
                                 .batch = batch_,
                                 .kv = View(static_cast<std::byte*>(cache_.At(call).data)),
                                 .layer = 0,
                                 .scale = 1 / std::sqrt(static_cast<float>(kHeadDim)),
                                 .sliding = sliding_,
                                 .y = y_.At(call)},
                                bench_.stream());
  }

 private:
  ops::KvCacheView View(std::byte* data) const {
    return {.data = data,
            .dtype = kv_dtype_,
            .num_layers = 1,
            .num_blocks = num_blocks_,
            .num_kv_heads = kNumKvHeads,
            .block_size = kBlockSize,
            .head_dim = kHeadDim,
            .scales = kv_dtype_ == DType::kF8E4M3 ? kScales : nullptr};
  }

  CudaBench& bench_;
  const DType kv_dtype_;
  const ops::SlidingWindow sliding_;
  int num_blocks_ = 0;
  ops::PagedBatch batch_;
  ops::DeviceTensor cu_seqlens_, seq_lens_, tables_;
  Rotation cache_, qkv_, y_;
};

void DecodeCases(CudaBench& bench) {
  if (!bench.Wants("attention_decode")) return;
  for (const int seq_len : {128, 1024, 4096, 32768})
    for (const int num_rows : {1, 4, 16, 64, 256, 1024})
      for (const DType kv_dtype : {DType::kBF16, DType::kF8E4M3}) {
        if (seq_len == 32768 ? num_rows > 1 : seq_len * num_rows > 1 << 20) continue;
        Step step(bench, std::vector<SequenceRow>(static_cast<size_t>(num_rows), {1, seq_len}),
                  /*is_decode=*/true, kv_dtype);
        bench.Time({.kernel = "attention_decode",
                    .shape = fmt::format("{}x{}", num_rows, seq_len),
                    .dtype = kv_dtype,
                    .bytes = double{2} * kNumKvHeads * kHeadDim * num_rows * seq_len *
                             static_cast<double>(SizeOf(kv_dtype)),
                    .launch = [&](int call) { return step.Launch(call); }});
        if (kv_dtype == DType::kBF16)
          bench.Time({.kernel = "attention_decode_plan",
                      .shape = fmt::format("{}x{}", num_rows, seq_len),
                      .dtype = kv_dtype,
                      .bytes = 0,
                      .launch = [&](int) { return step.Plan(); }});
      }
}

void PrefillCases(CudaBench& bench) {
  if (!bench.Wants("attention_prefill")) return;
  struct Prompts {
    int num_rows, num_tokens, seq_len;
  };
  for (const Prompts& p : {Prompts{1, 128, 128},
                           {1, 512, 512},
                           {1, 2048, 2048},
                           {4, 2048, 2048},
                           {1, 4096, 4096},
                           {1, 8192, 8192},
                           {16, 512, 512},
                           {64, 128, 128},
                           {1, 512, 16384}})
    for (const DType kv_dtype : {DType::kBF16, DType::kF8E4M3}) {
      Step step(
          bench,
          std::vector<SequenceRow>(static_cast<size_t>(p.num_rows), {p.num_tokens, p.seq_len}),
          /*is_decode=*/false, kv_dtype);
      const double past = p.seq_len - p.num_tokens;
      const double n = p.num_tokens;
      const std::string shape = fmt::format("{}x{}/{}", p.num_rows, p.num_tokens, p.seq_len);
      bench.Time({.kernel = "attention_prefill",
                  .shape = shape,
                  .dtype = kv_dtype,
                  .bytes = 0,
                  .flop = 4.0 * kNumHeads * kHeadDim * p.num_rows * (n * past + n * (n + 1) / 2),
                  .launch = [&](int call) { return step.Launch(call); }});
      if (kv_dtype == DType::kBF16)
        bench.Time({.kernel = "attention_prefill_plan",
                    .shape = shape,
                    .dtype = kv_dtype,
                    .bytes = 0,
                    .launch = [&](int) { return step.Plan(); }});
    }
}

// Beside the same sequences without a window. Bytes are those of the keys that are seen.
void WindowCases(CudaBench& bench) {
  if (!bench.Wants("attention_window")) return;
  struct Rows {
    int num_rows, num_tokens, seq_len, window;
  };
  for (const Rows& r : {Rows{1, 1, 32768, 0},
                        {1, 1, 32768, 4096},
                        {16, 1, 32768, 0},
                        {16, 1, 32768, 4096},
                        {64, 1, 4096, 4097},
                        {64, 1, 4096, 1024},
                        {1, 8192, 8192, 0},
                        {1, 8192, 8192, 1024},
                        {1, 512, 16384, 0},
                        {1, 512, 16384, 4096}}) {
    const bool is_decode = r.num_tokens == 1;
    const ops::SlidingWindow sliding = {.window = r.window, .num_sinks = r.window > 0 ? 4 : 0};
    Step step(bench,
              std::vector<SequenceRow>(static_cast<size_t>(r.num_rows), {r.num_tokens, r.seq_len}),
              is_decode, DType::kBF16, sliding);
    const int num_keys = r.window == 0 ? r.seq_len : std::min(r.seq_len, r.window);
    bench.Time(
        {.kernel = "attention_window",
         .shape = fmt::format("{}x{}/{} window {}", r.num_rows, r.num_tokens, r.seq_len, r.window),
         .dtype = DType::kBF16,
         .bytes = is_decode ? 4.0 * kNumKvHeads * kHeadDim * r.num_rows * num_keys : 0,
         .launch = [&](int call) { return step.Launch(call); }});
  }
}

}  // namespace

void AttentionCases(CudaBench& bench) {
  DecodeCases(bench);
  PrefillCases(bench);
  WindowCases(bench);
}

}  // namespace inflight::bench
