// SPDX-License-Identifier: Apache-2.0
// Qwen1.5's and Qwen2's models with experts: Qwen2 whose feed-forward is experts in all layers, or
// in some, beside a shared expert of every token, which a logit of its own weighs.
// Hugging Face:
// huggingface/transformers/src/transformers/models/qwen2_moe/configuration_qwen2_moe.py.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/config_json.h"
#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {
namespace {

// The shared expert as several of the others' width. `fallback` 0: a file must say it, unless it is
// optional, where what else says so stands.
Field SharedExpertWidth(std::string_view name, int64_t fallback, bool is_optional = false) {
  return {.name = name,
          .read =
              [=](artifact::JsonFields& fields, ModelConfig& config) {
                if (is_optional && !fields.Has(name)) return Status::Ok();
                const int64_t width = fallback == 0 ? fields.Int(name, 1, kMaxField)
                                                    : fields.IntOr(name, fallback, 1, kMaxField);
                RETURN_IF_ERROR(fields.status());
                if (width % config.expert_intermediate_size != 0)
                  return Refuse(fields, name,
                                fmt::format("only multiples of the other experts' width, {}, "
                                            "are supported",
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
  family.checkpoint =
      Replaced(family.checkpoint, {Constant("qwen_type", "qwen2_moe"),
                                   SharedExpertWidth(kSharedExpertWidth, 0, /*is_optional=*/true)});
  family.tensors.layer_rows = WithExperts(family.tensors.layer_rows, /*has_shared=*/true);
  family.gguf.architecture = "qwen2moe";
  family.gguf.fields = Replaced(family.gguf.fields, GgufExperts(/*are_renormalized=*/false));
  family.gguf.fields =
      Replaced(family.gguf.fields, {SharedExpertWidth("expert_shared_feed_forward_length", 0)});
  family.gguf.tensors.layer_rows =
      WithGgufExperts(family.gguf.tensors.layer_rows, /*has_shared=*/true);
  return family;
}

}  // namespace inflight::model
