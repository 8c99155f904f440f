// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>

#include "tensor/cpu_pool.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// Fills with bytes that are NaN in every float dtype and out of range as ints.
void Poison(std::byte* p, size_t n) { std::memset(p, 0xff, n); }

}  // namespace

uint64_t Random::Next() {
  uint64_t z = (state_ += kStep);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

float Random::Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-23F - 1.0F; }

void ForParts(int64_t n, const std::function<void(int64_t, int64_t)>& body) {
  constexpr int64_t kPart = int64_t{1} << 20;
  if (n <= kPart) return body(0, n);
  static auto* const pool = new CpuPool();
  pool->ParallelFor((n + kPart - 1) / kPart,
                    [&](int64_t i) { body(i * kPart, std::min(n, (i + 1) * kPart)); });
}

void Tensor::Free::operator()(std::byte* p) const { std::free(p); }

Tensor::Tensor(DType dtype, Shape shape, int offset_elements) {
  view_ = {.dtype = dtype, .shape = shape};
  const size_t offset = kGuardBytes + BytesOf(dtype, offset_elements);
  const size_t needed = offset + view_.num_bytes() + kGuardBytes;
  const size_t unit = needed >= kHugePage ? kHugePage : 64;  // benches read gigabytes
  const size_t total = (needed + unit - 1) / unit * unit;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(unit, total)));
  if (unit == kHugePage) madvise(memory_.get(), total, MADV_HUGEPAGE);
  Poison(memory_.get(), total);
  view_.data = memory_.get() + offset;
}

Tensor Tensor::Random(DType dtype, Shape shape, uint64_t seed, int offset_elements) {
  Tensor t(dtype, shape, offset_elements);
  ForParts(shape.num_elements(), [&](int64_t begin, int64_t end) {
    ops::Random random(seed);
    random.Skip(begin);
    for (int64_t i = begin; i < end; ++i) t.Set(i, random.Uniform());
  });
  return t;
}

Tensor Tensor::Of(DType dtype, Shape shape, const std::vector<float>& values) {
  Tensor t(dtype, shape);
  ForParts(static_cast<int64_t>(values.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) t.Set(i, values[static_cast<size_t>(i)]);
  });
  return t;
}

Tensor Tensor::Int32(const std::vector<int>& values) {
  Tensor t(DType::kI32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.view_.as<int32_t>());
  return t;
}

Tensor Tensor::Int64(const std::vector<int64_t>& values) {
  Tensor t(DType::kI64, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.view_.as<int64_t>());
  return t;
}

float Tensor::Get(int64_t i) const { return LoadFloat(view_.data, view_.dtype, i); }

void Tensor::Set(int64_t i, float value) { StoreFloat(view_.data, view_.dtype, i, value); }

std::vector<float> Tensor::ToFloats() const {
  std::vector<float> values(static_cast<size_t>(view_.num_elements()));
  ForParts(view_.num_elements(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] = Get(i);
  });
  return values;
}

Tensor PackedInt4(const Tensor& codes) {
  Tensor packed(DType::kI4, codes.view().shape);
  const auto* from = codes.view().as<const int8_t>();
  for (int64_t i = 0; i < codes.view().num_elements(); i += 2)
    packed.view().as<uint8_t>()[i / 2] = PackInt4(from[i], from[i + 1]);
  return packed;
}

PackedWeight::PackedWeight(DType dtype, WeightLayout layout, const Tensor& row_major,
                           CpuPool* pool) {
  const Shape& shape = row_major.view().shape;
  const size_t bytes = WeightBytes(dtype, layout, shape[0], shape[1]);
  memory_ = Tensor(DType::kU8, {static_cast<int64_t>(bytes)});
  PackWeight(row_major.view(), dtype, layout, memory_.view().data, pool);
  weight_ = {.data = memory_.view().data,
             .dtype = dtype,
             .layout = layout,
             .out_features = shape[0],
             .in_features = shape[1]};
}

DType InputDType(DType weight) { return weight == DType::kBF16 ? DType::kBF16 : DType::kF32; }

PagedCache::PagedCache(const KvShape& shape, const std::vector<int>& seq_lens, uint64_t seed) {
  view_ = {.dtype = shape.dtype,
           .num_layers = 2,
           .num_kv_heads = shape.num_kv_heads,
           .block_size = shape.block_size,
           .head_dim = shape.head_dim};
  std::vector<int> num_blocks;
  for (const int seq_len : seq_lens)
    num_blocks.push_back((seq_len + shape.block_size - 1) / shape.block_size);
  view_.num_blocks = 1 + std::accumulate(num_blocks.begin(), num_blocks.end(), 0);

  std::vector<int> order(static_cast<size_t>(view_.num_blocks));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(random.Below(static_cast<int>(i)))]);
  size_t next = 0;
  for (const int n : num_blocks) {
    tables_.emplace_back(order.begin() + static_cast<long>(next),
                         order.begin() + static_cast<long>(next) + n);
    next += static_cast<size_t>(n);
  }

  const auto bytes =
      static_cast<int64_t>(view_.block_bytes()) * view_.num_blocks * view_.num_layers;
  memory_ = Tensor(DType::kU8, {bytes});  // poisoned throughout
  view_.data = memory_.view().as<std::byte>();
}

int64_t PagedCache::Slot(int sequence, int position) const {
  const auto block = static_cast<size_t>(position / view_.block_size);
  return static_cast<int64_t>(blocks(sequence)[block]) * view_.block_size +
         position % view_.block_size;
}

void PagedCache::Fill(int layer, int sequence, int seq_len, uint64_t seed) const {
  Random random(seed);
  for (int position = 0; position < seq_len; ++position) {
    const int64_t slot = Slot(sequence, position);
    const int64_t block = slot / view_.block_size;
    const auto offset = static_cast<int>(slot % view_.block_size);
    for (int head = 0; head < view_.num_kv_heads; ++head)
      for (int d = 0; d < view_.head_dim; ++d) {
        StoreFloat(view_.Keys(layer, block, head), view_.dtype, view_.KeyIndex(offset, d),
                   random.Uniform());
        StoreFloat(view_.Values(layer, block, head), view_.dtype, view_.ValueIndex(offset, d),
                   random.Uniform());
      }
  }
}

float PagedCache::Key(int layer, int sequence, int position, int kv_head, int dim) const {
  const int64_t slot = Slot(sequence, position);
  return LoadFloat(view_.Keys(layer, slot / view_.block_size, kv_head), view_.dtype,
                   view_.KeyIndex(static_cast<int>(slot % view_.block_size), dim));
}

float PagedCache::Value(int layer, int sequence, int position, int kv_head, int dim) const {
  const int64_t slot = Slot(sequence, position);
  return LoadFloat(view_.Values(layer, slot / view_.block_size, kv_head), view_.dtype,
                   view_.ValueIndex(static_cast<int>(slot % view_.block_size), dim));
}

BatchArrays::BatchArrays(const PagedCache& cache, const std::vector<SequenceRow>& rows,
                         const std::vector<int>& sequences) {
  std::vector<int> cu_seqlens_q = {0};
  std::vector<int> seq_lens_kv;
  std::vector<int> positions;
  std::vector<int64_t> slot_mapping;
  size_t width = 1;
  for (const int sequence : sequences) width = std::max(width, cache.blocks(sequence).size());
  std::vector<int> tables(rows.size() * width, 0);  // unused entries: some block, never read
  for (size_t r = 0; r < rows.size(); ++r) {
    const SequenceRow& row = rows[r];
    cu_seqlens_q.push_back(cu_seqlens_q.back() + row.num_queries);
    seq_lens_kv.push_back(row.seq_len);
    for (int p = row.seq_len - row.num_queries; p < row.seq_len; ++p) {
      positions.push_back(p);
      slot_mapping.push_back(cache.Slot(sequences[r], p));
    }
    const std::vector<int>& blocks = cache.blocks(sequences[r]);
    std::copy(blocks.begin(), blocks.end(), tables.begin() + static_cast<long>(r * width));
  }
  const auto num_rows = static_cast<int>(rows.size());
  cu_seqlens_q_ = Tensor::Int32(cu_seqlens_q);
  seq_lens_kv_ = Tensor::Int32(seq_lens_kv);
  positions_ = Tensor::Int32(positions);
  slot_mapping_ = Tensor::Int64(slot_mapping);
  block_tables_ = Tensor::Int32(tables);
  view_ = {.num_rows = num_rows,
           .num_tokens = cu_seqlens_q.back(),
           .cu_seqlens_q = cu_seqlens_q_.view(),
           .seq_lens_kv = seq_lens_kv_.view(),
           .positions = positions_.view(),
           .slot_mapping = slot_mapping_.view(),
           .block_tables = {.data = block_tables_.view().data,
                            .dtype = DType::kI32,
                            .shape = {num_rows, static_cast<int64_t>(width)}}};
}

}  // namespace inflight::ops
