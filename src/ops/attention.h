// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "ops/activation.h"
#include "ops/kv_cache_view.h"
#include "ops/lora.h"
#include "ops/weight.h"
#include "tensor/stream.h"

namespace inflight::ops {

// Bits of a mask of a tree (PagedBatch::tree_masks): the root and 63 drafts.
inline constexpr int kMaxTreePlaces = 64;
// Keys before a token's own, it among them, that need not stand at their positions
// (PagedBatch::tree_shifts).
inline constexpr int kMaxTreeDepth = 16;

// How rows of a packed batch map to sequences and to KV blocks. Host-known bounds; everything else
// is device memory.
//
// Row r holds tokens [cu_seqlens_q[r], cu_seqlens_q[r+1]) of the batch; they are the last ones of a
// sequence whose cache, after this step's write, holds seq_lens_kv[r] tokens. The token at position
// p lives in block block_tables[r][p / block_size], at offset p % block_size.
struct PagedBatch {
  int num_rows = 0;
  int num_tokens = 0;
  TensorView cu_seqlens_q;  // [num_rows + 1] int32
  TensorView seq_lens_kv;   // [num_rows] int32, this step's tokens included
  TensorView positions;     // [num_tokens] int32
  TensorView slot_mapping;  // [num_tokens] int64: block * block_size + offset where the token's K
                            // and V are written
  TensorView block_tables;  // [num_rows, max_blocks_per_seq] int32

  // Of rows whose last tokens are a tree of drafts (arXiv:2401.10774, section 2.1.2).
  // [num_tokens] int64, 64 bits each; empty: there is none.
  //
  // A token with mask 0 sees the keys up to its own. Any other sees the key that stands i places
  // before the last one of its row where bit i is set, its own the nearest to the end, and all keys
  // more than 63 places before the last. Those that it sees, in the order of their places, are the
  // keys of positions 0 to positions[t]: a token of depth d behind the root at position p has
  // position p + d, wherever its key stands. slot_mapping is by place.
  TensorView tree_masks;  // on the CPU

  // The same on CUDA, where each draft is a decode row of its own. [>= num_decode_rows,
  // kMaxTreeDepth] uint8; empty: there is no tree.
  //
  // The key of row r's position positions[r] - j stands tree_shifts[r][j] places behind its
  // position; those of j >= kMaxTreeDepth stand at theirs. seq_lens_kv is by position, slot_mapping
  // by place. Blocks of table_rows are those of places.
  TensorView tree_shifts;

  // CUDA only. Decode rows come first: rows [0, num_decode_rows) hold one token each, so token r is
  // row r's.
  int num_decode_rows = 0;
  TensorView table_rows;  // [num_rows] int32: the line of block_tables that is row r's;
                          // block_tables is then [max_slots, max_blocks_per_seq]. Empty = r
};

// Rotary position embedding as a table, so that every scaling rule (plain, linear, llama3) is data:
// the angle of pair j at position p is p * inv_freq[j] (arXiv:2104.09864).
//
//   kNeox  rotates (j, j + rotary_dim/2)
//   kGptj  rotates (2j, 2j + 1)
enum class RopeStyle : uint8_t { kNone, kNeox, kGptj };
struct Rope {
  RopeStyle style = RopeStyle::kNone;
  int rotary_dim = 0;  // <= head_dim, even
  TensorView cos_sin;  // [max_seq_len, 2, rotary_dim / 2] float32: cos row, then sin row
};

// The projection that starts attention: q, k, v = x W^T + bias; normalise each head of q and k
// where there are weights for it; rotate q and k; write k and v to the cache; keep q.
struct QkvRopeKvParams {
  Activation x;   // [num_tokens, hidden_size]
  Weight weight;  // [(num_heads + 2 num_kv_heads) * head_dim, hidden_size]: rows q, then k, then v
  TensorView bias;  // [(num_heads + 2 num_kv_heads) * head_dim] float32; empty = none
  int num_heads = 0;
  // Weights of an RMSNorm (activation.h) of each head of q, and of each of k: [head_dim] float32,
  // both or none. Or of all heads of q, and of all of k, together: [num_heads * head_dim] and
  // [num_kv_heads * head_dim].
  TensorView q_norm, k_norm;
  float norm_eps = 0;
  Rope rope;
  PagedBatch batch;
  KvCacheView kv;  // num_kv_heads and head_dim are its
  int layer = 0;
  TensorView workspace;  // [num_tokens, (num_heads + 2 num_kv_heads) * head_dim] float32 scratch;
                         // on CUDA of the model's dtype
  TensorView scratch;    // of the linear (linear.h); int8 weights only
  LoraTerm lora;         // of kQkv, to the projection's sums
  TensorView q;  // [num_tokens, num_heads, kv.row()] float32, zeros behind head_dim. On CUDA of the
                 // model's dtype, and it may be the first columns of `workspace`: then q_stride is
                 // its width
  int64_t q_stride = 0;  // elements from one token's q to the next; 0 = num_heads * kv.row()
};

// Sizes of heads that CUDA has 16-bit kernels of attention for. A head of another multiple of 8 is
// stored for these, in q and in the cache, with zeros up to the next size (KvCacheView::row_dim).
inline constexpr std::array kCudaHeadDims = {64, 80, 96, 128, 256};
constexpr int CudaRowDim(int head_dim) {
  for (const int dim : kCudaHeadDims)
    if (head_dim <= dim) return dim;
  return head_dim;
}

// Which keys a token sees beside those before it: the first num_sinks of its sequence and the last
// window - num_sinks, its own the last of them (arXiv:2309.17453).
//
// Blocks of keys between the two are never read: their entries of the block table may hold
// anything.
struct SlidingWindow {
  int window = 0;  // 0 = all
  int num_sinks = 0;

  // The first key behind the sinks that the token at `position` sees.
  constexpr int First(int position) const {
    if (window == 0) return 0;
    const int first = position + 1 - (window - num_sinks);
    return first > num_sinks ? first : num_sinks;
  }
  bool operator==(const SlidingWindow&) const = default;
};

// Causal attention over the paged cache; query head h reads kv head h * num_kv_heads / num_heads.
//
//   y[t, h] = softmax(Cap(scale * q[t, h] K^T)) V     Cap(s) = softcap * tanh(s / softcap), or s
//
// over the positions in [0, positions[t]] that the window shows (Gemma 2, arXiv:2408.00118, has
// caps); softmax in float32 (online, arXiv:2205.14135). With sink_logits the weights of a head's
// keys add up to less than 1 (gpt-oss, openai/gpt-oss/gpt_oss/torch/model.py, sdpa):
//
//   w[j] = e^s[j] / (e^sink_logits[h] + sum_i e^s[i])
//
// A token of a tree has the same bits as in a row of its ancestors alone, where what else is in the
// step does not show in bits: on the CPU, and on a fixed stream of CUDA.
struct AttentionParams {
  TensorView q;          // [num_tokens, num_heads, kv.row()] float32; on CUDA of the model's dtype
  int64_t q_stride = 0;  // as of QkvRopeKvParams
  PagedBatch batch;
  KvCacheView kv;
  int layer = 0;
  float scale = 0;         // usually 1 / sqrt(head_dim)
  float softcap = 0;       // 0 = none
  TensorView sink_logits;  // [num_heads] float32; empty = none
  SlidingWindow sliding;
  int plan = 0;  // CUDA: the AttentionPlanParams::plan that is of this batch and window
  // [num_tokens, num_heads * head_dim] f32 | bf16, the dtype that the next linear reads
  TensorView y;
};

// What attention derives from a batch once per step and window, into memory of the stream: how
// decode rows are split over the GPU and which tiles the prefill rows have.
struct AttentionPlanParams {
  PagedBatch batch;
  KvCacheView kv;
  int num_heads = 0;
  SlidingWindow sliding;
  int plan = 0;  // below ShapeClass::num_windows; where it is put
};

}  // namespace inflight::ops
