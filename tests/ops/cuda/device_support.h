// SPDX-License-Identifier: Apache-2.0
// What tests and benches of CUDA operators share: tensors, paged caches and batches in device
// memory, beside their copies on the host.
//
// Errors of the CUDA runtime end the program with the runtime's words: after one nothing works.
#pragma once

#include <string>
#include <vector>

#include "ops/attention.h"
#include "support.h"
#include "tensor/buffer.h"

namespace inflight::ops {

// Ends the program unless `status` is OK.
void Must(const Status& status);

// Waits for everything that was enqueued on any stream.
void Synchronize();

// An owned tensor in device memory. Starts at `offset_elements` behind a multiple of 256 bytes.
// Until something is written it is NaN in every float dtype, and so are 256 bytes before and behind
// it.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  DeviceTensor(Device& device, DType dtype, Shape shape, int offset_elements = 0);
  DeviceTensor(Device& device, const Tensor& host, int offset_elements = 0);

  const TensorView& view() const { return view_; }
  void CopyFrom(const Tensor& host);  // of the same dtype and shape
  Tensor ToHost() const;              // after what was enqueued before

  // Empty, or which byte outside the tensor was written.
  std::string Damage() const;

 private:
  Device* device_ = nullptr;
  Buffer memory_;
  TensorView view_;
};

// A paged cache of two layers in the layout of the CUDA kernels (kv_cache_view.h), on the host and
// on the device. Sequences' blocks lie in random order; block 0 is the scratch block. What no token
// was stored to is NaN.
class DeviceCache {
 public:
  // Room for sequences of the given lengths. `scales` as of KvCacheView: [2][2], or empty.
  DeviceCache(Device& device, const KvShape& shape, const std::vector<int>& seq_lens, uint64_t seed,
              std::vector<float> scales = {});

  const KvCacheView& view() const { return view_; }  // of device memory
  const KvCacheView& host() const { return host_; }  // of the copy on the host
  const std::vector<int>& blocks(int sequence) const {
    return tables_[static_cast<size_t>(sequence)];
  }
  int64_t Slot(int sequence, int position) const;

  // Random keys and values in [-1, 1) for positions [0, seq_len) of a sequence, in the copy on the
  // host. Upload() brings them to the device.
  void Fill(int layer, int sequence, int seq_len, uint64_t seed);
  void Upload();
  std::vector<std::byte> Download() const;  // the device's whole pool

  size_t num_bytes() const { return pool_.view().num_bytes(); }
  // Index of an element, counted from the start of the pool.
  int64_t ElementIndex(int layer, int64_t slot, bool is_value, int kv_head, int dim) const;
  // What the host's copy stands for, scale included.
  float Key(int layer, int sequence, int position, int kv_head, int dim) const {
    return Get(layer, Slot(sequence, position), /*is_value=*/false, kv_head, dim);
  }
  float Value(int layer, int sequence, int position, int kv_head, int dim) const {
    return Get(layer, Slot(sequence, position), /*is_value=*/true, kv_head, dim);
  }

 private:
  float Get(int layer, int64_t slot, bool is_value, int kv_head, int dim) const;

  Device* device_;
  std::vector<float> scales_;
  Tensor pool_;  // the host's copy
  DeviceTensor device_pool_;
  KvCacheView view_, host_;
  std::vector<std::vector<int>> tables_;
};

struct DeviceBatchOptions {
  // Rows as a graph's bucket adds them behind the others, which are then all of one token: position
  // 0, length 1, slot and table in the scratch block.
  int num_padded_rows = 0;
  // Lines of the block table belong to rows by PagedBatch::table_rows, in random order, with unused
  // lines between.
  bool use_table_rows = false;
};

// A PagedBatch in device memory; row i belongs to sequence sequences[i] of the cache. Unused
// entries of the block table hold the scratch block.
class DeviceBatch {
 public:
  DeviceBatch(Device& device, const DeviceCache& cache, const std::vector<SequenceRow>& rows,
              const std::vector<int>& sequences, const DeviceBatchOptions& options = {});

  const PagedBatch& view() const { return view_; }
  const PagedBatch& host() const { return host_; }  // the same, in host memory

 private:
  struct Array {
    Tensor host;
    DeviceTensor device;
  };
  Array cu_seqlens_q_, seq_lens_kv_, positions_, slot_mapping_, block_tables_, table_rows_;
  PagedBatch view_, host_;
};

}  // namespace inflight::ops
