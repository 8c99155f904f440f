// SPDX-License-Identifier: Apache-2.0
// A model of TensorRT-LLM's LLM API: preprocessing, LLM and postprocessing in one, of the model
// that its model.yaml names.
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "serving/configuration/generated_config.h"
#include "serving/pipelines/pipeline_model.h"
#include "serving/repository/llm_api_file.h"
#include "serving/repository/version_loader.h"
#include "serving/tensors/model_file.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelConfig;

// Where its script looks for it, too.
fs::path FileOf(const fs::path& version_dir) {
  const char* named = std::getenv("LLM_CONFIG_PATH");
  return version_dir / (named == nullptr ? "model.yaml" : named);
}

// A part of the model, which has no file and no entry of its own.
Candidate PartOf(const Candidate& whole, const fs::path& dir, ModelConfig config, ModelKind kind) {
  Candidate part{.dir = dir, .parsed = {}, .kind = kind, .versions = {"1"}, .is_generated = true};
  config.set_name(whole.parsed.config.name() + "/" + config.name());
  part.parsed.config = std::move(config);
  if (kind == ModelKind::kLlm) part.parsed.unfilled = {"max_batch_size"};
  return part;
}

}  // namespace

// A file that came with a request leads below the model's directory alone.
Result<fs::path> VersionLoader::LlmApiModelDir(const Candidate& candidate,
                                               const std::string& model) const {
  if (candidate.files != nullptr) return FindBeneath(candidate.dir, "directory", model, "model");
  ASSIGN_OR_RETURN(const fs::path named, Fetch(ResolvePath(model, candidate.dir), "model"));
  return FindModelDir(named);
}

Result<std::shared_ptr<Model>> VersionLoader::LoadLlmApi(const Candidate& candidate,
                                                         const std::string& version) {
  ModelConfig config = candidate.parsed.config;
  ASSIGN_OR_RETURN(const LlmApiFile file, ReadLlmApiFile(FileOf(candidate.dir / version)));
  for (const std::string& key : file.without_effect)
    logging::Warning("key of model.yaml has no effect", {{"model", config.name()}, {"key", key}});
  ASSIGN_OR_RETURN(const fs::path dir, LlmApiModelDir(candidate, file.model));
  const GeneratedConfigOptions generated = {
      .model_dir = dir.string(),
      .tokenizer_dir = HasTokenizer(dir) ? dir.string() : std::string(),
      .decoupled = file.decoupled,
      .exclude_input_in_output = false};
  contract::KeyReport unused;
  const auto load = [&](ModelConfig part, ModelKind kind) {
    const Candidate made = PartOf(candidate, dir, std::move(part), kind);
    llm_names_[made.parsed.config.name()] = config.name() + "/tensorrt_llm";
    return LoadVersion(made, "1", unused);
  };
  ASSIGN_OR_RETURN(const auto llm, load(LlmConfig(generated), ModelKind::kLlm));
  ASSIGN_OR_RETURN(const auto pre, load(PreprocessingConfig(generated), ModelKind::kPreprocessing));
  ASSIGN_OR_RETURN(const auto post,
                   load(PostprocessingConfig(generated), ModelKind::kPostprocessing));
  PipelineMembers members = {
      .preprocessing = std::dynamic_pointer_cast<PreprocessingModel>(pre),
      .llm = std::dynamic_pointer_cast<LlmModel>(llm),
      .postprocessing = std::dynamic_pointer_cast<PostprocessingModel>(post)};
  loaded_llms_.erase(llm->name());  // of no other model
  config.mutable_model_transaction_policy()->set_decoupled(file.decoupled);
  config.set_max_batch_size(file.max_batch_size);
  NormalizeModelConfig(config);
  ASSIGN_OR_RETURN(auto model,
                   PipelineModel::Create(PipelineModel::Kind::kLlmApi, std::move(config), version,
                                         std::move(members), {.accumulate_tokens = true}));
  return std::shared_ptr<Model>(std::move(model));
}

}  // namespace inflight::serving
