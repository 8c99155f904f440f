// SPDX-License-Identifier: Apache-2.0
#include "model/families/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "artifact/json_file.h"

namespace inflight::model {
namespace {

// Every family, a line each.
const std::vector<Family>& Registry() {
  static const std::vector<Family> families = [] {
    std::vector<Family> list = {
        Llama(),      Gpt2(),    Qwen2(),   Qwen3(),      Qwen3Moe(), Qwen2Moe(),
        Mistral(),    Mixtral(), Gemma(),   Gemma2(),     Gemma3(),   Olmo2(),
        Olmoe(),      Phi3(),    Granite(), GraniteMoe(), GptOss(),   SmolLm3(),
        StarCoder2(), GptNeoX(), GptJ(),    Opt(),        Falcon(),
    };
    for (Family& family : list) family.config.architecture = family.architecture;
    return list;
  }();
  return families;
}

// Names in upstream's checkpoints of models whose graph is a family's, and which have no file here:
// what sets them apart stands in fields of its own (tensorrt_llm/models/__init__.py, MODEL_MAP).
struct Alias {
  std::string_view architecture;
  std::string_view family;
};
constexpr Alias kAliases[] = {
    {"MedusaForCausalLM", "LlamaForCausalLM"},   {"ArcticForCausalLM", "LlamaForCausalLM"},
    {"InternLMForCausalLM", "LlamaForCausalLM"}, {"InternLM2ForCausalLM", "LlamaForCausalLM"},
    {"SkyworkForCausalLM", "LlamaForCausalLM"},  {"GPTForCausalLM", "GPT2LMHeadModel"},
};

Result<const Family*> Find(std::string_view field, std::string_view name,
                           std::string_view Family::*key) {
  std::vector<std::string_view> known;
  for (const Family& family : Registry()) {
    if (family.*key == name) return &family;
    known.push_back(family.*key);
  }
  return Unimplemented(fmt::format("{} {} is not supported; supported are {}", field,
                                   artifact::Abbreviate(name), fmt::join(known, ", ")));
}

const Family* OfComposite(std::string_view name, std::string_view Composite::*key) {
  for (const Family& family : Registry())
    if (std::ranges::find(family.composites, name, key) != family.composites.end()) return &family;
  return nullptr;
}

}  // namespace

std::span<const Family> Families() { return Registry(); }

Result<const Family*> FamilyOf(std::string_view architecture) {
  for (const Family& family : Registry())
    if (family.architecture == architecture) return &family;
  const auto* alias = std::ranges::find(kAliases, architecture, &Alias::architecture);
  return Find("architecture", alias == std::end(kAliases) ? architecture : alias->family,
              &Family::architecture);
}

Result<const Family*> FamilyOfHuggingFace(std::string_view architecture) {
  if (const Family* family = OfComposite(architecture, &Composite::architecture)) return family;
  return Find("architecture", architecture, &Family::architecture);
}

Result<const Family*> FamilyOfModelType(std::string_view model_type) {
  if (const Family* family = OfComposite(model_type, &Composite::model_type)) return family;
  return Find("model_type", model_type, &Family::model_type);
}

std::string_view ConfigFieldOf(const Family& family, std::string_view name) {
  for (const Composite& composite : family.composites)
    if (composite.architecture == name || composite.model_type == name)
      return composite.config_field;
  return {};
}

Result<const Family*> FamilyOfGguf(std::string_view architecture, bool has_experts) {
  std::vector<std::string_view> known;
  const Family* found = nullptr;
  for (const Family& family : Registry()) {
    const GgufForm& form = family.gguf;
    if (form.architecture == architecture && (has_experts || !form.has_experts) &&
        (found == nullptr || form.has_experts))
      found = &family;
    if (!form.architecture.empty() && !form.has_experts) known.push_back(form.architecture);
  }
  if (found != nullptr && !architecture.empty()) return found;
  return Unimplemented(fmt::format("general.architecture: got {}, {} are supported",
                                   artifact::Abbreviate(architecture), fmt::join(known, ", ")));
}

bool IsOfExperts(const TensorRow& row) {
  if (row.holds_experts) return true;
  return std::ranges::any_of(row.stored, [](std::string_view name) {
    return name.find(kExpertNumber) != std::string_view::npos;
  });
}

std::vector<TensorRow> Replaced(const std::vector<TensorRow>& base,
                                const std::vector<TensorRow>& rows) {
  std::vector<TensorRow> all;
  for (const TensorRow& row : base)
    if (std::ranges::find(rows, row.checkpoint, &TensorRow::checkpoint) == rows.end())
      all.push_back(row);
  all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

std::vector<TensorRow> WithExperts(std::vector<TensorRow> base, bool has_shared) {
  TensorRow router = {"mlp.router", {"mlp.gate"}};
  TensorRow fc = {"mlp.fc", {"mlp.experts.*.up_proj", "mlp.experts.*.gate_proj"}};
  TensorRow proj = {"mlp.proj", {"mlp.experts.*.down_proj"}};
  if (has_shared) {
    router.stored.emplace_back("mlp.shared_expert_gate");
    fc.shared = {"mlp.shared_expert.up_proj", "mlp.shared_expert.gate_proj"};
    proj.shared = {"mlp.shared_expert.down_proj"};
  }
  base.insert(base.end(), {router, fc, proj});
  return base;
}

std::vector<TensorRow> WithGgufExperts(const std::vector<TensorRow>& base, bool has_shared) {
  TensorRow router = {"mlp.router", {"ffn_gate_inp"}};
  TensorRow fc = {
      .checkpoint = "mlp.fc", .stored = {"ffn_up_exps", "ffn_gate_exps"}, .holds_experts = true};
  TensorRow proj = {.checkpoint = "mlp.proj", .stored = {"ffn_down_exps"}, .holds_experts = true};
  TensorRow fc_each = {"mlp.fc", {"ffn_up.*", "ffn_gate.*"}};
  TensorRow proj_each = {"mlp.proj", {"ffn_down.*"}};
  if (has_shared) {
    router.stored.emplace_back("ffn_gate_inp_shexp");
    fc.shared = fc_each.shared = {"ffn_up_shexp", "ffn_gate_shexp"};
    proj.shared = proj_each.shared = {"ffn_down_shexp"};
  }
  return Replaced(base, {router, fc, fc_each, proj, proj_each});
}

}  // namespace inflight::model
