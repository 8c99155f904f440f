// SPDX-License-Identifier: Apache-2.0
// What the kernel of DecodeLayers is given, and the sizes that host and device share.
#pragma once

#include <cstdint>

#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/decode_layers.h"

namespace inflight::ops::cuda::decode_layers {

// Of the products' weights: codes in the order of tensor cores (ops/tensor_core_order.h).
enum class Form : uint8_t { kInt8, kInt4 };
constexpr int BitsOf(Form form) { return form == Form::kInt4 ? 4 : 8; }

inline constexpr int kWarps = 16;      // that multiply
inline constexpr int kCopiers = 2;     // warps that copy weights, each some rows of every stage
inline constexpr int kFinishers = 2;   // warps that add up what the others have, tiles in turns
inline constexpr int kSumBuffers = 4;  // tiles that wait for a finisher
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kAllThreads = kThreads + 32 * (kCopiers + kFinishers);
inline constexpr int kTileRows = 16;
// A stage of the ring: of each row of a tile so many bytes, 64 bytes further apart than that, so
// that rows fall on different banks.
inline constexpr int kStageRowBytes = 2048;
inline constexpr int kStagePitch = kStageRowBytes + 64;
inline constexpr int kStageBytes = kTileRows * kStagePitch;
inline constexpr int kMinStages = 3;
inline constexpr int kMaxStages = 8;
// Vectors of 8 elements of a row that a thread holds: rows of at most 8,192 are normed.
inline constexpr int kRowVectors = 2;
inline constexpr int kMaxHidden = kThreads * 8 * kRowVectors;
// Bytes behind a token's x: reads of 8 tokens fall on different banks.
inline constexpr int kXPad = 16;

struct LinearWeights {
  const uint8_t* rows;
  const float* scales;  // of each row
};
struct LayerArgs {
  LinearWeights qkv, dense, fc, gate, proj;
  const float* qkv_bias;  // or null
  const float* input_norm;
  const float* post_norm;
  float k_scale, v_scale;  // of an FP8 cache
};

struct Args {
  int num_tokens, num_layers;
  int hidden, intermediate, num_heads, num_kv_heads;
  float norm_eps, delta_factor;
  float scale_log2;  // of attention's scores, in base 2
  ActivationKind activation;
  void* residual;
  void* q;
  int64_t q_stride;
  void* attention;
  void* inner;
  void* y;
  const float* final_norm;
  const float* cos_sin;  // [max_seq_len, 2, head_dim / 2]
  const int32_t* positions;
  const int64_t* slots;
  const int32_t* seq_lens;
  const int32_t* tables;
  const int32_t* table_rows;  // or null
  int64_t table_stride;
  std::byte* cache;
  int64_t layer_bytes, block_bytes, head_bytes;
  int block_size;
  int splits;         // of a row's keys over CTAs, at most
  float* partials;    // [rows, num_heads, splits][head_dim + 2]
  int32_t* counters;  // 0 between kernels: of the barrier, then [rows, num_kv_heads]
  int x_stride;       // bytes from one token's x to the next
  int x_bytes;        // of shared memory for x and for what attention adds up
  int stages;
  LayerArgs layers[kMaxDecodeLayers];
};

inline constexpr int kBarrierCounters = 4;
// Keys of a row that one CTA takes at least, where they are split.
inline constexpr int kSplitKeys = 256;

// Of shared memory: sums of warps, of some tiles; barriers, slots and what the system
// keeps.
inline constexpr int kSumStride = kWarps + 4;  // of a row; rows fall on different banks
inline constexpr int kTileSumFloats = kSumStride * kMaxDecodeLayersRows * kTileRows;
inline constexpr int kSumFloats = kSumBuffers * kTileSumFloats;
inline constexpr int kStaticBytes = 1024;

// Whether the program has the kernels for the GPU in use.
bool HasKernels();

using LaunchOfForm = Status(const Args& args, DType dtype, DType kv_dtype, int head_dim,
                            CudaStream& stream);
LaunchOfForm LaunchInt8, LaunchInt4;

}  // namespace inflight::ops::cuda::decode_layers
