// SPDX-License-Identifier: Apache-2.0
// Adapters of low rank (LoRA, arXiv:2106.09685): what they add to the sums of a linear, before bias
// and activation:
//
//   sums[t] += sum over parts p of the adapter of token t:  (x[t] A_p^T) B_p, or bias_p
//
// x A^T and what is added are float32 and unrounded. Tokens without an adapter keep the bits that
// they have without this.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor_view.h"

namespace inflight::ops {

inline constexpr int kMaxLoraRank = 256;

// Rows of A and B are as long as their width rounded up to this; a part's B is followed by as many
// elements more, which may be read and count for nothing.
inline constexpr int64_t kLoraPadding = 16;
constexpr int64_t LoraStride(int64_t width) {
  return (width + kLoraPadding - 1) / kLoraPadding * kLoraPadding;
}

// The linears of a layer. Of a gated feed-forward kFc is the branch that is activated (model's
// `fc`), kGate the other.
enum class LoraSite : uint8_t { kQkv, kDense, kFc, kGate, kProj };
inline constexpr int kNumLoraSites = 5;

// One pair of factors, or a bias. B stands transposed, its rows beside A's.
struct LoraPart {
  const void* a = nullptr;    // [rank, LoraStride(in_features)], zeros behind in_features
  const void* b = nullptr;    // [rank, LoraStride(num_features)]
  DType dtype = DType::kF32;  // of both: float32, float16 or bfloat16
  int32_t rank = 0;           // in [1, kMaxLoraRank]; 0 = a bias
  int64_t in_features = 0;
  int64_t first_feature = 0;  // it adds to outputs [first_feature, first_feature + num_features)
  int64_t num_features = 0;
  const float* bias = nullptr;  // [num_features], of rank 0; the last part of its site
};

// CUDA: a part in device memory.
inline constexpr int kMaxLoraParts = 4;  // of a site: factors of q, k and v, and a bias
struct LoraDevicePart {
  const void* a = nullptr;
  const void* b = nullptr;  // of rank 0 the bias, float32
  int32_t rank = 0;
  int32_t first_feature = 0;
  int32_t num_features = 0;  // 0: there is no part
  int32_t unused = 0;
};

// CUDA: tokens of a step that have one adapter and are computed together: entries
// [first, first + num) of LoraDevice::order.
struct LoraTile {
  int32_t adapter = 0;
  int32_t first = 0;
  int32_t num = 0;
  int32_t unused = 0;
};

// CUDA: what a step's kernels read, all in device memory at fixed addresses.
struct LoraDevice {
  const LoraDevicePart* parts = nullptr;  // [adapters, num_layers, kNumLoraSites, kMaxLoraParts]
  int num_layers = 0;
  const int32_t* order = nullptr;      // [tokens that have an adapter] those of each together
  const LoraTile* tiles = nullptr;     // [*num_tiles]
  const int32_t* num_tiles = nullptr;  // [1]
  int tile_tokens = 0;                 // of a full one: one of the following
  float* sums = nullptr;               // [num_sums, sums_stride]
  int64_t num_sums = 0;                // at least the step's tokens
  int64_t sums_stride = 0;             // at least the ranks of two sites of an adapter
};
inline constexpr int kSmallLoraTile = 8;   // of decode steps
inline constexpr int kLargeLoraTile = 32;  // of steps with prompts

// One adapter as kernels read it. Owns the list, not the factors.
class LoraTable {
 public:
  LoraTable() = default;
  explicit LoraTable(int num_layers) : parts_(static_cast<size_t>(num_layers) * kNumLoraSites) {}

  void Add(int layer, LoraSite site, const LoraPart& part) {
    parts_[At(layer, site)].push_back(part);
  }
  std::span<const LoraPart> Of(int layer, LoraSite site) const { return parts_[At(layer, site)]; }
  // Of all parts of the site together.
  int RankOf(int layer, LoraSite site) const {
    int rank = 0;
    for (const LoraPart& part : Of(layer, site)) rank += part.rank;
    return rank;
  }

 private:
  static size_t At(int layer, LoraSite site) {
    return static_cast<size_t>(layer) * kNumLoraSites + static_cast<size_t>(site);
  }
  std::vector<std::vector<LoraPart>> parts_;
};

// Which tokens of a step have which adapter, and what kernels keep between shrink and expand.
// Filled once a step: Clear, Add for each row that has an adapter, Group. Keeps its memory.
class LoraBatch {
 public:
  // Tokens of one adapter: entries [first, first + num) of tokens().
  struct Run {
    const LoraTable* adapter = nullptr;
    int first = 0;
    int num = 0;
  };

  void Clear(int num_tokens);
  // Tokens [first_token, first_token + num_tokens); no token twice.
  void Add(const LoraTable* adapter, int first_token, int num_tokens);
  void Group();

  bool empty() const { return rows_.empty(); }
  std::span<const Run> runs() const { return runs_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  int num_tokens() const { return static_cast<int>(entries_.size()); }  // of the step
  // The place of a token in tokens(); -1 = it has no adapter.
  int EntryOf(int64_t token) const { return entries_[static_cast<size_t>(token)]; }
  const LoraTable& AdapterOf(int entry) const { return *adapters_[static_cast<size_t>(entry)]; }

  LoraDevice device;  // CUDA: all that there is; the rest is of the CPU

  // x A^T of one linear, [tokens().size(), stride]; two, since gated linears have two weights.
  std::array<std::vector<float>, 2> sums;

 private:
  struct Row {
    const LoraTable* adapter;
    int first_token;
    int num_tokens;
  };
  std::vector<Row> rows_;
  std::vector<Run> runs_;
  std::vector<int32_t> tokens_;
  std::vector<const LoraTable*> adapters_;  // [tokens_.size()]
  std::vector<int32_t> entries_;            // [num_tokens of the step]
};

// What a linear is told of them.
struct LoraTerm {
  LoraBatch* batch = nullptr;  // null: no token of the step has an adapter
  int layer = 0;
};

}  // namespace inflight::ops
