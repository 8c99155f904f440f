// SPDX-License-Identifier: Apache-2.0
// Adapters of low rank (LoRA, arXiv:2106.09685) as clients send them: pairs of factors that are
// added to a model's linears, y += B (A x), for the tokens of one request, and biases with them.
//
// Layout and module ids: docs/reference/adapters.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "inflight/status.h"

namespace inflight {

enum class LoraDType : uint8_t { kFloat16, kBFloat16, kFloat32 };

// One adapter. Row i of `weights` is A [rank, in] of rows[i], then B [out, rank], then anything up
// to `width`; the scale (alpha / rank) is in B already.
struct LoraTensors {
  struct Row {
    int module = 0;  // 0 attn_qkv, 1 attn_q, 2 attn_k, 3 attn_v, 4 attn_dense, 5 mlp_h_to_4h,
                     // 6 mlp_4h_to_h, 7 mlp_gate
    int layer = 0;
    int rank = 0;  // in [1, 256]
  };
  std::vector<Row> rows;
  LoraDType dtype = LoraDType::kFloat16;
  int64_t width = 0;               // elements
  std::vector<std::byte> weights;  // [rows.size(), width] of dtype

  // Of models on a CPU. A module has at most one of each kind.
  struct Bias {
    int module = 0;
    int layer = 0;
    bool replaces = false;      // the model's own bias, which is there; else it is added to y
    std::vector<float> values;  // [out]
  };
  std::vector<Bias> biases;
};

// Which adapter a request wants. The executor keeps those that came, by id, and forgets the one
// that was not used for the longest time when it has no room.
struct LoraUse {
  // Of Request::client_id: an id that another client sent is another adapter.
  uint64_t id = 0;
  bool is_own = false;  // the program gave the id: it is the same for all its clients
  // Null: an earlier request brought them. Where the executor has the adapter, they are ignored.
  std::shared_ptr<const LoraTensors> tensors = {};
  // Called by Enqueue, where the executor has not the adapter and there are no `tensors`.
  std::function<Result<std::shared_ptr<const LoraTensors>>()> read = {};
};

}  // namespace inflight
