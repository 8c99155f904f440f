// SPDX-License-Identifier: Apache-2.0
// The tensors that a model has: checkpoint names (docs/reference/artifacts.md), shapes, places in
// DecoderWeights. Reading, packing, writing and mapping weights are all walks over this list.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/engine.h"

namespace inflight::model {

// What the names of Medusa's heads begin with.
inline constexpr std::string_view kMedusaHeads = "medusa_heads.";

struct WeightSlot {
  enum class Kind : uint8_t {
    kMatrix,   // read by linear operators: packed, of the model's dtype, or its form's
    kTable,    // read row by row: row-major, of the model's dtype, or its form's
    kVector,   // norms and biases: float32
    kScales,   // of a quantised matrix before it in the list, float32: one per row [out], or of
               // groups [out, groups]; of float4 exponents, uint8; in blocks their bytes, uint8
    kOffsets,  // likewise, behind its scales: of groups
    kOrder,    // likewise, behind these: the order of its columns [in_features], int32
  };
  std::string name;
  Shape shape;  // [out_features, in_features], [out_features, groups] or [width]
  Kind kind = Kind::kMatrix;
  ops::Weight* weight = nullptr;  // exactly one of these two is set; scales have their matrix's
  TensorView* view = nullptr;
  bool is_linear = false;        // a matrix of the layers' linears, which quantisation takes in
  bool is_quantized = false;     // a matrix whose form is not of the model's dtype
  LinearForm form = {};          // of linears and tables, and of their scales and offsets
  bool is_of_rows = false;       // scales and offsets of a row-major table
  bool is_one_centered = false;  // of ModelConfig::has_one_centered_norms: float32 in checkpoints
  bool is_router = false;        // of experts: float32 in checkpoints
  int num_experts = 0;  // > 0: it holds those of so many experts, equally many rows of each, one
                        // expert's behind the other's
  int num_shared_experts = 0;  // the last of them
  int layer = -1;              // whose it is; -1 = none's
  int64_t num_inputs = 0;      // of a matrix and its order, as of ops::Weight
};

// The shape in checkpoints of `shape`, which holds so many experts: they have a dimension of their
// own, the first.
Shape FileShape(int num_experts, const Shape& shape);

// Whether the slot belongs to a quantised matrix: its scales, offsets or order.
bool IsOfMatrix(const WeightSlot& slot);
// Whether it is scales that are exponents (ops::Weight).
bool HasExponents(const WeightSlot& slot);
// Whether it is scales or offsets in blocks.
bool HasBlocks(const WeightSlot& slot);
// "…attention.qkv.weight" of "…attention.qkv.per_channel_scale", and of other scales and offsets.
std::string MatrixOfScales(const WeightSlot& scales);

// Gives `weights` its layers and lists every tensor's slot in it. With tied embeddings lm_head has
// no slot: set it to vocab_embedding once that is bound.
std::vector<WeightSlot> WeightSlots(const ModelConfig& config, DecoderWeights& weights);

// How a slot is stored in memory and in engine files for a kind of device: packed for the CPU's
// kernels, row-major for CUDA's (docs/reference/kernels.md, "Weights"). Scales and offsets of
// groups are packed as ops::PackScales has them, which is kPanel64 of a float32 matrix.
DType StoredDType(const ModelConfig& config, const WeightSlot& slot);
ops::WeightLayout StoredLayout(const ModelConfig& config, const WeightSlot& slot,
                               DeviceKind device);
uint64_t StoredBytes(const ModelConfig& config, const WeightSlot& slot, DeviceKind device);

// Points the slot at `data`, which holds it in the stored form. A quantised matrix is bound before
// its scales, offsets and order.
void Bind(const ModelConfig& config, const WeightSlot& slot, DeviceKind device, const void* data);
// Where a bound slot points, and another such place for it.
const void* DataOf(const WeightSlot& slot);
void SetData(const WeightSlot& slot, const void* data);

// Whether the orders among bound slots of the CPU have each column of x once, and nothing else but
// kNoColumn; and both branches of a gated feed-forward the same: what a file may say and kernels
// rely on.
Status CheckOrders(std::span<const WeightSlot> slots);

}  // namespace inflight::model
