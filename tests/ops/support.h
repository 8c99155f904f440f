// SPDX-License-Identifier: Apache-2.0
// What tests and benches of operators share: owned tensors with repeatable random content, packed
// weights, and batches over a paged cache.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/attention.h"
#include "ops/backend.h"

namespace inflight::ops {

// Repeatable numbers in [-1, 1): splitmix64 of a counter.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  float Uniform();
  // As if `count` numbers had been drawn.
  void Skip(int64_t count) { state_ += static_cast<uint64_t>(count) * kStep; }
  int Below(int n) { return static_cast<int>(Next() % static_cast<uint64_t>(n)); }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15U;
  uint64_t state_;
};

// body(begin, end) for parts of [0, n), on the host's cores where n is large: of the largest cases
// the operands alone are a gigabyte.
void ForParts(int64_t n, const std::function<void(int64_t, int64_t)>& body);

// An owned tensor. Starts at `offset_elements` behind a multiple of 64 bytes; what lies before and
// behind it is NaN (as floats), so that a kernel that reads there shows.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Shape shape, int offset_elements = 0);
  static Tensor Random(DType dtype, Shape shape, uint64_t seed, int offset_elements = 0);
  static Tensor Of(DType dtype, Shape shape, const std::vector<float>& values);
  static Tensor Int32(const std::vector<int>& values);
  static Tensor Int64(const std::vector<int64_t>& values);

  const TensorView& view() const { return view_; }
  float Get(int64_t i) const;
  void Set(int64_t i, float value);
  std::vector<float> ToFloats() const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  TensorView view_;
};

// int8 tensors whose elements fit, as int4: two a byte.
Tensor PackedInt4(const Tensor& codes);

// A weight in `layout`, and the row-major values it was made from (rounded to `dtype`).
class PackedWeight {
 public:
  PackedWeight(DType dtype, WeightLayout layout, const Tensor& row_major, CpuPool* pool = nullptr);
  const Weight& weight() const { return weight_; }

 private:
  Tensor memory_;
  Weight weight_;
};

// The dtype of the activations that linears of `weight` read.
DType InputDType(DType weight);

// One row of a packed batch: its last `num_queries` tokens of `seq_len` are in the step.
struct SequenceRow {
  int num_queries = 1;
  int seq_len = 1;
};

struct KvShape {
  DType dtype = DType::kF32;
  int num_kv_heads = 1;
  int head_dim = 64;
  int block_size = 64;
  int row_dim = 0;  // KvCacheView::row_dim, of a device
};

// A paged cache of two layers whose blocks lie in random order and hold NaN wherever no token is
// stored.
class PagedCache {
 public:
  // Room for sequences of the given lengths.
  PagedCache(const KvShape& shape, const std::vector<int>& seq_lens, uint64_t seed);

  const KvCacheView& view() const { return view_; }
  const std::vector<int>& blocks(int sequence) const {
    return tables_[static_cast<size_t>(sequence)];
  }
  int64_t Slot(int sequence, int position) const;
  // Random keys and values for positions [0, seq_len) of a sequence.
  void Fill(int layer, int sequence, int seq_len, uint64_t seed) const;
  float Key(int layer, int sequence, int position, int kv_head, int dim) const;
  float Value(int layer, int sequence, int position, int kv_head, int dim) const;

 private:
  Tensor memory_;
  KvCacheView view_;
  std::vector<std::vector<int>> tables_;
};

// The arrays of a PagedBatch; row i belongs to sequence sequences[i] of the cache.
class BatchArrays {
 public:
  BatchArrays(const PagedCache& cache, const std::vector<SequenceRow>& rows,
              const std::vector<int>& sequences);
  const PagedBatch& view() const { return view_; }

 private:
  Tensor cu_seqlens_q_, seq_lens_kv_, positions_, slot_mapping_, block_tables_;
  PagedBatch view_;
};

}  // namespace inflight::ops
