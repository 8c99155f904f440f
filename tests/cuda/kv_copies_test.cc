// SPDX-License-Identifier: Apache-2.0
// Copies of KV blocks on a GPU against the same copies one after the other on the host; every byte
// that no copy names stays as it was.
#include "executor/cuda/kv_copies.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "gpu_test.h"
#include "tensor/buffer.h"

namespace inflight::executor::cuda {
namespace {

constexpr int kFirstBlock = 1;

class KvCopiesTest : public gpu::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  std::vector<std::byte> RandomBytes(size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }
  int Below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

  std::vector<std::byte> Download(const std::byte* data, size_t count) {
    std::vector<std::byte> bytes(count);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    gpu::Must(device().Copy(bytes.data(), data, count));
    return bytes;
  }

  static size_t BytesOf(const ops::KvCacheView& kv) {
    return static_cast<size_t>(kv.num_layers) * static_cast<size_t>(kv.num_blocks) *
           kv.block_bytes();
  }

  std::mt19937 random_{7};
  cudaStream_t stream_ = nullptr;
};

ops::KvCacheView Shape(DType dtype, int head_dim, int block_size, int64_t num_blocks) {
  return {.dtype = dtype,
          .num_layers = 3,
          .num_blocks = num_blocks,
          .num_kv_heads = 2,
          .block_size = block_size,
          .head_dim = head_dim};
}

TEST_F(KvCopiesTest, OpenBlocksAreCopiedAsFarAsTheyAreFilled) {
  for (const auto& [dtype, head_dim, block_size] :
       {std::tuple{DType::kBF16, 64, 16}, std::tuple{DType::kF8E4M3, 80, 32},
        std::tuple{DType::kF16, 256, 128}}) {
    const int num_blocks = 700;
    ops::KvCacheView kv = Shape(dtype, head_dim, block_size, num_blocks);
    std::vector<std::byte> expected = RandomBytes(BytesOf(kv));
    Buffer buffer = gpu::Must(Buffer::Allocate(device(), "kv", expected.size()));
    gpu::Must(device().Copy(buffer.data(), expected.data(), expected.size()));
    // Sources may be the same; targets are nobody's source. More than one launch takes.
    std::vector<kv_cache::BlockCopy> copies;
    for (int to = 300; to < 300 + 290; ++to)
      copies.push_back({.from = Below(300), .to = to, .num_tokens = 1 + Below(block_size)});
    ops::KvCacheView host = kv;
    host.data = expected.data();
    kv.data = buffer.data();
    const size_t token_bytes = static_cast<size_t>(head_dim) * SizeOf(dtype);
    for (const kv_cache::BlockCopy& copy : copies) {
      const size_t bytes = static_cast<size_t>(copy.num_tokens) * token_bytes;
      for (int layer = 0; layer < kv.num_layers; ++layer) {
        for (int head = 0; head < kv.num_kv_heads; ++head) {
          std::memcpy(host.Keys(layer, copy.to, head), host.Keys(layer, copy.from, head), bytes);
          std::memcpy(host.Values(layer, copy.to, head), host.Values(layer, copy.from, head),
                      bytes);
        }
      }
    }
    gpu::Must(CopyOpenBlocks(kv, copies, stream_));
    EXPECT_TRUE(Download(kv.data, expected.size()) == expected) << DTypeName(dtype);
  }
}

// Copies that depend on each other, as where a block leaves for the host, another one comes into
// its place, and a third one leaves to where that one was. Those of another KV group are not made.
TEST_F(KvCopiesTest, HostBlocksAreCopiedInTheirOrder) {
  constexpr int kNumBlocks = 5;
  constexpr int kNumHostBlocks = 4;
  for (int round = 0; round < 20; ++round) {
    const int head_dim = round % 2 == 0 ? 64 : 80;
    ops::KvCacheView kv = Shape(DType::kBF16, head_dim, 16, kNumBlocks + kFirstBlock);
    ops::KvCacheView host = Shape(DType::kBF16, head_dim, 16, kNumHostBlocks);
    std::vector<std::byte> expected_kv = RandomBytes(BytesOf(kv));
    std::vector<std::byte> expected_host = RandomBytes(BytesOf(host));
    Buffer buffer = gpu::Must(Buffer::Allocate(device(), "kv", expected_kv.size()));
    PinnedBuffer pinned = gpu::Must(PinnedBuffer::Allocate(device(), expected_host.size()));
    gpu::Must(device().Copy(buffer.data(), expected_kv.data(), expected_kv.size()));
    std::memcpy(pinned.data(), expected_host.data(), expected_host.size());
    std::vector<scheduler::HostBlockCopy> copies;
    const int num_copies = round == 0 ? scheduler::StepPlan::kMaxCopies : 1 + Below(30);
    for (int i = 0; i < num_copies; ++i) {
      const int device_block = Below(kNumBlocks);
      const int host_block = kNumBlocks + Below(kNumHostBlocks);
      const bool leaves = Below(2) == 0;
      copies.push_back({.group = round % 3 == 2 ? Below(2) : 1,
                        .from = leaves ? device_block : host_block,
                        .to = leaves ? host_block : device_block});
    }
    ops::KvCacheView kv_copy = kv;
    ops::KvCacheView host_copy = host;
    kv_copy.data = expected_kv.data();
    host_copy.data = expected_host.data();
    const auto block = [&](int layer, int id) {
      return id < kNumBlocks ? kv_copy.Keys(layer, id + kFirstBlock, 0)
                             : host_copy.Keys(layer, id - kNumBlocks, 0);
    };
    for (int layer = 0; layer < kv.num_layers; ++layer)
      for (const scheduler::HostBlockCopy& copy : copies)
        if (copy.group == 1)
          std::memcpy(block(layer, copy.to), block(layer, copy.from), kv.block_bytes());
    kv.data = buffer.data();
    host.data = pinned.data();
    gpu::Must(CopyHostBlocks(
        {.group = 1, .kv = kv, .host = host, .first_block = kFirstBlock, .num_blocks = kNumBlocks},
        copies, stream_));
    EXPECT_TRUE(Download(kv.data, expected_kv.size()) == expected_kv) << "round " << round;
    EXPECT_EQ(std::memcmp(host.data, expected_host.data(), expected_host.size()), 0)
        << "round " << round;
  }
}

}  // namespace
}  // namespace inflight::executor::cuda
