// SPDX-License-Identifier: Apache-2.0
// A step over a paged cache for the tests of attention on the GPU, on host and device, and the
// formula in float64 that its output is compared with. All that no query of the step sees is NaN:
// slots not written yet, what a sliding window hides, and drafts of a tree that are no ancestors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/cuda.h"
#include "ops/cuda/kernels.h"
#include "support.h"
#include "tensor/buffer.h"
#include "tensor/element.h"
#include "tensor/test_gpu.h"

namespace inflight::ops::cuda {

struct PagedCase {
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
  float softcap = 0;             // 0 = none
  bool has_sink_logits = false;  // of which some outweigh all keys, and some weigh nothing
  bool has_trees = false;        // decode rows are drafts of trees, of many depths; some are none

  float SinkLogit(int head) const {
    constexpr float kLogits[] = {0.5F, 30, -2, -40, 3};
    return kLogits[head % 5];
  }
  bool Sees(int position, int key) const {
    return key <= position &&
           (window == 0 || key < num_sinks || position - key < window - num_sinks);
  }
};

inline std::string Name(const PagedCase& c) {
  std::string rows;
  for (size_t i = 0; i < c.rows.size() && i < 12; ++i)
    rows += " " + std::to_string(c.rows[i].num_queries) + "/" + std::to_string(c.rows[i].seq_len);
  return std::string(DTypeName(c.dtype)) + " kv " + std::string(DTypeName(c.kv_dtype)) + " heads " +
         std::to_string(c.num_heads) + "/" + std::to_string(c.num_kv_heads) + " head_dim " +
         std::to_string(c.head_dim) + " block " + std::to_string(c.block_size) + " window " +
         std::to_string(c.window) + " sinks " + std::to_string(c.num_sinks) + " cap " +
         std::to_string(c.softcap) + (c.has_sink_logits ? " logits of heads" : "") +
         (c.has_trees ? " trees" : "") + " rows" + rows;
}

inline std::vector<SequenceRow> DecodeRows(const std::vector<int>& seq_lens) {
  std::vector<SequenceRow> rows;
  for (const int n : seq_lens) rows.push_back({1, n});
  return rows;
}

inline PagedCase WithDecode(PagedCase c, const std::vector<int>& seq_lens) {
  c.rows = DecodeRows(seq_lens);
  c.num_decode_rows = static_cast<int>(seq_lens.size());
  return c;
}

// Unit roundoff of a dtype: the largest relative error of rounding to nearest.
inline double Roundoff(DType dtype) {
  if (dtype == DType::kF32) return 0x1p-24;
  return dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

inline void Check(const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }

// The inputs of a case on host and device.
class AttentionInputs {
 public:
  AttentionInputs(const PagedCase& c, Device& device) : c_(c), device_(device) {
    MakeShifts();
    Random of_tables(12);
    MakeTables(of_tables);
    Random random(11);
    MakeCache(random);
    MakeQueries(random);
  }

  AttentionParams Params(int plan = 0) const {
    return {.q = q_.View(c_.dtype, {num_tokens_, c_.num_heads, kv_.row()}),
            .q_stride = c_.q_gap == 0 ? 0 : Stride(),
            .batch = batch(),
            .kv = kv_,
            .layer = kLayer,
            .scale = Scale(),
            .softcap = c_.softcap,
            .sink_logits =
                c_.has_sink_logits ? sink_logits_.View(DType::kF32, {c_.num_heads}) : TensorView{},
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
    if (c_.has_trees) batch.tree_shifts = tree_shifts_.View(DType::kU8, {num_rows, kMaxTreeDepth});
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

  // Compares with the formula in float64. A cap of scores moves them no further apart, and adds
  // 2^-20 of itself. Bound of the error of an element, with w its softmax weights and A = sum w
  // |v|: scores carry (head_dim + 8) u sum |q k| scale, which a weight sees twice (above and below
  // the fraction bar) and softmax twice; weights are rounded once to the dtype of the products
  // (u_p, and 2^-25 each where they fall below its normal numbers); sums over n keys 4 n u; the
  // result is rounded to the dtype of y.
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
        score *= Scale();
        weights.push_back(c_.softcap == 0 ? score : c_.softcap * std::tanh(score / c_.softcap));
        highest = std::max(highest, weights.back());
        most = std::max(most, absolute * Scale());
      }
      double sum = 0;
      if (c_.has_sink_logits) sum = std::exp(c_.SinkLogit(head) - highest);
      for (double& w : weights) sum += w = std::exp(w - highest);
      const double n = position + 1;
      const double weight_error =
          4 * ((c_.head_dim + 8) * 0x1p-24 * most + 0x1p-20 * c_.softcap) + 0x1p-19;
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
  static constexpr int kLayer = 1;
  static constexpr int kNumLayers = 2;

  int64_t Width() const { return int64_t{c_.num_heads} * c_.head_dim; }
  int64_t Stride() const { return int64_t{c_.num_heads} * kv_.row() + c_.q_gap; }
  float Scale() const { return 1 / std::sqrt(static_cast<float>(c_.head_dim)); }

  template <typename T>
  Buffer Upload(const std::vector<T>& values) {
    Buffer buffer =
        std::move(Buffer::Allocate(device_, "test", std::max<size_t>(1, values.size() * sizeof(T))))
            .value();
    EXPECT_TRUE(device_.Copy(buffer.data(), values.data(), values.size() * sizeof(T)).ok());
    return buffer;
  }

  // Of row r a path of min(r % 18, kMaxTreeDepth) nodes: each of them the first one behind its
  // parent's number, or some further on.
  void MakeShifts() {
    shifts_.resize(c_.rows.size());
    std::vector<uint8_t> all;
    for (size_t r = 0; r < c_.rows.size(); ++r) {
      std::vector<uint8_t>& shifts = shifts_[r];
      shifts.resize(kMaxTreeDepth);
      const bool is_draft = c_.has_trees && static_cast<int>(r) < c_.num_decode_rows;
      const int most = std::min(kMaxTreeDepth, c_.rows[r].seq_len - 1);
      const int depth = is_draft ? std::min(static_cast<int>(r % 18), most) : 0;
      int node = -1;
      for (int d = 0; d < depth; ++d) {
        node += 1 + (static_cast<int>(r) * 5 + d) % 4;
        shifts[static_cast<size_t>(depth - 1 - d)] = static_cast<uint8_t>(node - d);
      }
      all.insert(all.end(), shifts.begin(), shifts.end());
    }
    tree_shifts_ = Upload(all);
  }
  // Where the key of a position stands.
  int PlaceOf(size_t row, int position) const {
    const int back = c_.rows[row].seq_len - 1 - position;
    return position + (back < kMaxTreeDepth ? shifts_[row][static_cast<size_t>(back)] : 0);
  }
  int NumPlaces(size_t row) const { return PlaceOf(row, c_.rows[row].seq_len - 1) + 1; }

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
      const int blocks = (NumPlaces(static_cast<size_t>(r)) + c_.block_size - 1) / c_.block_size;
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
      for (int p = 0; p < NumPlaces(static_cast<size_t>(r)); p += c_.block_size) {
        int& entry = tables[static_cast<size_t>(lines[static_cast<size_t>(r)] * max_blocks_ +
                                                p / c_.block_size)];
        entry = order[next];
        bool is_seen = false;
        const int key_end = std::min(p + c_.block_size, c_.rows[static_cast<size_t>(r)].seq_len);
        for (int key = std::max(0, p - kMaxTreePlaces); key < key_end; ++key)
          is_seen |= PlaceOf(static_cast<size_t>(r), key) / c_.block_size == p / c_.block_size &&
                     IsSeen(r, key);
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
           .head_dim = c_.head_dim,
           .row_dim = c_.kv_dtype == DType::kF32 ? c_.head_dim : CudaRowDim(c_.head_dim)};
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
          const int place = PlaceOf(r, p);
          const int block = blocks_[r][static_cast<size_t>(place / c_.block_size)];
          const int64_t at = int64_t{place % c_.block_size} * kv_.row();
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
          for (int d = c_.head_dim; d < kv_.row(); ++d) {
            Store(kv_.Keys(kLayer, block, h), at + d, 0);
            Store(kv_.Values(kLayer, block, h), at + d, 0);
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
    std::vector<std::byte> q(static_cast<size_t>(num_tokens_ * Stride()) * SizeOf(c_.dtype),
                             std::byte{0xff});
    for (int64_t t = 0; t < num_tokens_; ++t)
      for (int64_t i = 0; i < int64_t{c_.num_heads} * kv_.row(); ++i) {
        const bool is_behind = i % kv_.row() >= c_.head_dim;
        const float value = is_behind         ? 0
                            : c_.key_ramp > 0 ? std::abs(random.Uniform())
                                              : 2 * random.Uniform();
        StoreFloat(q.data(), c_.dtype, t * Stride() + i, value);
        if (!is_behind) queries_.push_back(LoadFloat(q.data(), c_.dtype, t * Stride() + i));
      }
    q_ = Upload(q);
    std::vector<float> sink_logits;
    for (int head = 0; head < c_.num_heads; ++head) sink_logits.push_back(c_.SinkLogit(head));
    sink_logits_ = Upload(sink_logits);
    y_ = Upload(
        std::vector<std::byte>(static_cast<size_t>(num_tokens_ * Width()) * SizeOf(c_.dtype)));
    Poison();
  }

  void Poison() {
    const std::vector<std::byte> nans(static_cast<size_t>(num_tokens_ * Width()) * SizeOf(c_.dtype),
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

  PagedCase c_;
  Device& device_;
  int num_tokens_ = 0, max_blocks_ = 1, num_lines_ = 0, num_pool_blocks_ = 0;
  std::vector<int> first_token_, row_of_token_;
  std::vector<std::vector<uint8_t>> shifts_;       // of each row, PagedBatch::tree_shifts
  std::vector<std::vector<int>> blocks_;           // of each row
  std::vector<std::vector<float>> keys_, values_;  // of each row [seq_len][num_kv_heads][head_dim]
  std::vector<float> queries_;                     // [num_tokens][num_heads][head_dim]
  std::vector<float> scales_ = {9, 9, 0.03125F, 0.02F};  // of layer 1 as models have them
  KvCacheView kv_;
  Buffer cu_seqlens_, seq_lens_, tables_, table_rows_, cache_, q_, sink_logits_, tree_shifts_, y_;
};

}  // namespace inflight::ops::cuda
