// SPDX-License-Identifier: Apache-2.0
// Qwen1.5's and Qwen2's models with experts: Qwen2 whose feed-forward is experts in all layers, or
// in some, beside a shared expert of every token, which a logit of its own weighs.
// Hugging Face:
// huggingface/transformers/src/transformers/models/qwen2_moe/configuration_qwen2_moe.py.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace inflight::model {
namespace {

// The shared expert as several of the others' width.
Field SharedExpertWidth(std::string_view name, int64_t fallback) {
  return {.name = name,
          .read =
              [=](artifact::JsonFields& fields, ModelConfig& config) {
                const int64_t width = fields.IntOr(name, fallback, 1, kMaxField);
                RETURN_IF_ERROR(fields.status());
                if (width % config.expert_intermediate_size != 0)
                  return Refuse(fields, name,
                                fmt::format("only multiples of moe_intermediate_size, {}, are "
                                            "supported",
                                            config.expert_intermediate_size));
                config.num_shared_experts =
                    static_cast<int>(width / config.expert_intermediate_size);
                return Status::Ok();
              },
          .write = {}};
}

}  // namespace

Family Qwen2Moe() {
  Family family = Qwen2();
  family.architecture = "Qwen2MoeForCausalLM";
  family.model_type = "qwen2_moe";
  family.hugging_face = Replaced(
      family.hugging_face,
      {NumberOr("moe_intermediate_size", &ModelConfig::expert_intermediate_size, 1408),
       SharedExpertWidth("shared_expert_intermediate_size", 5632),
       Only("use_sliding_window", false), FlagOr("qkv_bias", {&ModelConfig::qkv_bias}, true),
       FlagOr("norm_topk_prob", {&ModelConfig::has_renormalized_experts}, false)});
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceExperts(60, 4));
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceSparseLayers());
  family.checkpoint = Replaced(family.checkpoint, CheckpointExperts());
  family.checkpoint = Replaced(family.checkpoint, {Constant("qwen_type", "qwen2_moe")});
  family.tensors.layer_rows = WithExperts(family.tensors.layer_rows, /*has_shared=*/true);
  family.gguf = {};  // such files are not read
  return family;
}

}  // namespace inflight::model
