// SPDX-License-Identifier: Apache-2.0
// The operators of one backend, as chosen when an engine is loaded.
//
// Each backend (reference, cpu, cuda) offers tables of kernels for a shape class; FindOps picks one
// and logs the choice. A table can be forced by name, so that each one is testable on its own.
// Nothing is looked up per step: the model calls through the table.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/add_norm.h"
#include "ops/attention.h"
#include "ops/decode_layers.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/linear.h"

namespace inflight::ops {

template <typename Params>
using Kernel = Status (*)(const Params& params, Stream& stream);

struct OpTable {
  Kernel<EmbedParams> embed = nullptr;
  Kernel<AddNormParams> add_norm = nullptr;
  Kernel<QkvRopeKvParams> qkv_rope_kv = nullptr;
  Kernel<AttentionParams> attention = nullptr;
  Kernel<LinearParams> linear = nullptr;
  Kernel<GatedLinearParams> gated_linear = nullptr;
  Kernel<LmHeadParams> lm_head = nullptr;
  // Of experts.
  Kernel<RouteParams> route = nullptr;
  Kernel<ExpertGatedLinearParams> expert_gated_linear = nullptr;
  Kernel<ExpertLinearParams> expert_linear = nullptr;
  // Null in the CPU's vector tables, whose linears round for themselves.
  Kernel<QuantizeParams> quantize = nullptr;
  // Once per step and window, before the layers: what attention derives from a batch for all layers
  // of that window. Null where there is nothing.
  Kernel<AttentionPlanParams> plan_attention = nullptr;
  // All layers of few decode rows at once, and of how many with such layers and cache, 0: of none;
  // `batch` says nothing there. Null where there is no such operator.
  Kernel<DecodeLayersParams> decode_layers = nullptr;
  int (*most_decode_layers_rows)(const DecodeLayersParams& params, Stream& stream) = nullptr;
  bool can_capture = true;  // its launches may be captured into CUDA graphs
  std::string name;         // "reference", "cpu/avx2", "cpu/avx512_bf16", "cuda", ...
};

// What a model needs of its kernels; the same for all its layers.
struct ShapeClass {
  DType weight_dtype = DType::kF32;
  DType dtype = DType::kF32;  // the model's: of activations, norms' outputs and unquantised weights
  DType kv_dtype = DType::kF32;
  int head_dim = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int hidden_size = 0;
  int intermediate_size = 0;  // 0: all layers have experts, whose widths are multiples of 64
  int num_windows = 1;  // CUDA: different ones that layers have (SlidingWindow); 0 is one of them
};

// Tables that can run here for `shape`, best first; "reference" is always last.
std::vector<OpTable> CpuOpTables(const ShapeClass& shape);

// Those that can run `shape` on a GPU, best first: "cuda" from compute capability 8.0 on, and the
// same with times of each operator. Empty in builds without CUDA.
std::vector<OpTable> CudaOpTables(const ShapeClass& shape, const Device& device);

// Whether operators are chosen for speed alone, or so that what a token gives is the same bits in
// every step and every start. On the CPU each table of operators computes a token from its own
// sequence alone; for bf16 models tables are timed, since VDPBF16PS is slow on some processors, and
// two starts may choose, and round, differently. kFixed is the first table of the list, always. On
// CUDA kFixed has products that add up a row alike however many rows there are, and attention that
// adds up a token's keys alike whatever else the step holds; the same on equal GPUs with equal
// libraries.
enum class OpChoice : uint8_t { kFastest, kFixed };

// The order in which one executor's operators run on `device`. On CUDA it holds what they share:
// the library's handle and plans, fixed workspace (booked in the device's ledger as "kernels'
// workspace") for steps of at most `max_num_tokens` tokens and `max_num_rows` rows.
Result<std::unique_ptr<Stream>> MakeStream(Device& device, const ShapeClass& shape,
                                           int max_num_tokens, int max_num_rows,
                                           OpChoice choice = OpChoice::kFastest);
// Bytes that MakeStream takes of the device; 0 on the CPU.
uint64_t StreamBytes(DeviceKind device, const ShapeClass& shape, int max_num_tokens,
                     int max_num_rows);

// Linears that a model has: x of at most `max_rows` rows, operands of `dtype`, results of
// `y_dtype`. A gated linear whose two weights lie side by side is one of the sum of their features.
struct LinearShape {
  int64_t out_features = 0;
  int64_t in_features = 0;
  DType dtype = DType::kBF16;
  DType y_dtype = DType::kBF16;
  int64_t max_rows = 0;
};

// On CUDA: times the library's algorithms for `shapes` on the stream's device and keeps the
// fastest, for steps launched or captured later. Takes a second or so, and some memory of the
// device while it runs. Without it the library's first suggestion serves. Elsewhere nothing.
Status TuneLinears(std::span<const LinearShape> shapes, Stream& stream);
// What was found, as text, and taken up again: a hint that another card or version of the library
// ignores, and a stream of OpChoice::kFixed. Empty on the CPU.
std::string SaveTuning(Stream& stream);
Status LoadTuning(std::string_view text, Stream& stream);

// Whether any table can run `shape` on `device`: kUnimplemented says what is supported instead.
// FindOps asks this too; asked before weights are read, it saves reading them.
Status CheckRunnable(const Device& device, const ShapeClass& shape);

// The best table, or the one called `force_name` (kNotFound lists the names that can run here).
// Logs what was chosen.
Result<OpTable> FindOps(const Device& device, const ShapeClass& shape,
                        std::string_view force_name = {}, OpChoice choice = OpChoice::kFastest);

}  // namespace inflight::ops
