// SPDX-License-Identifier: Apache-2.0
// Attention of rows that share a kv head: online softmax over tiles of 64 keys
// (arXiv:2205.14135), both products by the register tile. Included once by each instruction set's
// translation unit; all names have internal linkage.
//
// With a bf16 cache, queries and softmax weights are rounded to bf16 for the products, as the keys
// and values are; sums stay float32.
#pragma once

namespace inflight::ops::cpu {
namespace {

constexpr int kKeyTile = 64;
constexpr float kMinusInfinity = -__builtin_inff();
constexpr int kNoTree = 1 << 30;

INFLIGHT_INLINE void StoreOperand(float* p, Vec v) { Store(p, v); }
INFLIGHT_INLINE void StoreOperand(uint16_t* p, Vec v) { StoreBf16(p, v); }

// `Self` derives from it, and may add a tile of keys by an AddTile of its own.
template <typename Operand, typename Self>
class AttentionOfRows {
 public:
  explicit AttentionOfRows(const AttentionArgs& args)
      : a_(args),
        score_scale_(args.softcap > 0 ? 1.0F : args.scale),
        stride_((args.head_dim + 15) / 16 * 16) {}

  void Run() {
    LoadQueries();
    last_ = 0;
    first_ = a_.first_seen[0];
    for (int r = 0; r < a_.num_rows; ++r) {
      last_ = a_.positions[r] > last_ ? a_.positions[r] : last_;
      first_ = a_.first_seen[r] < first_ ? a_.first_seen[r] : first_;
    }
    num_ = a_.num_rows;
    if (a_.tree_begin == nullptr) {
      AddTiles(0, last_ + 1);
    } else {
      const int num_shared = SharedKeys();
      AddTiles(0, num_shared);
      AddTrees(num_shared);
    }
    StoreResults();
  }

 protected:
  using X = typename Operand::X;
  using W = typename Operand::W;
  static constexpr int kStep = Operand::kStep;
  void LoadQueries() {
    for (int r = 0; r < a_.num_rows; ++r) {
      X* row = queries_ + r * stride_;
      for (int d = 0; d < a_.head_dim; d += 16)
        StoreOperand(row + d, LoadFirst(a_.q[r] + d, a_.head_dim - d < 16 ? 8 : 16));
      query_rows_[r] = row;
      weight_rows_[r] = weights_ + r * kKeyTile;
      const bool has_sink = a_.sink_logits != nullptr;  // a key whose value is nothing
      max_[r] = has_sink ? a_.sink_logits[r] : kMinusInfinity;
      sum_[r] = has_sink ? 1 : 0;
      for (int d = 0; d < a_.head_dim; d += 16) Store(Result(r) + d, Zero());
    }
  }

  float* Result(int row) { return results_ + row * stride_; }

  // Keys [begin, end), `begin` the first of a tile, to the rows of now.
  void AddTiles(int begin, int end) {
    for (int start = begin; start < end; start += kKeyTile) {
      if (AllHidden(start, kKeyTile)) continue;
      const int num_keys = end - start < kKeyTile ? end - start : kKeyTile;
      gathered_ = kKeyTile;
      if (start + num_keys > tree_begin_) GatherTree(start, num_keys);
      static_cast<Self*>(this)->AddTile(start, num_keys);
    }
  }

  void AddTile(int start, int num_keys) {
    Score(start, num_keys);
    if (a_.softcap > 0) CapScores();
    for (int r = row_; r < row_ + num_; ++r) UpdateSoftmax(r, start);
    AddValues(start, num_keys);
  }

  // Those of the tiles that are the same to all rows.
  int SharedKeys() const {
    int first = a_.tree_begin[0];
    for (int r = 1; r < a_.num_rows; ++r)
      first = a_.tree_begin[r] < first ? a_.tree_begin[r] : first;
    return first / kKeyTile * kKeyTile;
  }

  // Token by token the keys from `begin` on, so that each is summed where it is of its ancestors
  // alone.
  void AddTrees(int begin) {
    for (row_ = 0; row_ < a_.num_rows; row_ += num_) {
      num_ = 1;
      while (row_ + num_ < a_.num_rows && a_.tree_places[row_ + num_] == a_.tree_places[row_])
        ++num_;
      tree_begin_ = a_.tree_begin[row_];
      last_ = a_.positions[row_];
      AddTiles(begin, last_ + 1);
    }
  }

  // Of the key of a position. A window hides none of those that drafts wrote.
  int PlaceOf(int position) const {
    return position < tree_begin_ ? position : a_.tree_places[row_][position - tree_begin_];
  }

  // The tile's keys and values from the first group on that is not as it stands in the cache.
  void GatherTree(int start, int num_keys) {
    gathered_ = tree_begin_ > start ? (tree_begin_ - start) / 16 * 16 : 0;
    for (int j = gathered_; j < num_keys; ++j) {
      const int place = PlaceOf(AllHidden(start + j, 1) ? first_ : start + j);
      const int offset = place % a_.block_size;
      const auto* keys = reinterpret_cast<const W*>(BlockOf(a_.keys, place)) +
                         static_cast<int64_t>(offset / 16) * 16 * a_.head_dim;
      const auto* values = reinterpret_cast<const W*>(BlockOf(a_.values, place)) +
                           static_cast<int64_t>(offset / kStep) * kStep * a_.head_dim;
      W* to_keys = tree_keys_ + j / 16 * 16 * a_.head_dim;
      W* to_values = tree_values_ + j / kStep * kStep * a_.head_dim;
      for (int d = 0; d < a_.head_dim; ++d) {
        const int step = d / kStep * 16 * kStep + d % kStep;
        to_keys[step + j % 16 * kStep] = keys[step + offset % 16 * kStep];
        to_values[d * kStep + j % kStep] = values[d * kStep + offset % kStep];
      }
    }
  }

  // Whether no row sees keys [start, start + n).
  bool AllHidden(int start, int n) const { return start >= a_.num_sinks && start + n <= first_; }

  const char* BlockOf(const char* base, int position) const {
    return base + a_.block_table[position / a_.block_size] * a_.block_stride_bytes;
  }

  // Elements from the tile of `base` at position `here` to that of `next_base` at `there`, where
  // few rows wait for memory rather than compute; 0 where there is none, or a tile has no single
  // place.
  int64_t Ahead(const char* base, int here, const char* next_base, int there) const {
    if (num_ > Operand::kMaxTileRows || gathered_ < kKeyTile || a_.block_size % kKeyTile != 0 ||
        there > last_)
      return 0;
    const auto* from = reinterpret_cast<const W*>(BlockOf(base, here));
    const auto* to = reinterpret_cast<const W*>(BlockOf(next_base, there));
    return to - from +
           static_cast<int64_t>(there % a_.block_size - here % a_.block_size) * a_.head_dim;
  }

  void Multiply(const X* const* x, int64_t x_offset, const W* const* w, int64_t w_stride,
                int64_t num_steps, float* sums, int64_t sums_stride, int num_groups, bool half_last,
                int64_t ahead) const {
    if (ahead != 0) {
      const Product<Operand, true> product = {x,         x_offset, w,           w_stride,
                                              num_steps, sums,     sums_stride, ahead};
      product.Run(num_, num_groups, half_last);
    } else {
      const Product<Operand> product = {x, x_offset, w, w_stride, num_steps, sums, sums_stride};
      product.Run(num_, num_groups, half_last);
    }
  }

  // The keys of a tile by groups of sixteen.
  void FindKeys(int start, int num_groups, const W** groups) const {
    int seen = 0;  // a group of the tile that some row sees, read in place of those that none does
    while (AllHidden(start + seen * 16, 16)) ++seen;
    for (int g = 0; g < num_groups; ++g) {
      const int j = (AllHidden(start + g * 16, 16) ? seen : g) * 16;
      if (j >= gathered_) {
        groups[g] = tree_keys_ + j * a_.head_dim;
        continue;
      }
      const int position = start + j;
      const auto* keys = reinterpret_cast<const W*>(BlockOf(a_.keys, position));
      groups[g] = keys + static_cast<int64_t>(position % a_.block_size) * a_.head_dim;
    }
  }

  // scores_[r][j] = q[r] . key[start + j]; groups of sixteen keys, beyond the last key unspecified
  void Score(int start, int num_keys) {
    const W* groups[kKeyTile / 16];
    const int num_groups = (num_keys + 15) / 16;
    FindKeys(start, num_groups, groups);
    for (int r = row_; r < row_ + num_; ++r)
      for (int j = 0; j < num_groups * 16; j += 16) Store(scores_ + r * kKeyTile + j, Zero());
    Multiply(query_rows_ + row_, 0, groups, 16 * kStep, a_.head_dim / kStep,
             scores_ + row_ * kKeyTile, kKeyTile, num_groups, /*half_last=*/false,
             Ahead(a_.keys, start, a_.values, start));
  }

  // What scores_ holds behind the last key is capped too, and not used.
  void CapScores() {
    CapValues({scores_ + row_ * kKeyTile, int64_t{num_} * kKeyTile, a_.scale, a_.softcap});
  }

  // Sets what stands for the keys of a tile that row r does not see between sinks and window.
  template <typename T>
  void Hide(int r, int start, T* row, T value) const {
    const int from = a_.num_sinks > start ? a_.num_sinks - start : 0;
    const int to = a_.first_seen[r] - start < kKeyTile ? a_.first_seen[r] - start : kKeyTile;
    for (int j = from; j < to; ++j) row[j] = value;
  }

  // Turns row r's scores into weights e^(score - max) and rescales what was summed under the old
  // maximum. Keys after the row's own position, and hidden ones, get weight 0.
  void UpdateSoftmax(int r, int start) {
    X* weights = weights_ + r * kKeyTile;
    const int seen = a_.positions[r] + 1 - start;
    const bool sees_none = start >= a_.num_sinks && start + kKeyTile <= a_.first_seen[r];
    Hide(r, start, scores_ + r * kKeyTile, kMinusInfinity);
    if (seen <= 0 || sees_none) {
      for (int j = 0; j < kKeyTile; j += 16) StoreOperand(weights + j, Zero());
      return;
    }
    const Vec scale = Set1(score_scale_);
    Vec score[kKeyTile / 16];
    Vec largest = Set1(kMinusInfinity);
    for (int g = 0; g < kKeyTile / 16; ++g) {
      const int n = seen - g * 16 < 0 ? 0 : seen - g * 16 < 16 ? seen - g * 16 : 16;
      score[g] = n == 0 ? Set1(kMinusInfinity)
                        : KeepFirst(Mul(Load(scores_ + r * kKeyTile + g * 16), scale), n,
                                    Set1(kMinusInfinity));
      largest = Max(largest, score[g]);
    }
    const float here = Largest(largest);
    const float max = here > max_[r] ? here : max_[r];
    Vec total = Zero();
    for (int g = 0; g < kKeyTile / 16; ++g) {
      const int n = seen - g * 16 < 0 ? 0 : seen - g * 16 < 16 ? seen - g * 16 : 16;
      const Vec w = KeepFirst(Exp(Sub(score[g], Set1(max))), n, Zero());
      StoreOperand(weights + g * 16, w);
      total = Add(total, w);
    }
    Hide(r, start, weights, X{});
    if (sum_[r] > 0 && max > max_[r]) Rescale(r, max_[r] - max);
    max_[r] = max;
    sum_[r] += Sum(total);
  }

  void Rescale(int r, float exponent) {
    const Vec factor = Exp(Set1(exponent));
    alignas(64) float lanes[16];
    Store(lanes, factor);
    sum_[r] *= lanes[0];
    float* result = Result(r);
    for (int d = 0; d < a_.head_dim; d += 16) Store(result + d, Mul(Load(result + d), factor));
  }

  // results_[r] += sum_j weights_[r][j] * value[start + j], run by run of one block
  void AddValues(int start, int num_keys) {
    for (int j = 0; j < num_keys;) {
      const int offset = (start + j) % a_.block_size;
      const int in_block = a_.block_size - offset;
      const int rest = (j < gathered_ && gathered_ < num_keys ? gathered_ : num_keys) - j;
      const int n = rest < in_block || j >= gathered_ ? rest : in_block;
      if (AllHidden(start + j, n)) {  // its block may be another's by now
        j += n;
        continue;
      }
      const W* values = j >= gathered_ ? tree_values_ + j * a_.head_dim
                                       : reinterpret_cast<const W*>(BlockOf(a_.values, start + j)) +
                                             static_cast<int64_t>(offset) * a_.head_dim;
      AddRun(values, j, n / kStep, Ahead(a_.values, start, a_.keys, start + kKeyTile));
      if (n % kStep != 0)
        AddLastOfPair(values + static_cast<int64_t>(n - 1) * a_.head_dim, j + n - 1);
      j += n;
    }
  }

  void AddRun(const W* values, int first_weight, int num_steps, int64_t ahead) {
    constexpr int kMaxGroups = kMaxHeadDim / 16;
    const W* groups[kMaxGroups];
    const int num_groups = (a_.head_dim + 15) / 16;
    for (int g = 0; g < num_groups; ++g) groups[g] = values + g * 16 * kStep;
    Multiply(weight_rows_ + row_, first_weight, groups, a_.head_dim * kStep, num_steps,
             Result(row_), stride_, num_groups, a_.head_dim % 16 != 0, ahead);
  }

  // The last key stands first in its pair; the second is not written yet and may hold anything.
  void AddLastOfPair(const W* values, int weight) {
    if constexpr (kStep == 2) {
      alignas(64) W pair[2 * kMaxHeadDim];
      for (int d = 0; d < a_.head_dim; ++d) {
        pair[2 * d] = values[2 * d];
        pair[2 * d + 1] = 0;
      }
      AddRun(pair, weight, 1, 0);
    }
  }

  void StoreResults() {
    for (int r = 0; r < a_.num_rows; ++r) {
      const Vec sum = Set1(sum_[r]);
      for (int d = 0; d < a_.head_dim; d += 16)
        StoreAs(a_.y_element, a_.y[r], d, Div(Load(Result(r) + d), sum),
                a_.head_dim - d < 16 ? 8 : 16);
    }
  }

  const AttentionArgs& a_;
  const float score_scale_;  // of what scores_ holds when weights are made of it
  const int stride_;         // elements from row to row of queries_ and results_
  int row_ = 0;              // rows [row_, row_ + num_) are summed now
  int num_;
  int last_;   // position of the last key that any of them sees
  int first_;  // of the first behind the sinks
  // Of the token of now, in a tree: positions from here on have other places; keys of the tile from
  // gathered_ on, a multiple of 16, are those of tree_keys_ and tree_values_.
  int tree_begin_ = kNoTree;
  int gathered_ = kKeyTile;
  const X* query_rows_[kMaxRows];
  const X* weight_rows_[kMaxRows];
  float max_[kMaxRows];  // of the scores so far
  float sum_[kMaxRows];  // of the weights so far, the sink's with them
  alignas(64) X queries_[(kMaxRows + 15) * kMaxHeadDim];  // AMX's tiles read sixteen from any on
  alignas(64) X weights_[kMaxRows * kKeyTile];
  alignas(64) float scores_[kMaxRows * kKeyTile];
  alignas(64) float results_[kMaxRows * kMaxHeadDim];
  alignas(64) W tree_keys_[kKeyTile * kMaxHeadDim];
  alignas(64) W tree_values_[kKeyTile * kMaxHeadDim];
};

template <typename Operand>
class RowsAttention : public AttentionOfRows<Operand, RowsAttention<Operand>> {
 public:
  using AttentionOfRows<Operand, RowsAttention<Operand>>::AttentionOfRows;
  friend AttentionOfRows<Operand, RowsAttention<Operand>>;
};

}  // namespace
}  // namespace inflight::ops::cpu
