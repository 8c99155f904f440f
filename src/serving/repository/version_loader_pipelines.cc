// SPDX-License-Identifier: Apache-2.0
// Text models and the pipelines over an LLM, which take from it what their files leave open.
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "contract/text_parameters.h"
#include "serving/ensemble/ensemble_graph.h"
#include "serving/ensemble/ensemble_model.h"
#include "serving/pipelines/pipeline_model.h"
#include "serving/repository/bls_members.h"
#include "serving/repository/text_files.h"
#include "serving/repository/version_loader.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelConfig;

constexpr int64_t kLatest = -1;

void LogWarnings(const std::vector<std::string>& warnings, const ModelConfig& config) {
  for (const std::string& warning : warnings) {
    logging::Warning(warning, {{"model", config.name()}});
  }
}

// What requests of a BLS will find, as of now.
void LogMembers(const ModelConfig& bls, const contract::BlsParameters& names,
                const Result<PipelineMembers>& members) {
  if (!members.ok()) {
    logging::Warning("requests fail until the model's members are loaded",
                     {{"model", bls.name()}, {"reason", members.status().message()}});
    return;
  }
  const auto log = [&](const std::string& named, const Model& taken) {
    if (named == taken.name()) return;
    logging::Info("the only model of its kind takes the place of one that is not there",
                  {{"model", bls.name()}, {"named", named}, {"taken", taken.name()}});
  };
  log(names.preprocessing, *members->preprocessing);
  log(names.postprocessing, *members->postprocessing);
}

}  // namespace

// The LLM that a pipeline joins with `model`, or the only one.
const LoadedLlm* VersionLoader::LlmOf(const std::string& model) const {
  std::string name = model;
  if (const auto found = llm_names_.find(model); found != llm_names_.end()) name = found->second;
  if (const auto found = loaded_llms_.find(name); found != loaded_llms_.end()) {
    return &found->second;
  }
  return loaded_llms_.size() == 1 ? &loaded_llms_.begin()->second : nullptr;
}

// Fields that a template left open, from the engine; then the usual normalisation.
ModelConfig VersionLoader::Complete(const Candidate& candidate) const {
  ModelConfig config = candidate.parsed.config;
  if (candidate.parsed.IsUnfilled("max_batch_size")) {
    const LoadedLlm* llm = LlmOf(config.name());
    config.set_max_batch_size(llm != nullptr ? llm->max_batch_size : 1);
  }
  NormalizeModelConfig(config);
  return config;
}

Result<fs::path> VersionLoader::FindTokenizerDir(const Candidate& candidate,
                                                 const std::string& named) const {
  const std::string& model = candidate.parsed.config.name();
  if (!named.empty()) {
    ASSIGN_OR_RETURN(const fs::path resolved, ResolveNamed(candidate, "tokenizer_dir", named));
    ASSIGN_OR_RETURN(const fs::path path, Fetch(resolved, "tokenizer_dir"));
    auto place = FindModelDir(path);
    if (!place.ok()) return place.status().WithPrefix("tokenizer_dir");
    return FindTokenizer(*place);
  }
  const LoadedLlm* llm = LlmOf(model);
  if (llm == nullptr) {
    return FailedPrecondition("tokenizer_dir of model '" + model + "' is not set, and " +
                              (loaded_llms_.empty()
                                   ? "no engine was loaded whose directory could have one"
                                   : "several engines were loaded that could be meant") +
                              "; set it in the model's config.pbtxt");
  }
  if (!HasTokenizer(llm->tokenizer_dir)) {
    return FailedPrecondition("tokenizer_dir of model '" + model + "' is not set, and '" +
                              llm->tokenizer_dir.string() +
                              "', the engine's, has no tokenizer files; copy them there, or set " +
                              "tokenizer_dir in the model's config.pbtxt to where they are");
  }
  return llm->tokenizer_dir;
}

Result<std::shared_ptr<const Tokenizer>> VersionLoader::LoadTokenizer(const fs::path& dir) {
  std::error_code error;
  const std::string key = fs::weakly_canonical(dir, error).string();
  if (const auto found = tokenizers_.find(key); found != tokenizers_.end()) return found->second;
  auto tokenizer = Tokenizer::Load(dir);
  if (!tokenizer.ok()) return tokenizer.status().WithPrefix("tokenizer_dir '" + dir.string() + "'");
  tokenizers_[key] = *tokenizer;
  return tokenizer;
}

Result<std::shared_ptr<Model>> VersionLoader::LoadPreprocessing(const Candidate& candidate,
                                                                const std::string& version,
                                                                contract::KeyReport& keys) {
  const ModelConfig& config = candidate.parsed.config;
  // Decoder tensors came with 0.11, and with them the defaults changed.
  const bool since_0_11 = HasInput(config, "DECODER_QUERY");
  ASSIGN_OR_RETURN(const auto parameters, contract::ParsePreprocessingParameters(
                                              AllParameters(config), since_0_11, &keys));
  LogWarnings(parameters.warnings, config);
  ASSIGN_OR_RETURN(const fs::path dir, FindTokenizerDir(candidate, parameters.tokenizer_dir));
  ASSIGN_OR_RETURN(auto tokenizer, LoadTokenizer(dir));
  ASSIGN_OR_RETURN(TextFiles files, ReadTextFiles(dir, options_.chat_template));
  if (const std::string said = files.defaults.ToString(); !said.empty())
    keys.push_back(
        {.key = "generation_config.json",
         .value = said,
         .source = contract::KeySource::kAuto,
         .reason = "where a request of /v1 or to a model without a repository is silent"});
  const LoadedLlm* llm = LlmOf(config.name());
  const int vocab_size = llm != nullptr ? llm->vocab_size : tokenizer->vocab_size();
  const size_t max_prompt_bytes =
      llm != nullptr ? MaxPromptBytes(*tokenizer, llm->max_input_len) : 0;
  PreprocessingOptions options = {.tokenizer = std::move(tokenizer),
                                  .text_pool = text_pool_,
                                  .add_special_tokens = parameters.special_tokens,
                                  .pad_is_eos = !since_0_11,
                                  .vocab_size = vocab_size,
                                  .max_prompt_bytes = max_prompt_bytes,
                                  .chat_template = std::move(files.chat_template),
                                  .no_chat_template = std::move(files.no_chat_template),
                                  .defaults = files.defaults};
  return std::shared_ptr<Model>(
      std::make_shared<PreprocessingModel>(Complete(candidate), version, std::move(options)));
}

Result<std::shared_ptr<Model>> VersionLoader::LoadPostprocessing(const Candidate& candidate,
                                                                 const std::string& version,
                                                                 contract::KeyReport& keys) {
  const ModelConfig& config = candidate.parsed.config;
  ASSIGN_OR_RETURN(const auto parameters,
                   contract::ParsePostprocessingParameters(AllParameters(config), &keys));
  LogWarnings(parameters.warnings, config);
  ASSIGN_OR_RETURN(const fs::path dir, FindTokenizerDir(candidate, parameters.tokenizer_dir));
  ASSIGN_OR_RETURN(auto tokenizer, LoadTokenizer(dir));
  PostprocessingOptions options = {.tokenizer = std::move(tokenizer),
                                   .text_pool = text_pool_,
                                   .skip_special_tokens = parameters.special_tokens};
  return std::shared_ptr<Model>(
      std::make_shared<PostprocessingModel>(Complete(candidate), version, std::move(options)));
}

// As StopWordMatch says.
bool VersionLoader::MatchesStopTexts(const Candidate& ensemble, const LlmModel& llm) const {
  if (options_.stop_words != StopWordMatch::kByRelease)
    return options_.stop_words == StopWordMatch::kText;
  return ensemble.is_generated || !IsUpstreams(llm.config());
}

Result<std::shared_ptr<Model>> VersionLoader::LoadEnsemble(const Candidate& candidate,
                                                           const std::string& version) const {
  ModelConfig config = Complete(candidate);
  PipelineMembers members;
  bool has_other = false;
  for (const auto& step : config.ensemble_scheduling().step()) {
    if (!step.model_namespace().empty() && step.model_namespace() != name_space_) {
      return InvalidArgument(
          "ensemble '" + config.name() + "': step '" + step.model_name() +
          "' has the model_namespace '" + step.model_namespace() +
          "', steps are models of the ensemble's own repository" +
          (name_space_.empty() ? " (--model-namespacing is off)" : ", '" + name_space_ + "'"));
    }
  }
  RETURN_IF_ERROR(CheckStepsAreThere(config, find_));
  for (const auto& step : config.ensemble_scheduling().step()) {
    const std::shared_ptr<Model> model = find_(step.model_name(), step.model_version());
    if (auto pre = std::dynamic_pointer_cast<PreprocessingModel>(model)) {
      members.preprocessing = std::move(pre);
    } else if (auto llm = std::dynamic_pointer_cast<LlmModel>(model)) {
      members.llm = std::move(llm);
    } else if (auto post = std::dynamic_pointer_cast<PostprocessingModel>(model)) {
      members.postprocessing = std::move(post);
    } else {
      has_other = true;
    }
  }
  if (has_other || !members.preprocessing || !members.llm || !members.postprocessing) {
    ASSIGN_OR_RETURN(auto ensemble, EnsembleModel::Create(std::move(config), version, find_));
    return std::shared_ptr<Model>(std::move(ensemble));
  }
  config.mutable_model_transaction_policy()->set_decoupled(members.llm->decoupled());
  members.matches_stop_texts = MatchesStopTexts(candidate, *members.llm);
  ASSIGN_OR_RETURN(auto ensemble,
                   PipelineModel::Create(PipelineModel::Kind::kEnsemble, std::move(config), version,
                                         std::move(members)));
  return std::shared_ptr<Model>(std::move(ensemble));
}

Result<std::shared_ptr<Model>> VersionLoader::LoadBls(const Candidate& candidate,
                                                      const std::string& version,
                                                      contract::KeyReport& keys) const {
  ModelConfig config = Complete(candidate);
  ASSIGN_OR_RETURN(const auto names, contract::ParseBlsParameters(AllParameters(config), &keys));
  LogWarnings(names.warnings, config);
  const auto members = std::make_shared<BlsMembers>(names, options_.stop_words, published_);
  LogMembers(config, names, members->Find());
  if (!config.has_model_transaction_policy() || candidate.parsed.IsUnfilled("decoupled")) {
    const auto llm = std::dynamic_pointer_cast<LlmModel>(find_(names.llm, kLatest));
    config.mutable_model_transaction_policy()->set_decoupled(llm != nullptr && llm->decoupled());
  }
  ASSIGN_OR_RETURN(auto bls, PipelineModel::CreateBls(
                                 std::move(config), version, [members] { return members->Find(); },
                                 {.accumulate_tokens = names.accumulate_tokens}));
  return std::shared_ptr<Model>(std::move(bls));
}

}  // namespace inflight::serving
