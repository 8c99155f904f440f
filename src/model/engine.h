// SPDX-License-Identifier: Apache-2.0
// An engine in memory: a model's description and its weights in the layouts that the kernels read.
// `model/` knows this one type, whether it was mapped from an engine directory or just made from a
// checkpoint or a Hugging Face directory by builder/.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/adapter.h"
#include "model/config.h"
#include "ops/weight.h"
#include "tensor/buffer.h"

namespace inflight {
class ReleasableMemory;
}

namespace inflight::model {

// One decoder layer. Empty views where the model has no such tensor. Norms and biases are float32.
struct LayerWeights {
  TensorView input_norm_weight, input_norm_bias;  // [hidden_size]; not of NormPlacement::kPost
  ops::Weight qkv;  // [(num_heads + 2 num_kv_heads) * head_dim, hidden_size]
  TensorView qkv_bias;
  TensorView q_norm_weight, k_norm_weight;  // [head_dim], or of all heads (has_wide_qk_norm)
  TensorView sink_logits;                   // [num_heads]; of has_attention_sinks
  ops::Weight dense;                        // [hidden_size, num_heads * head_dim]
  TensorView dense_bias;
  // [hidden_size]: of kPre before the feed-forward, unless attention's norm is its own too
  // (has_shared_norm), else behind attention
  TensorView post_norm_weight, post_norm_bias;
  TensorView pre_feedforward_norm_weight;   // [hidden_size]; of kBoth
  TensorView post_feedforward_norm_weight;  // [hidden_size]; of kBoth and kPost
  // [intermediate_size, hidden_size]: the activated branch (checkpoint name mlp.fc)
  ops::Weight fc;
  TensorView fc_bias;
  // [intermediate_size, hidden_size]: the linear branch of gated models (mlp.gate)
  ops::Weight gate;
  TensorView gate_bias;
  ops::Weight proj;  // [hidden_size, intermediate_size]
  TensorView proj_bias;

  // Of a layer with experts: fc and proj hold all of them (ops/experts.h), gate is empty.
  // Their biases lie alike.
  ops::Weight router;  // [RouterRows, hidden_size], of the model's dtype
  TensorView router_bias;
};

// One of Medusa's heads.
struct MedusaHeadWeights {
  std::vector<ops::Weight> layers;       // [num_medusa_layers] of [hidden_size, hidden_size]
  std::vector<TensorView> layer_biases;  // [num_medusa_layers] of [hidden_size]
  ops::Weight lm_head;                   // [vocab_size, hidden_size]
};

struct DecoderWeights {
  // [vocab_size, hidden_size]; with tied embeddings the same data as lm_head
  ops::Weight vocab_embedding;
  TensorView position_embedding;  // [max_position_embeddings, hidden_size] row-major; learned
                                  // positions only
  std::vector<LayerWeights> layers;
  TensorView final_norm_weight, final_norm_bias;
  ops::Weight lm_head;      // [vocab_size, hidden_size]
  TensorView lm_head_bias;  // [vocab_size]
  std::vector<MedusaHeadWeights> medusa_heads;
};

// Limits chosen at build time (docs/reference/artifacts.md, "Limits of an engine").
struct EngineLimits {
  int max_batch_size = 256;
  int max_num_tokens = 8192;
  int max_seq_len = 0;    // 0 in files = max_position_embeddings
  int max_input_len = 0;  // 0 in files = max_seq_len
  int max_beam_width = 1;
  LoraLimits lora;        // of the adapters that it takes
  int max_draft_len = 0;  // draft tokens that one step verifies of a sequence
  // Rows that the table of a request may have (inflight/prompt_table.h); 0 = no prompt tuning.
  int max_prompt_embedding_table_size = 0;
};

// Of a model that nobody built an engine from: nothing is set aside for beams and tables that
// nobody asks for.
inline EngineLimits ServedAsItIs() {
  return {.max_beam_width = 16, .max_prompt_embedding_table_size = 8192};
}

// A layer of an engine for a GPU whose weights lie in pinned host memory. The GPU can address them
// there; executors copy them to memory of the device, layer after layer (model/weight_stream.h).
struct HostLayer {
  int layer = 0;
  const std::byte* data = nullptr;  // all weights of the layer, as they lie in engines
  uint64_t num_bytes = 0;
};

// Immutable after building; shared by executors. Owns the memory that its views point into.
struct Engine {
  ModelConfig config;
  EngineLimits limits;
  DecoderWeights weights;
  uint64_t weight_bytes = 0;            // those of host_layers too
  std::vector<HostLayer> host_layers;   // ascending; empty: all weights are in the device's memory
  std::filesystem::path tokenizer_dir;  // where the tokenizer's files are; empty if there are none

  // Which of the library's algorithms were fastest on the GPU that the engine was built on, as of
  // ops::SaveTuning; another GPU ignores it. Empty where nobody tuned.
  std::string kernel_tuning;

  // Storage behind the views: mappings of files and buffers filled while building.
  std::vector<MappedFile> mappings;
  std::vector<MemoryShare> mapping_shares;  // books the mappings in the device's ledger
  std::vector<Buffer> buffers;
  std::vector<PinnedBuffer> pinned;
  // In place of a buffer, of an engine that can sleep (executor/sleeper.h): what lies there while
  // it sleeps is lost, and written again before anybody reads it.
  std::vector<std::shared_ptr<ReleasableMemory>> releasable;

  uint64_t host_weight_bytes() const {
    uint64_t sum = 0;
    for (const HostLayer& layer : host_layers) sum += layer.num_bytes;
    return sum;
  }
};

}  // namespace inflight::model
