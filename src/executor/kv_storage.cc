// SPDX-License-Identifier: Apache-2.0
#include "executor/kv_storage.h"

namespace inflight::executor {

ops::KvCacheView KvShape(const model::ModelConfig& config, int block_size) {
  return {.dtype = model::KvDType(config),
          .num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .block_size = block_size,
          .head_dim = config.head_dim};
}

uint64_t KvBytesPerBlock(const ops::KvCacheView& shape) {
  return shape.block_bytes() * static_cast<uint64_t>(shape.num_layers);
}

Result<KvStorage> KvStorage::Create(ops::KvCacheView shape, int64_t num_blocks, Device& device) {
  KvStorage storage;
  shape.num_blocks = num_blocks;
  ASSIGN_OR_RETURN(storage.buffer_,
                   Buffer::Allocate(device, "kv cache",
                                    KvBytesPerBlock(shape) * static_cast<uint64_t>(num_blocks)));
  shape.data = storage.buffer_.data();
  storage.view_ = shape;
  return storage;
}

}  // namespace inflight::executor
