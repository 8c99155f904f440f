// SPDX-License-Identifier: Apache-2.0
// Falcon with rotary positions: attention and feed-forward beside each other, behind one LayerNorm
// (7B, 11B) or behind one each (40B, 180B), or behind each other; one kv head, groups of heads, or
// a kv head for each; query, key and value of a group in one stored tensor side by side.
// Hugging Face: huggingface/transformers/src/transformers/models/falcon/configuration_falcon.py.
// Checkpoints: NVIDIA/TensorRT-LLM/tensorrt_llm/models/falcon/config.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {
namespace {

using artifact::JsonFields;
using nlohmann::json;

constexpr const char* kIsNew = "new_decoder_architecture";
constexpr const char* kNumNorms = "num_ln_in_parallel_attn";
constexpr std::string_view kNewNorm = "mlp_layernorm";

// How the two parts of a layer stand, and which norms they have. `parallel`: the name of the flag
// that says so of the older architecture.
Status ReadLayers(JsonFields& fields, ModelConfig& config, std::string_view parallel,
                  bool parallel_fallback) {
  const bool is_new = fields.BoolOr(kIsNew, false);
  const bool is_parallel = is_new || fields.BoolOr(parallel, parallel_fallback);
  const int64_t num_norms = fields.IntOr(kNumNorms, is_new ? 2 : 1, 1, 2);
  RETURN_IF_ERROR(fields.status());
  if (!is_new && num_norms != 1)
    return Refuse(fields, kNumNorms, "only 1 is supported without new_decoder_architecture");
  config.parallel_residual = is_parallel;
  config.has_shared_norm = is_parallel && num_norms == 1;
  config.mlp_norm_name = is_new ? kNewNorm : "post_layernorm";
  return Status::Ok();
}

Field HuggingFaceLayers() {
  const auto read = [](JsonFields& fields, ModelConfig& config) {
    constexpr const char* kParallel = "parallel_attn";
    RETURN_IF_ERROR(ReadLayers(fields, config, kParallel, true));
    const bool is_new = fields.BoolOr(kIsNew, false);
    if (is_new && !fields.BoolOr(kParallel, true))
      return Refuse(fields, kParallel, "only true is supported beside new_decoder_architecture");
    const bool is_multi_query = fields.BoolOr("multi_query", true);
    config.num_kv_heads =
        is_new
            ? static_cast<int>(fields.IntOr("num_kv_heads", config.num_heads, 1, config.num_heads))
        : is_multi_query ? 1
                         : config.num_heads;
    return fields.status();
  };
  return {.name = kIsNew, .read = read, .write = {}};
}

Field CheckpointLayers() {
  constexpr const char* kParallel = "parallel_attention";
  return {.name = kIsNew,
          .read = [](JsonFields& fields,
                     ModelConfig& config) { return ReadLayers(fields, config, kParallel, false); },
          .write =
              [](const ModelConfig& config, json& out) {
                const bool is_new = config.mlp_norm_name == kNewNorm;
                out[kIsNew] = is_new;
                out[kParallel] = config.parallel_residual;
                if (is_new && config.has_shared_norm) out[kNumNorms] = 1;
              }};
}

// GGUF files hold models whose parts stand beside each other. Whether these have one norm, the
// tensors say.
Field GgufLayers() {
  return {.name = "",
          .read =
              [](JsonFields&, ModelConfig& config) {
                config.parallel_residual = true;
                config.mlp_norm_name = kNewNorm;
                return Status::Ok();
              },
          .write = {}};
}

}  // namespace

Family Falcon() {
  const std::vector<bool ModelConfig::*> biases = {&ModelConfig::qkv_bias, &ModelConfig::dense_bias,
                                                   &ModelConfig::mlp_bias};
  return {
      .architecture = "FalconForCausalLM",
      .model_type = "falcon",
      .config = {.norm = ops::NormKind::kLayerNorm,
                 .activation = ops::ActivationKind::kGelu,
                 .gated_mlp = false,
                 .position = PositionKind::kRopeNeox},
      .hugging_face = Replaced(
          Replaced(
              HuggingFaceRefusals(),
              {
                  Only("alibi", false),
                  NumberOr("vocab_size", &ModelConfig::vocab_size, 65024),
                  NumberOr("hidden_size", &ModelConfig::hidden_size, 4544),
                  NumberOr("num_hidden_layers", &ModelConfig::num_layers, 32),
                  NumberOr("num_attention_heads", &ModelConfig::num_heads, 71),
                  NumberOr("ffn_hidden_size", &ModelConfig::intermediate_size,
                           [](const ModelConfig& c) { return int64_t{4} * c.hidden_size; }),
                  NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 2048),
                  HeadDim("", "hidden_size", "num_attention_heads"),
                  HuggingFaceLayers(),
                  RealOr("layer_norm_epsilon", &ModelConfig::norm_eps, 1e-5),
                  FlagOr("bias", biases, false),
                  FlagOr("tie_word_embeddings", {&ModelConfig::tied_embeddings}, true),
                  Activation("activation", ActivationNames::kHuggingFace, "gelu"),
              }),
          HuggingFaceRope()),
      .checkpoint = Replaced(Replaced(SharedCheckpointFields(), CheckpointRope()),
                             {FlagOr("bias", biases, false), Ignored("parallel_attention"),
                              Ignored(kNumNorms), CheckpointLayers()}),
      .tensors = {.prefix = "transformer.",
                  .layer_prefix = "h.",
                  .model_rows = {{"transformer.vocab_embedding", {"word_embeddings"}},
                                 {"transformer.ln_f", {"ln_f"}}},
                  .layer_rows = {{"input_layernorm", {"input_layernorm"}},
                                 {"input_layernorm", {"ln_attn"}},
                                 {.checkpoint = "attention.qkv",
                                  .stored = {"self_attention.query_key_value"},
                                  .has_grouped_heads = true},
                                 {"attention.dense", {"self_attention.dense"}},
                                 {"post_layernorm", {"post_attention_layernorm"}},
                                 {"mlp_layernorm", {"ln_mlp"}},
                                 {"mlp.fc", {"mlp.dense_h_to_4h"}},
                                 {"mlp.proj", {"mlp.dense_4h_to_h"}}},
                  .ignorable = {"rotary_emb.inv_freq"}},
      .gguf = {.architecture = "falcon",
               .fields = Replaced(GgufFields(kGgufEpsilon), {GgufLayers()}),
               .tensors = {.layer_prefix = "blk.",
                           .model_rows = {{"transformer.vocab_embedding", {"token_embd"}},
                                          {"transformer.ln_f", {"output_norm"}}},
                           .layer_rows = {{"input_layernorm", {"attn_norm_2"}},
                                          {"input_layernorm", {"attn_norm"}},
                                          {"mlp_layernorm", {"attn_norm"}},
                                          {"attention.qkv", {"attn_qkv"}},
                                          {"attention.dense", {"attn_output"}},
                                          {"mlp.fc", {"ffn_up"}},
                                          {"mlp.proj", {"ffn_down"}}},
                           .head = "output",
                           .has_whole_norms = true},
               .attention_norm = "attn_norm_2"},
  };
}

}  // namespace inflight::model
