// SPDX-License-Identifier: Apache-2.0
// Attention on the GPU against float64 on the host, over caches where all that no query of a step
// sees is NaN: slots not written yet, and what a sliding window hides.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ops/cuda/cuda.h"
#include "ops/cuda/kernels.h"
#include "support.h"
#include "tensor/buffer.h"
#include "tensor/element.h"
#include "tensor/test_gpu.h"

namespace inflight::ops::cuda {
namespace {

constexpr int kLayer = 1;
constexpr int kNumLayers = 2;
constexpr int kMaxTokens = 8192;
constexpr int kMaxRows = 3000;

struct Case {
  DType dtype = DType::kBF16;
  DType kv_dtype = DType::kBF16;
  int num_heads = 8;
  int num_kv_heads = 2;
  int head_dim = 128;
  int block_size = 64;
  std::vector<SequenceRow> rows;
  int num_decode_rows = 0;  // the first of them
  bool has_table_rows = false;
  int q_gap = 0;          // elements between the rows of q
  float key_ramp = 0.0F;  // keys grow along the sequence by this much per position
  int window = 0;         // 0 = none
  int num_sinks = 0;

  bool Sees(int position, int key) const {
    return key <= position &&
           (window == 0 || key < num_sinks || position - key < window - num_sinks);
  }
};

std::string Name(const Case& c) {
  std::string rows;
  for (size_t i = 0; i < c.rows.size() && i < 12; ++i)
    rows += " " + std::to_string(c.rows[i].num_queries) + "/" + std::to_string(c.rows[i].seq_len);
  return std::string(DTypeName(c.dtype)) + " kv " + std::string(DTypeName(c.kv_dtype)) + " heads " +
         std::to_string(c.num_heads) + "/" + std::to_string(c.num_kv_heads) + " head_dim " +
         std::to_string(c.head_dim) + " block " + std::to_string(c.block_size) + " window " +
         std::to_string(c.window) + " sinks " + std::to_string(c.num_sinks) + " rows" + rows;
}

std::vector<SequenceRow> DecodeRows(const std::vector<int>& seq_lens) {
  std::vector<SequenceRow> rows;
  for (const int n : seq_lens) rows.push_back({1, n});
  return rows;
}

Case WithDecode(Case c, const std::vector<int>& seq_lens) {
  c.rows = DecodeRows(seq_lens);
  c.num_decode_rows = static_cast<int>(seq_lens.size());
  return c;
}

// Unit roundoff of a dtype: the largest relative error of rounding to nearest.
double Roundoff(DType dtype) { return dtype == DType::kF16 ? 0x1p-11 : 0x1p-8; }

void Check(const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }

// The inputs of a case on host and device.
class Inputs {
 public:
  Inputs(const Case& c, Device& device) : c_(c), device_(device) {
    Random random(11);
    MakeTables(random);
    MakeCache(random);
    MakeQueries(random);
  }

  AttentionParams Params(int plan = 0) const {
    return {.q = q_.View(c_.dtype, {num_tokens_, c_.num_heads, c_.head_dim}),
            .q_stride = c_.q_gap == 0 ? 0 : Stride(),
            .batch = batch(),
            .kv = kv_,
            .layer = kLayer,
            .scale = Scale(),
            .sliding = {.window = c_.window, .num_sinks = c_.num_sinks},
            .plan = plan,
            .y = y_.View(c_.dtype, {num_tokens_, Width()})};
  }
  AttentionPlanParams PlanParams(int plan = 0) const {
    return {.batch = batch(),
            .kv = kv_,
            .num_heads = c_.num_heads,
            .sliding = {.window = c_.window, .num_sinks = c_.num_sinks},
            .plan = plan};
  }
  PagedBatch batch() const {
    const auto num_rows = static_cast<int64_t>(c_.rows.size());
    PagedBatch batch = {.num_rows = static_cast<int>(num_rows),
                        .num_tokens = num_tokens_,
                        .num_decode_rows = c_.num_decode_rows};
    batch.cu_seqlens_q = cu_seqlens_.View(DType::kI32, {num_rows + 1});
    batch.seq_lens_kv = seq_lens_.View(DType::kI32, {num_rows});
    batch.block_tables = tables_.View(DType::kI32, {num_lines_, max_blocks_});
    if (c_.has_table_rows) batch.table_rows = table_rows_.View(DType::kI32, {num_rows});
    return batch;
  }

  // What attention gave, and poison again where it stood.
  std::vector<float> TakeOutput() {
    std::vector<std::byte> bytes(y_.size());
    EXPECT_TRUE(device_.Copy(bytes.data(), y_.data(), bytes.size()).ok());
    std::vector<float> y;
    for (int64_t i = 0; i < num_tokens_ * Width(); ++i)
      y.push_back(LoadFloat(bytes.data(), c_.dtype, i));
    Poison();
    return y;
  }

  void SetSeqLens(const std::vector<int>& seq_lens) {
    EXPECT_TRUE(device_.Copy(seq_lens_.data(), seq_lens.data(), seq_lens.size() * 4).ok());
    for (size_t r = 0; r < c_.rows.size(); ++r) c_.rows[r].seq_len = seq_lens[r];
  }

  // Compares with the formula in float64. Bound of the error of an element, with w its softmax
  // weights and A = sum w |v|: scores carry (head_dim + 8) u sum |q k| scale, which a weight sees
  // twice (above and below the fraction bar) and softmax twice; weights are rounded once to the
  // dtype of the products (u_p, and 2^-25 each where they fall below its normal numbers); sums over
  // n keys 4 n u; the result is rounded to the dtype of y.
  testing::AssertionResult Agrees(const std::vector<float>& got) const {
    const DType products = c_.kv_dtype == DType::kF8E4M3 ? DType::kF16 : c_.kv_dtype;
    std::vector<double> worst(static_cast<size_t>(num_tokens_) * c_.num_heads, 0);
    std::vector<std::string> messages(worst.size());
    device_.cpu_pool().ParallelFor(static_cast<int64_t>(worst.size()), [&](int64_t i) {
      const auto token = static_cast<int>(i / c_.num_heads);
      const auto head = static_cast<int>(i % c_.num_heads);
      const int row = row_of_token_[static_cast<size_t>(token)];
      const SequenceRow& r = c_.rows[static_cast<size_t>(row)];
      const int position =
          r.seq_len - r.num_queries + token - first_token_[static_cast<size_t>(row)];
      const int kv_head = head * c_.num_kv_heads / c_.num_heads;
      std::vector<int> seen;
      for (int p = 0; p <= position; ++p)
        if (c_.Sees(position, p)) seen.push_back(p);
      std::vector<double> weights;
      double highest = -HUGE_VAL;
      double most = 0;
      const float* q = &queries_[static_cast<size_t>(i * c_.head_dim)];
      for (const int p : seen) {
        double score = 0;
        double absolute = 0;
        for (int d = 0; d < c_.head_dim; ++d) {
          const double term = double{q[d]} * Key(row, p, kv_head)[d];
          score += term;
          absolute += std::abs(term);
        }
        weights.push_back(score * Scale());
        highest = std::max(highest, weights.back());
        most = std::max(most, absolute * Scale());
      }
      double sum = 0;
      for (double& w : weights) sum += w = std::exp(w - highest);
      const double n = position + 1;
      const double weight_error = 4 * (c_.head_dim + 8) * 0x1p-24 * most + 0x1p-19;
      for (int d = 0; d < c_.head_dim; ++d) {
        double want = 0;
        double absolute = 0;
        double largest = 0;
        for (size_t s = 0; s < seen.size(); ++s) {
          const double v = Value(row, seen[s], kv_head)[d];
          want += weights[s] / sum * v;
          absolute += weights[s] / sum * std::abs(v);
          largest = std::max(largest, std::abs(v));
        }
        double bound = absolute * (weight_error + Roundoff(products) + 4 * n * 0x1p-24);
        if (products == DType::kF16) bound += n * 0x1p-25 * largest;
        bound += Roundoff(c_.dtype) * (std::abs(want) + bound) + 1e-7;
        const size_t at = static_cast<size_t>(i * c_.head_dim + d);
        const double ratio = std::abs(got[at] - want) / bound;
        if (ratio <= worst[static_cast<size_t>(i)]) continue;  // false for NaN
        worst[static_cast<size_t>(i)] = std::isnan(ratio) ? HUGE_VAL : ratio;
        messages[static_cast<size_t>(i)] =
            "token " + std::to_string(token) + " row " + std::to_string(row) + " position " +
            std::to_string(position) + " head " + std::to_string(head) + " dim " +
            std::to_string(d) + ": got " + std::to_string(got[at]) + ", want " +
            std::to_string(want) + ", bound " + std::to_string(bound);
        if (std::isnan(ratio)) break;
      }
    });
    const auto it = std::max_element(worst.begin(), worst.end());
    if (it == worst.end() || *it <= 1) return testing::AssertionSuccess();
    const auto num_bad = std::count_if(worst.begin(), worst.end(), [](double w) { return w > 1; });
    const auto first = std::find_if(worst.begin(), worst.end(), [](double w) { return w > 1; });
    return testing::AssertionFailure()
           << Name(c_) << "\n  " << num_bad << " of " << worst.size()
           << " (token, head) wrong; worst " << messages[static_cast<size_t>(it - worst.begin())]
           << "\n  first " << messages[static_cast<size_t>(first - worst.begin())];
  }

 private:
  int64_t Width() const { return int64_t{c_.num_heads} * c_.head_dim; }
  int64_t Stride() const { return Width() + c_.q_gap; }
  float Scale() const { return 1 / std::sqrt(static_cast<float>(c_.head_dim)); }

  template <typename T>
  Buffer Upload(const std::vector<T>& values) {
    Buffer buffer =
        std::move(Buffer::Allocate(device_, "test", std::max<size_t>(1, values.size() * sizeof(T))))
            .value();
    EXPECT_TRUE(device_.Copy(buffer.data(), values.data(), values.size() * sizeof(T)).ok());
    return buffer;
  }

  // Sequences' blocks in random order; block 0 and the ones left over are never written.
  void MakeTables(Random& random) {
    const auto num_rows = static_cast<int>(c_.rows.size());
    std::vector<int> cu_seqlens = {0};
    std::vector<int> seq_lens;
    int num_blocks = 0;
    for (int r = 0; r < num_rows; ++r) {
      const SequenceRow& row = c_.rows[static_cast<size_t>(r)];
      first_token_.push_back(cu_seqlens.back());
      for (int i = 0; i < row.num_queries; ++i) row_of_token_.push_back(r);
      cu_seqlens.push_back(cu_seqlens.back() + row.num_queries);
      seq_lens.push_back(row.seq_len);
      const int blocks = (row.seq_len + c_.block_size - 1) / c_.block_size;
      num_blocks += blocks;
      max_blocks_ = std::max(max_blocks_, blocks + 1);
    }
    num_tokens_ = cu_seqlens.back();
    std::vector<int> order(static_cast<size_t>(num_blocks) + 5);
    std::iota(order.begin(), order.end(), 1);
    for (size_t i = order.size() - 1; i > 0; --i)
      std::swap(order[i], order[static_cast<size_t>(random.Below(static_cast<int>(i) + 1))]);
    num_pool_blocks_ = static_cast<int>(order.size()) + 1;
    num_lines_ = c_.has_table_rows ? num_rows + 7 : num_rows;
    std::vector<int> lines(static_cast<size_t>(num_rows));
    for (int r = 0; r < num_rows; ++r)
      lines[static_cast<size_t>(r)] = c_.has_table_rows ? (r * 5 + 3) % num_lines_ : r;
    if (c_.has_table_rows && num_lines_ % 5 == 0)  // 5 has no common divisor with the others
      for (int r = 0; r < num_rows; ++r) lines[static_cast<size_t>(r)] = num_lines_ - 1 - r;
    std::vector<int> tables(static_cast<size_t>(num_lines_ * max_blocks_), 0);
    size_t next = 0;
    for (int r = 0; r < num_rows; ++r) {
      blocks_.emplace_back();
      for (int p = 0; p < c_.rows[static_cast<size_t>(r)].seq_len; p += c_.block_size) {
        int& entry = tables[static_cast<size_t>(lines[static_cast<size_t>(r)] * max_blocks_ +
                                                p / c_.block_size)];
        entry = order[next];
        bool is_seen = false;
        for (int key = p; key < p + c_.block_size; ++key) is_seen |= IsSeen(r, key);
        if (!is_seen) entry = 1 << 30;  // of no block: its memory must not be touched
        blocks_.back().push_back(order[next++]);
      }
    }
    cu_seqlens_ = Upload(cu_seqlens);
    seq_lens_ = Upload(seq_lens);
    tables_ = Upload(tables);
    table_rows_ = Upload(lines);
  }

  // By any query of the row.
  bool IsSeen(int row, int key) const {
    const SequenceRow& r = c_.rows[static_cast<size_t>(row)];
    for (int position = r.seq_len - r.num_queries; position < r.seq_len; ++position)
      if (c_.Sees(position, key)) return true;
    return false;
  }

  void MakeCache(Random& random) {
    kv_ = {.dtype = c_.kv_dtype,
           .num_layers = kNumLayers,
           .num_blocks = num_pool_blocks_,
           .num_kv_heads = c_.num_kv_heads,
           .block_size = c_.block_size,
           .head_dim = c_.head_dim};
    if (c_.kv_dtype == DType::kF8E4M3) kv_.scales = scales_.data();
    std::vector<std::byte> pool(
        kv_.block_bytes() * static_cast<size_t>(num_pool_blocks_) * kNumLayers,
        std::byte{0xff});  // NaN in all of the dtypes
    kv_.data = pool.data();
    const float k_scale = kv_.scales == nullptr ? 1 : scales_[2 * kLayer];
    const float v_scale = kv_.scales == nullptr ? 1 : scales_[2 * kLayer + 1];
    for (size_t r = 0; r < c_.rows.size(); ++r) {
      keys_.emplace_back();
      values_.emplace_back();
      for (int p = 0; p < c_.rows[r].seq_len; ++p)
        for (int h = 0; h < c_.num_kv_heads; ++h) {
          const int block = blocks_[r][static_cast<size_t>(p / c_.block_size)];
          const int64_t at = int64_t{p % c_.block_size} * c_.head_dim;
          const float growth = 1 + c_.key_ramp * static_cast<float>(p);
          if (!IsSeen(static_cast<int>(r), p)) {
            keys_.back().resize(keys_.back().size() + static_cast<size_t>(c_.head_dim));
            values_.back().resize(keys_.back().size());
            continue;
          }
          for (int d = 0; d < c_.head_dim; ++d) {
            const float k =
                c_.key_ramp > 0 ? growth * std::abs(random.Uniform()) : 2 * random.Uniform();
            keys_.back().push_back(k_scale *
                                   Store(kv_.Keys(kLayer, block, h), at + d, k / k_scale));
            values_.back().push_back(v_scale * Store(kv_.Values(kLayer, block, h), at + d,
                                                     (random.Uniform() + 0.25F) / v_scale));
          }
        }
    }
    cache_ = Upload(pool);
    kv_.data = cache_.data();
  }

  float Store(std::byte* data, int64_t at, float value) const {
    StoreFloat(data, c_.kv_dtype, at, value);
    return LoadFloat(data, c_.kv_dtype, at);
  }

  void MakeQueries(Random& random) {
    std::vector<std::byte> q(static_cast<size_t>(num_tokens_ * Stride()) * 2, std::byte{0xff});
    for (int64_t t = 0; t < num_tokens_; ++t)
      for (int64_t i = 0; i < Width(); ++i) {
        const float value = c_.key_ramp > 0 ? std::abs(random.Uniform()) : 2 * random.Uniform();
        StoreFloat(q.data(), c_.dtype, t * Stride() + i, value);
        queries_.push_back(LoadFloat(q.data(), c_.dtype, t * Stride() + i));
      }
    q_ = Upload(q);
    y_ = Upload(std::vector<std::byte>(static_cast<size_t>(num_tokens_ * Width()) * 2));
    Poison();
  }

  void Poison() {
    const std::vector<std::byte> nans(static_cast<size_t>(num_tokens_ * Width()) * 2,
                                      std::byte{0xff});
    EXPECT_TRUE(device_.Copy(y_.data(), nans.data(), nans.size()).ok());
  }

  const float* Key(int row, int position, int kv_head) const {
    return &keys_[static_cast<size_t>(row)]
                 [static_cast<size_t>((position * c_.num_kv_heads + kv_head) * c_.head_dim)];
  }
  const float* Value(int row, int position, int kv_head) const {
    return &values_[static_cast<size_t>(row)]
                   [static_cast<size_t>((position * c_.num_kv_heads + kv_head) * c_.head_dim)];
  }

  Case c_;
  Device& device_;
  int num_tokens_ = 0, max_blocks_ = 1, num_lines_ = 0, num_pool_blocks_ = 0;
  std::vector<int> first_token_, row_of_token_;
  std::vector<std::vector<int>> blocks_;           // of each row
  std::vector<std::vector<float>> keys_, values_;  // of each row [seq_len][num_kv_heads][head_dim]
  std::vector<float> queries_;                     // [num_tokens][num_heads][head_dim]
  std::vector<float> scales_ = {9, 9, 0.03125F, 0.02F};  // of layer 1 as models have them
  KvCacheView kv_;
  Buffer cu_seqlens_, seq_lens_, tables_, table_rows_, cache_, q_, y_;
};

class CudaAttentionTest : public testing::Test {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    device_ = TestGpu().value().get();
  }

  // The stream of a model of the case's shape.
  Stream& StreamOf(const Case& c) {
    Result<std::unique_ptr<Stream>> stream = MakeStream(*device_,
                                                        {.weight_dtype = c.dtype,
                                                         .dtype = c.dtype,
                                                         .kv_dtype = c.kv_dtype,
                                                         .head_dim = c.head_dim,
                                                         .num_heads = c.num_heads,
                                                         .num_kv_heads = c.num_kv_heads,
                                                         .hidden_size = 64,
                                                         .intermediate_size = 64,
                                                         .num_windows = 2},
                                                        kMaxTokens, kMaxRows);
    EXPECT_TRUE(stream.ok()) << stream.status().ToString();
    stream_ = std::move(stream).value();
    cudaDeviceSynchronize();  // the workspace is zeroed on the default stream
    return *stream_;
  }

  // One step: plan, then attention.
  std::vector<float> Output(Inputs& in, Stream& stream, int plan = 0) {
    Check(PlanAttention(in.PlanParams(plan), stream));
    Check(Attention(in.Params(plan), stream));
    Check(inflight::cuda::ToStatus(cudaStreamSynchronize(AsCuda(stream).handle()), "attention"));
    return in.TakeOutput();
  }

  void ExpectCorrect(const Case& c) {
    Inputs in(c, *device_);
    Stream& stream = StreamOf(c);
    const std::vector<float> once = Output(in, stream);
    EXPECT_TRUE(in.Agrees(once));
    const std::vector<float> twice = Output(in, stream, /*plan=*/1);
    EXPECT_EQ(std::memcmp(once.data(), twice.data(), once.size() * sizeof(float)), 0)
        << Name(c) << ": other bits in the second run";
  }

  Device* device_ = nullptr;
  std::unique_ptr<Stream> stream_;
};

constexpr DType kDTypes[][2] = {{DType::kBF16, DType::kBF16},
                                {DType::kF16, DType::kF16},
                                {DType::kBF16, DType::kF8E4M3},
                                {DType::kF16, DType::kF8E4M3}};

TEST_F(CudaAttentionTest, DecodeOfEveryLengthAroundABlock) {
  for (const int block_size : {16, 32, 64, 128}) {
    const std::vector<int> seq_lens = {
        1, block_size - 1, block_size, block_size + 1, 4097, 63, 65, 300, 2};
    for (size_t num_rows = 1; num_rows <= seq_lens.size(); ++num_rows)
      ExpectCorrect(WithDecode({.block_size = block_size},
                               {seq_lens.begin(), seq_lens.begin() + static_cast<int>(num_rows)}));
  }
}

TEST_F(CudaAttentionTest, DecodeOfEveryHeadSizeAndDType) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes)
      for (const int num_heads : {8, 24}) {
        Case c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = num_heads};
        c.head_dim = head_dim;
        c.block_size = 32;
        c.q_gap = 40;
        ExpectCorrect(WithDecode(c, {17, 1025, 64, 1, 555}));
      }
}

TEST_F(CudaAttentionTest, DecodeOfEveryGroup) {
  for (const int group : {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 20, 71})
    for (const DType kv_dtype : {DType::kBF16, DType::kF8E4M3}) {
      Case c = {.kv_dtype = kv_dtype, .num_heads = 2 * group, .num_kv_heads = 2};
      ExpectCorrect(WithDecode(c, {700, 3, 129}));
    }
}

TEST_F(CudaAttentionTest, DecodeOfOneLongSequence) {
  ExpectCorrect(WithDecode({.num_heads = 4, .num_kv_heads = 1}, {30001}));
  ExpectCorrect(WithDecode({.num_heads = 32, .num_kv_heads = 8}, {1024}));
}

TEST_F(CudaAttentionTest, DecodeOfALongSequenceAmongShortOnes) {
  std::vector<int> seq_lens(64, 10);
  seq_lens[20] = 9000;
  ExpectCorrect(WithDecode({}, seq_lens));
}

TEST_F(CudaAttentionTest, DecodeOfManyRows) {
  Random random(3);
  for (const int num_rows : {255, 1024, 2500}) {
    std::vector<int> seq_lens;
    for (int i = 0; i < num_rows; ++i) seq_lens.push_back(1 + random.Below(150));
    Case c = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .block_size = 16};
    c.has_table_rows = true;
    ExpectCorrect(WithDecode(c, seq_lens));
  }
}

// Scores that rise along the sequence move the running maximum again and again.
TEST_F(CudaAttentionTest, RisingScores) {
  for (const auto& [dtype, kv_dtype] : kDTypes) {
    Case c = {.dtype = dtype, .kv_dtype = kv_dtype};
    c.key_ramp = 0.004F;
    ExpectCorrect(WithDecode(c, {1500, 900}));
    c.rows = {{200, 900}, {333, 333}};
    c.num_decode_rows = 0;
    ExpectCorrect(c);
  }
}

TEST_F(CudaAttentionTest, PrefillOfEveryHeadSizeAndDType) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes) {
      Case c = {.dtype = dtype, .kv_dtype = kv_dtype, .block_size = 16};
      c.head_dim = head_dim;
      c.q_gap = 64;
      c.rows = {{37, 37}, {50, 170}, {1, 129}, {64, 64}, {65, 300}, {2, 2}};
      ExpectCorrect(c);
    }
}

TEST_F(CudaAttentionTest, PrefillOfEveryBlockSize) {
  for (const int block_size : {16, 32, 64, 128})
    for (const DType kv_dtype : {DType::kBF16, DType::kF8E4M3}) {
      Case c = {.kv_dtype = kv_dtype, .block_size = block_size};
      c.rows = {{200, 200}, {130, 513}, {1, 1}};
      ExpectCorrect(c);
    }
}

TEST_F(CudaAttentionTest, PrefillOfEveryGroup) {
  for (const int group : {1, 2, 3, 4, 5, 7, 8, 16, 33, 71}) {
    Case c = {.num_heads = 2 * group};
    c.rows = {{70, 70}, {9, 200}};
    ExpectCorrect(c);
  }
}

// More tiles than multiprocessors: none is cut in two, and too few for each to take several.
TEST_F(CudaAttentionTest, PrefillOfSomeTiles) {
  Random random(6);
  std::vector<SequenceRow> rows = {{70, 70}, {1, 1}, {33, 160}};
  for (int i = 0; i < 40; ++i) {
    const int num_queries = 1 + random.Below(12);
    rows.push_back({num_queries, num_queries + random.Below(2) * random.Below(80)});
  }
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes) {
      Case c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = 12, .num_kv_heads = 6};
      c.head_dim = head_dim;
      c.block_size = 32;
      c.rows = rows;
      ExpectCorrect(c);
    }
}

// So many tiles that each multiprocessor takes several in turn: what Hopper's own kernel is for.
TEST_F(CudaAttentionTest, PrefillOfManyTiles) {
  Random random(5);
  std::vector<SequenceRow> rows = {{300, 300}, {1, 1}, {129, 700}, {128, 128}, {64, 600}};
  for (int i = 0; i < 75; ++i) {
    const int num_queries = 1 + random.Below(30);
    rows.push_back({num_queries, num_queries + random.Below(2) * random.Below(200)});
  }
  for (const auto& [dtype, kv_dtype] : kDTypes)
    for (const int group : {1, 5}) {
      Case c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = 6 * group, .num_kv_heads = 6};
      c.block_size = group == 1 ? 16 : 64;
      c.q_gap = 64;
      c.has_table_rows = group == 1;
      c.key_ramp = group == 5 ? 0.01F : 0;
      c.rows = rows;
      c.rows.insert(c.rows.begin(), {1, 700});
      c.num_decode_rows = 1;
      ExpectCorrect(c);
    }
}

TEST_F(CudaAttentionTest, MixedSteps) {
  for (const auto& [dtype, kv_dtype] : kDTypes) {
    Case c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = 12, .num_kv_heads = 3};
    c.rows = {{1, 70}, {1, 1}, {1, 1000}, {33, 33}, {19, 147}, {1, 65}, {260, 700}};
    c.num_decode_rows = 3;
    c.has_table_rows = true;
    ExpectCorrect(c);
  }
}

// A prompt prefilled whole, in chunks and token by token: each agrees with the same formula.
TEST_F(CudaAttentionTest, Chunks) {
  constexpr int kLength = 300;
  for (const std::vector<int>& chunks :
       {std::vector<int>{300}, std::vector<int>{1, 16, 63, 70, 150},
        std::vector<int>{128, 128, 44}}) {
    int done = 0;
    for (const int n : chunks) {
      Case c = {.block_size = 32};
      c.rows = {{n, done + n}};
      ExpectCorrect(c);
      if (n == 1) {
        c.num_decode_rows = 1;
        ExpectCorrect(c);
      }
      done += n;
    }
    EXPECT_EQ(done, kLength);
  }
}

// The lengths of a captured step are read when it runs.
TEST_F(CudaAttentionTest, ACapturedStepRunsWithOtherLengths) {
  Case c = WithDecode({.has_table_rows = true}, {2000, 2000, 2000, 2000});
  Inputs in(c, *device_);
  Stream& stream = StreamOf(c);
  Output(in, stream);  // attributes of kernels are set outside
  cudaStream_t handle = AsCuda(stream).handle();
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  Check(PlanAttention(in.PlanParams(), stream));
  Check(Attention(in.Params(), stream));
  ASSERT_EQ(cudaStreamEndCapture(handle, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (const std::vector<int>& seq_lens :
       {std::vector<int>{2000, 1, 64, 65}, std::vector<int>{1, 1, 1, 1},
        std::vector<int>{3, 1999, 2000, 700}}) {
    in.SetSeqLens(seq_lens);
    ASSERT_EQ(cudaGraphLaunch(exec, handle), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(handle), cudaSuccess);
    EXPECT_TRUE(in.Agrees(in.TakeOutput()));
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

struct Window {
  int window, num_sinks;
};
// Shorter and longer than blocks and tiles, sinks that end inside of them, one key behind sinks.
constexpr Window kWindows[] = {{1, 0},   {2, 1},   {5, 4},    {16, 0},    {17, 3},
                               {40, 8},  {64, 16}, {65, 64},  {100, 37},  {130, 129},
                               {256, 1}, {600, 0}, {1000, 4}, {4000, 300}};

TEST_F(CudaAttentionTest, DecodeInAWindow) {
  for (const Window& w : kWindows)
    for (const int block_size : {16, 64}) {
      Case c = {.block_size = block_size, .window = w.window, .num_sinks = w.num_sinks};
      ExpectCorrect(
          WithDecode(c, {1, 2, w.window, w.window + 1, 15, 16, 17, 63, 64, 65, 300, 1025, 4097}));
    }
}

TEST_F(CudaAttentionTest, PrefillInAWindow) {
  for (const Window& w : kWindows)
    for (const int block_size : {16, 128}) {
      Case c = {.num_heads = 6, .block_size = block_size, .window = w.window};
      c.num_sinks = w.num_sinks;
      c.rows = {{200, 200}, {130, 513}, {1, 1}, {1, 129}, {65, 300}, {3, 2000}, {2, 2}};
      ExpectCorrect(c);
    }
}

TEST_F(CudaAttentionTest, WindowsOfEveryHeadSizeAndDType) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes)
      for (const int num_heads : {2, 20}) {
        Case c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = num_heads};
        c.head_dim = head_dim;
        c.block_size = 16;
        c.window = 75;
        c.num_sinks = 5;
        c.q_gap = 40;
        c.has_table_rows = true;
        c.rows = {{1, 1025}, {1, 75}, {1, 76}, {37, 37}, {90, 170}, {64, 800}};
        c.num_decode_rows = 3;
        ExpectCorrect(c);
      }
}

// A prompt in chunks, the window's far end inside of the first ones and behind them.
TEST_F(CudaAttentionTest, ChunksInAWindow) {
  int done = 0;
  for (const int n : {16, 1, 63, 70, 150, 128, 1}) {
    Case c = {.block_size = 16, .window = 48, .num_sinks = 4};
    c.rows = {{n, done + n}};
    ExpectCorrect(c);
    if (n == 1) {
      c.num_decode_rows = 1;
      ExpectCorrect(c);
    }
    done += n;
  }
}

TEST_F(CudaAttentionTest, ManyRowsAndOneLongSequenceInAWindow) {
  Random random(4);
  std::vector<int> seq_lens;
  for (int i = 0; i < 700; ++i) seq_lens.push_back(1 + random.Below(400));
  seq_lens[400] = 20000;
  Case c = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .block_size = 16};
  c.window = 150;
  c.num_sinks = 20;
  ExpectCorrect(WithDecode(c, seq_lens));
  c.window = 9000;  // as much work for one row as for all others
  ExpectCorrect(WithDecode(c, seq_lens));
}

// Layers of different windows read different plans of one step.
TEST_F(CudaAttentionTest, TwoWindowsOfOneStep) {
  Case c;
  c.rows = {{1, 700}, {1, 90}, {100, 333}};
  c.num_decode_rows = 2;
  Inputs all(c, *device_);
  c.window = 50;
  c.num_sinks = 3;
  Inputs windowed(c, *device_);
  Stream& stream = StreamOf(c);
  Check(PlanAttention(all.PlanParams(0), stream));
  Check(PlanAttention(windowed.PlanParams(1), stream));
  for (int layer = 0; layer < 3; ++layer) {
    Check(Attention(all.Params(0), stream));
    Check(Attention(windowed.Params(1), stream));
  }
  ASSERT_EQ(cudaStreamSynchronize(AsCuda(stream).handle()), cudaSuccess);
  EXPECT_TRUE(all.Agrees(all.TakeOutput()));
  EXPECT_TRUE(windowed.Agrees(windowed.TakeOutput()));
}

TEST_F(CudaAttentionTest, NoRows) {
  Case c;
  Inputs in(c, *device_);
  Stream& stream = StreamOf(c);
  EXPECT_EQ(PlanAttention(in.PlanParams(), stream), Status::Ok());
  EXPECT_EQ(Attention(in.Params(), stream), Status::Ok());
}

TEST_F(CudaAttentionTest, WhatNoKernelDoesIsNamed) {
  const Case c = WithDecode({}, {5});
  Inputs in(c, *device_);
  Stream& stream = StreamOf(c);
  const auto expect = [&](const char* field, const auto& change) {
    AttentionParams params = in.Params();
    change(params);
    const Status status = Attention(params, stream);
    EXPECT_FALSE(status.ok()) << field;
    EXPECT_NE(status.ToString().find(field), std::string::npos) << status.ToString();
  };
  expect("head_dim", [](AttentionParams& p) { p.kv.head_dim = 72; });
  expect("block_size", [](AttentionParams& p) { p.kv.block_size = 48; });
  expect("kv.dtype", [](AttentionParams& p) { p.kv.dtype = DType::kF16; });
  expect("kv.dtype", [](AttentionParams& p) { p.kv.dtype = DType::kF32; });
  expect("q_stride", [](AttentionParams& p) { p.q_stride = 1028; });
  expect("num_heads", [](AttentionParams& p) { p.kv.num_kv_heads = 3; });
  expect("y", [](AttentionParams& p) { p.y.dtype = DType::kF32; });
  expect("num_decode_rows", [](AttentionParams& p) { p.batch.num_decode_rows = 2; });
  expect("sliding", [](AttentionParams& p) { p.sliding = {.window = 4, .num_sinks = 4}; });
  expect("sliding", [](AttentionParams& p) { p.sliding = {.window = -1}; });
  expect("plan", [](AttentionParams& p) { p.plan = 2; });
}

}  // namespace
}  // namespace inflight::ops::cuda
