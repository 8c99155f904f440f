// SPDX-License-Identifier: Apache-2.0
#include "builder/medusa_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "artifact/json_file.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace inflight::builder {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFamily = "LlamaForCausalLM";  // of upstream's MedusaForCausalLM
constexpr std::string_view kBlocks = "medusa_layers.";
constexpr int kUsualHeads = 4;

Result<artifact::TensorSet> OpenHeads(const fs::path& dir) {
  const fs::path safetensors = dir / "medusa_lm_head.safetensors";
  const fs::path torch = dir / "medusa_lm_head.pt";
  if (fs::exists(safetensors)) return artifact::TensorSet::OpenFile(safetensors);
  if (fs::exists(torch)) return artifact::TensorSet::OpenTorchFile(torch);
  return NotFound(fmt::format(
      "medusa_model_dir: got {}, medusa_lm_head.safetensors or medusa_lm_head.pt is needed in it",
      dir.string()));
}

// Numbers of config.json, which come before those of options as upstream has it.
Status ReadNumbers(const MedusaOptions& options, model::ModelConfig& config) {
  config.num_medusa_heads = options.num_heads.value_or(kUsualHeads);
  config.num_medusa_layers = options.num_layers.value_or(1);
  const fs::path path = options.dir / artifact::kConfigFile;
  if (fs::exists(path)) {
    ASSIGN_OR_RETURN(const nlohmann::json json, artifact::ReadJsonFile(path));
    artifact::JsonFields fields(path.string(), json);
    config.num_medusa_heads = static_cast<int>(
        fields.IntOr("medusa_num_heads", config.num_medusa_heads, 1, model::kMaxMedusaHeads));
    config.num_medusa_layers = static_cast<int>(
        fields.IntOr("medusa_num_layers", config.num_medusa_layers, 1, model::kMaxMedusaLayers));
    const std::string base = fields.StringOr("base_model_name_or_path", "");
    RETURN_IF_ERROR(fields.status());
    if (!base.empty())
      logging::Info("Medusa's heads were trained for this model", {{"model", base}});
  }
  config.num_medusa_heads = options.fixed_num_heads.value_or(config.num_medusa_heads);
  return Status::Ok();
}

}  // namespace

Status AddMedusaHeads(const MedusaOptions& options, WeightSource& source) {
  if (options.dir.empty()) return Status::Ok();
  model::ModelConfig& config = source.config;
  if (config.architecture != kFamily)
    return Unimplemented(
        fmt::format("medusa_model_dir: got {} for a model of {}, heads of {} are "
                    "supported",
                    options.dir.string(), config.architecture, kFamily));
  RETURN_IF_ERROR(ReadNumbers(options, config));
  ASSIGN_OR_RETURN(artifact::TensorSet heads, OpenHeads(options.dir));
  const artifact::StoredTensor* const head =
      heads.Find(fmt::format("0.{}.weight", config.num_medusa_layers));
  const Shape expected = {config.vocab_size, config.hidden_size};
  if (head != nullptr && head->shape != expected)
    return InvalidArgument(
        fmt::format("medusa_model_dir: got heads {} in {}, the model's are {}; they are another "
                    "model's",
                    head->shape.ToString(), options.dir.string(), expected.ToString()));
  source.files.push_back(std::move(heads));
  return Status::Ok();
}

std::string MedusaName(std::string_view checkpoint_name, int num_layers) {
  CHECK(checkpoint_name.starts_with(model::kMedusaHeads));
  std::string_view rest = checkpoint_name.substr(model::kMedusaHeads.size());
  const size_t dot = rest.find('.');
  const std::string_view head = rest.substr(0, dot);
  rest.remove_prefix(dot + 1);
  if (!rest.starts_with(kBlocks)) return fmt::format("{}.{}.weight", head, num_layers);
  return fmt::format("{}.{}", head, rest.substr(kBlocks.size()));
}

}  // namespace inflight::builder
