// SPDX-License-Identifier: Apache-2.0
// gpt-oss: Llama with biases of all attention's linears, a logit of each head beside its keys'
// ("sinks"), a window on every other layer, and in every layer experts with biases whose gated half
// has a limit (ops/experts.h). Of the chosen experts the weights add up to 1.
// Hugging Face: huggingface/transformers/src/transformers/models/gpt_oss/configuration_gpt_oss.py;
// swiglu_limit is a field of openai/gpt-oss/gpt_oss/torch/model.py.
// GGUF: "gpt-oss" (GptOssModel of ggml-org/llama.cpp/convert_hf_to_gguf.py).
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {
namespace {

// Files that say nothing of a rope have this one.
Field YarnByDefault() {
  return {.name = "",
          .read =
              [](artifact::JsonFields&, ModelConfig& config) {
                config.rope_scaling = {.kind = RopeScaling::Kind::kYarn,
                                       .factor = 32,
                                       .original_max_position_embeddings = 4096,
                                       .truncate = false};
                return Status::Ok();
              },
          .write = {}};
}

Field PublishedLimit() {
  return {.name = "",
          .read =
              [](artifact::JsonFields&, ModelConfig& config) {
                config.expert_limit = 7;
                return Status::Ok();
              },
          .write = {}};
}

}  // namespace

Family GptOss() {
  Family family = Llama();
  family.architecture = "GptOssForCausalLM";
  family.model_type = "gpt_oss";
  family.config.has_attention_sinks = true;
  family.config.has_expert_biases = true;
  family.hugging_face = Replaced(
      family.hugging_face,
      {
          Ignored("hidden_act"),
          Ignored("mlp_bias"),
          NumberOr("num_key_value_heads", &ModelConfig::num_kv_heads, 8),
          NumberOr("head_dim", &ModelConfig::head_dim, 64),
          NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 131072),
          RealOr("rms_norm_eps", &ModelConfig::norm_eps, 1e-5),
          FlagOr("attention_bias", {&ModelConfig::qkv_bias, &ModelConfig::dense_bias}, true),
          RealOr("swiglu_limit", &ModelConfig::expert_limit, 7),
          Only("swiglu_alpha", 1.702),
          Derived(&ModelConfig::expert_intermediate_size,
                  [](const ModelConfig& c) { return c.intermediate_size; }),
          YarnByDefault(),
      });
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceRope(150000.0));
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceExperts(128, 4));
  family.hugging_face = Replaced(family.hugging_face, HuggingFacePatternWindows(128, 2, ""));
  family.checkpoint =
      Replaced(family.checkpoint,
               {FlagOr("attn_bias", {&ModelConfig::qkv_bias, &ModelConfig::dense_bias}, true),
                RealOr("swiglu_limit", &ModelConfig::expert_limit, 7)});
  family.checkpoint = Replaced(family.checkpoint, CheckpointExperts());
  family.checkpoint = Replaced(family.checkpoint, CheckpointWindows());
  // Plain, and as quantized/mxfp4.cc reads what is packed.
  family.tensors.layer_rows = Replaced(
      family.tensors.layer_rows,
      {{.checkpoint = "attention.sinks", .stored = {"self_attn.sinks"}, .is_bare = true},
       {"mlp.router", {"mlp.router"}},
       {.checkpoint = "mlp.fc",
        .stored = {"mlp.experts.gate_up_proj"},
        .holds_experts = true,
        .has_alternating_rows = true,
        .is_transposed = true,
        .is_bare = true},
       {.checkpoint = "mlp.fc",
        .stored = {"mlp.experts.gate_up_proj"},
        .holds_experts = true,
        .has_alternating_rows = true},
       {.checkpoint = "mlp.proj",
        .stored = {"mlp.experts.down_proj"},
        .holds_experts = true,
        .is_transposed = true,
        .is_bare = true},
       {.checkpoint = "mlp.proj", .stored = {"mlp.experts.down_proj"}, .holds_experts = true}});
  // llama.cpp has the limit and the rope's rule of the published models, and no keys for them.
  family.gguf.architecture = "gpt-oss";
  family.gguf.fields = Replaced(family.gguf.fields, GgufExperts());
  family.gguf.fields = Replaced(family.gguf.fields, GgufPatternWindows(128, 2));
  family.gguf.fields = Replaced(family.gguf.fields, {GgufYarn(), PublishedLimit()});
  family.gguf.tensors.paired.clear();
  family.gguf.tensors.layer_rows = WithGgufExperts(
      Replaced(family.gguf.tensors.layer_rows,
               {{"post_layernorm", {"post_attention_norm"}}, {"attention.sinks", {"attn_sinks"}}}));
  return family;
}

}  // namespace inflight::model
