// SPDX-License-Identifier: Apache-2.0
// An adapter (LoRA) in the layout that the kernels read, made for one model from what clients send
// (inflight/adapter.h). Immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "inflight/adapter.h"
#include "inflight/status.h"
#include "model/config.h"
#include "ops/lora.h"
#include "tensor/device.h"

namespace inflight::model {

// Modules by their ids; the names are TensorRT-LLM's.
inline constexpr std::array<std::string_view, 18> kLoraModuleNames = {
    "attn_qkv",     "attn_q",       "attn_k",           "attn_v",         "attn_dense",
    "mlp_h_to_4h",  "mlp_4h_to_h",  "mlp_gate",         "cross_attn_qkv", "cross_attn_q",
    "cross_attn_k", "cross_attn_v", "cross_attn_dense", "moe_h_to_4h",    "moe_4h_to_h",
    "moe_gate",     "moe_router",   "mlp_router"};
inline constexpr int kNumLoraModules = 8;  // those that a decoder without experts has

// What an engine takes: which modules, by bits of their ids, and up to which rank.
struct LoraLimits {
  uint32_t modules = (1U << kNumLoraModules) - 1;
  int max_rank = ops::kMaxLoraRank;

  bool operator==(const LoraLimits&) const = default;
};

// False beside FP8 weights, whose activations are rounded before adapters could read them.
bool TakesAdapters(const ModelConfig& config);

// Where a module stands in a model.
struct LoraPlace {
  ops::LoraSite site = ops::LoraSite::kQkv;
  int64_t in_features = 0;
  int64_t first_feature = 0;  // of the site's outputs
  int64_t num_features = 0;
};
LoraPlace PlaceOf(const ModelConfig& config, int module);  // of [0, kNumLoraModules)

// Bytes that the factors and biases take: each part 64-byte aligned, factors in the model's dtype,
// biases in float32. Checks all that can be told without the numbers. kInvalidArgument and
// kUnimplemented name the tensor and the row.
Result<uint64_t> AdapterBytes(const ModelConfig& config, const LoraLimits& limits,
                              const LoraTensors& tensors);

// What MakeAdapter says of numbers that it does not take, and of biases that replace none.
// AdapterBytes accepted the tensors.
Status CheckNumbers(const ModelConfig& config, const LoraTensors& tensors);

// The most that an adapter of a rank can take.
uint64_t LargestAdapterBytes(const ModelConfig& config, int rank);

struct Adapter {
  uint64_t serial = 0;  // of this process, from 1: no two adapters have the same
  ops::LoraTable table;
  uint64_t num_bytes = 0;
  // Of a model on ranks: the whole adapter, of which this is the rank's part.
  std::shared_ptr<const LoraTensors> tensors = nullptr;
  size_t offset = 0;  // in its owner's memory
  int index = 0;      // CUDA: in the owner's table of parts
};

struct Engine;

// The model's own biases where the host reads them: in the engine, of GPUs in copies.
class OwnBiases {
 public:
  // Errors as of Device::Copy.
  static Result<OwnBiases> Read(const Engine& engine, Device& device);

  const float* Of(int layer, ops::LoraSite site) const {  // null: it has none
    return biases_[static_cast<size_t>(layer)][static_cast<size_t>(site)];
  }

 private:
  std::vector<std::array<const float*, ops::kNumLoraSites>> biases_;  // of each layer
  std::vector<std::vector<float>> copies_;
};

// Writes factors and biases to `target`, 64-byte aligned and of AdapterBytes bytes, factors rounded
// to the model's dtype; the table's pointers lead to `device`, where the owner has or will have
// these bytes. Of a bias that replaces the model's `own`, what differs is kept.
// kInvalidArgument where a number is not finite, or is not in the model's dtype, and where a bias
// replaces one that the model has not.
Result<Adapter> MakeAdapter(const Engine& engine, const OwnBiases& own, const LoraTensors& tensors,
                            std::byte* target, const std::byte* device);

}  // namespace inflight::model
