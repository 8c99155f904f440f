// SPDX-License-Identifier: Apache-2.0
#include "device_support.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "tensor/cuda_status.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr auto kPoison = std::byte{0xff};
constexpr int kNumLayers = 2;

std::vector<int> Shuffled(int n, uint64_t seed) {
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(random.Below(static_cast<int>(i)))]);
  return order;
}

// Device::Copy may return while a small copy from pageable memory is still on its way, and streams
// that do not wait for the default one would overtake it.
void Copy(Device& device, void* target, const void* source, size_t num_bytes) {
  Must(device.Copy(target, source, num_bytes));
  Synchronize();
}

}  // namespace

void Must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.ToString());
  std::exit(1);
}

void Synchronize() { Must(inflight::cuda::ToStatus(cudaDeviceSynchronize(), "the GPU's work")); }

DeviceTensor::DeviceTensor(Device& device, DType dtype, Shape shape, int offset_elements)
    : device_(&device) {
  view_ = {.dtype = dtype, .shape = shape};
  const size_t offset = kGuardBytes + BytesOf(dtype, offset_elements);
  Result<Buffer> memory =
      Buffer::Allocate(device, "test", offset + view_.num_bytes() + kGuardBytes);
  Must(memory.status());
  memory_ = std::move(memory.value());
  Must(inflight::cuda::ToStatus(cudaMemset(memory_.data(), 0xff, memory_.size()), "poisoning"));
  Synchronize();
  view_.data = memory_.data() + offset;
}

DeviceTensor::DeviceTensor(Device& device, const Tensor& host, int offset_elements)
    : DeviceTensor(device, host.view().dtype, host.view().shape, offset_elements) {
  CopyFrom(host);
}

void DeviceTensor::CopyFrom(const Tensor& host) {
  CHECK(host.view().dtype == view_.dtype && host.view().shape == view_.shape);
  if (view_.num_bytes() > 0) Copy(*device_, view_.data, host.view().data, view_.num_bytes());
}

Tensor DeviceTensor::ToHost() const {
  Tensor host(view_.dtype, view_.shape);
  Synchronize();
  if (view_.num_bytes() > 0) Must(device_->Copy(host.view().data, view_.data, view_.num_bytes()));
  return host;
}

std::string DeviceTensor::Damage() const {
  if (memory_.data() == nullptr) return {};
  std::vector<std::byte> all(memory_.size());
  Synchronize();
  Must(device_->Copy(all.data(), memory_.data(), all.size()));
  const auto begin = static_cast<size_t>(static_cast<std::byte*>(view_.data) - memory_.data());
  const size_t end = begin + view_.num_bytes();
  for (size_t i = 0; i < all.size(); ++i) {
    if ((i >= begin && i < end) || all[i] == kPoison) continue;
    const bool is_before = i < begin;
    return fmt::format("{}: byte {} {} it was written", view_.ToString(),
                       is_before ? begin - i : i - end, is_before ? "before" : "behind");
  }
  return {};
}

DeviceCache::DeviceCache(Device& device, const KvShape& shape, const std::vector<int>& seq_lens,
                         uint64_t seed, std::vector<float> scales)
    : device_(&device), scales_(std::move(scales)) {
  host_ = {.dtype = shape.dtype,
           .num_layers = kNumLayers,
           .num_kv_heads = shape.num_kv_heads,
           .block_size = shape.block_size,
           .head_dim = shape.head_dim,
           .row_dim = shape.row_dim,
           .scales = scales_.empty() ? nullptr : scales_.data()};
  std::vector<int> num_blocks;
  for (const int seq_len : seq_lens)
    num_blocks.push_back((seq_len + shape.block_size - 1) / shape.block_size);
  const int total = std::accumulate(num_blocks.begin(), num_blocks.end(), 0);
  host_.num_blocks = 2 + total;  // the scratch block, and one that nobody uses
  const std::vector<int> order = Shuffled(total + 1, seed);
  size_t next = 0;
  for (const int n : num_blocks) {
    std::vector<int>& table = tables_.emplace_back();
    for (int i = 0; i < n; ++i) table.push_back(1 + order[next++]);
  }
  const auto bytes =
      static_cast<int64_t>(host_.block_bytes()) * host_.num_blocks * host_.num_layers;
  pool_ = Tensor(DType::kU8, {bytes});  // poisoned throughout
  device_pool_ = DeviceTensor(device, DType::kU8, {bytes});
  host_.data = pool_.view().as<std::byte>();
  view_ = host_;
  view_.data = device_pool_.view().as<std::byte>();
}

int64_t DeviceCache::Slot(int sequence, int position) const {
  const auto block = static_cast<size_t>(position / host_.block_size);
  return static_cast<int64_t>(blocks(sequence)[block]) * host_.block_size +
         position % host_.block_size;
}

int64_t DeviceCache::ElementIndex(int layer, int64_t slot, bool is_value, int kv_head,
                                  int dim) const {
  const int64_t block = int64_t{layer} * host_.num_blocks + slot / host_.block_size;
  const int64_t head = (block * 2 + (is_value ? 1 : 0)) * host_.num_kv_heads + kv_head;
  return (head * host_.block_size + slot % host_.block_size) * host_.row() + dim;
}

void DeviceCache::Fill(int layer, int sequence, int seq_len, uint64_t seed) {
  const int64_t numbers = int64_t{2} * host_.num_kv_heads * host_.head_dim;  // of a position
  device_->cpu_pool().ParallelFor(seq_len, [&](int64_t position) {
    Random random(seed);
    random.Skip(position * numbers);
    const int64_t slot = Slot(sequence, static_cast<int>(position));
    for (const bool is_value : {false, true})
      for (int head = 0; head < host_.num_kv_heads; ++head)
        for (int d = 0; d < host_.row(); ++d)  // zeros behind a head
          StoreFloat(host_.data, host_.dtype, ElementIndex(layer, slot, is_value, head, d),
                     d < host_.head_dim ? random.Uniform() : 0);
  });
}

void DeviceCache::Upload() { device_pool_.CopyFrom(pool_); }

std::vector<std::byte> DeviceCache::Download() const {
  const Tensor pool = device_pool_.ToHost();
  const auto* data = pool.view().as<const std::byte>();
  return {data, data + pool.view().num_bytes()};
}

float DeviceCache::Get(int layer, int64_t slot, bool is_value, int kv_head, int dim) const {
  const float stored =
      LoadFloat(host_.data, host_.dtype, ElementIndex(layer, slot, is_value, kv_head, dim));
  if (scales_.empty()) return stored;
  return stored * scales_[static_cast<size_t>(layer * 2 + (is_value ? 1 : 0))];
}

DeviceBatch::DeviceBatch(Device& device, const DeviceCache& cache,
                         const std::vector<SequenceRow>& rows, const std::vector<int>& sequences,
                         const DeviceBatchOptions& options) {
  constexpr int kScratchBlock = 0;
  const int num_rows = static_cast<int>(rows.size()) + options.num_padded_rows;
  std::vector<int> cu_seqlens_q = {0};
  std::vector<int> seq_lens_kv;
  std::vector<int> positions;
  std::vector<int64_t> slot_mapping;
  size_t width = 1;
  for (const int sequence : sequences) width = std::max(width, cache.blocks(sequence).size());
  ++width;  // so that every line has unused entries

  // Lines of the table: one for each row, or as many again that nobody uses.
  const int num_lines = options.use_table_rows ? 2 * num_rows : num_rows;
  std::vector<int> lines = Shuffled(num_lines, 7);
  if (!options.use_table_rows) std::iota(lines.begin(), lines.end(), 0);
  lines.resize(static_cast<size_t>(num_rows));
  std::vector<int> tables(static_cast<size_t>(num_lines) * width, kScratchBlock);

  int num_decode_rows = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const SequenceRow& row = rows[r];
    if (row.num_queries == 1 && num_decode_rows == static_cast<int>(r)) ++num_decode_rows;
    cu_seqlens_q.push_back(cu_seqlens_q.back() + row.num_queries);
    seq_lens_kv.push_back(row.seq_len);
    for (int p = row.seq_len - row.num_queries; p < row.seq_len; ++p) {
      positions.push_back(p);
      slot_mapping.push_back(cache.Slot(sequences[r], p));
    }
    const std::vector<int>& blocks = cache.blocks(sequences[r]);
    std::copy(blocks.begin(), blocks.end(),
              tables.begin() + static_cast<long>(static_cast<size_t>(lines[r]) * width));
  }
  CHECK(options.num_padded_rows == 0 || num_decode_rows == static_cast<int>(rows.size()));
  for (int i = 0; i < options.num_padded_rows; ++i) {
    cu_seqlens_q.push_back(cu_seqlens_q.back() + 1);
    seq_lens_kv.push_back(1);
    positions.push_back(0);
    slot_mapping.push_back(kScratchBlock * cache.host().block_size);
  }
  num_decode_rows += options.num_padded_rows;

  host_ = {
      .num_rows = num_rows, .num_tokens = cu_seqlens_q.back(), .num_decode_rows = num_decode_rows};
  view_ = host_;
  const auto place = [&](Array& array, Tensor host, Shape shape, TensorView PagedBatch::*field) {
    array.device = DeviceTensor(device, host);
    array.host = std::move(host);
    host_.*field = array.host.view();
    view_.*field = array.device.view();
    (host_.*field).shape = (view_.*field).shape = shape;
  };
  place(cu_seqlens_q_, Tensor::Int32(cu_seqlens_q), {num_rows + 1}, &PagedBatch::cu_seqlens_q);
  place(seq_lens_kv_, Tensor::Int32(seq_lens_kv), {num_rows}, &PagedBatch::seq_lens_kv);
  place(positions_, Tensor::Int32(positions), {host_.num_tokens}, &PagedBatch::positions);
  place(slot_mapping_, Tensor::Int64(slot_mapping), {host_.num_tokens}, &PagedBatch::slot_mapping);
  place(block_tables_, Tensor::Int32(tables), {num_lines, static_cast<int64_t>(width)},
        &PagedBatch::block_tables);
  if (options.use_table_rows)
    place(table_rows_, Tensor::Int32(lines), {num_rows}, &PagedBatch::table_rows);
}

}  // namespace inflight::ops
