// SPDX-License-Identifier: Apache-2.0
#include "serving/repository.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "contract/llm_parameters.h"
#include "contract/parameter_values.h"
#include "serving/generated_config.h"
#include "serving/pipeline_model.h"
#include "serving/postprocessing_model.h"
#include "serving/preprocessing_model.h"
#include "serving/repository_layout.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelConfig;

constexpr char kConfigFile[] = "config.pbtxt";
constexpr uint64_t kMaxConfigBytes = 16 << 20;
constexpr int kAnyBatchSize = 1 << 20;

// What a configuration asks for that no model here does yet.
Status CheckBuilt(const ModelConfig& config) {
  const char* field = nullptr;
  if (config.has_sequence_batching()) field = "sequence_batching";
  if (config.response_cache().enable()) field = "response_cache";
  if (config.model_warmup_size() > 0) field = "model_warmup";
  if (config.batch_input_size() > 0) field = "batch_input";
  if (config.batch_output_size() > 0) field = "batch_output";
  if (config.has_model_repository_agents()) field = "model_repository_agents";
  if (config.dynamic_batching().preserve_ordering()) field = "preserve_ordering";
  if (config.dynamic_batching().default_queue_policy().default_timeout_microseconds() > 0) {
    field = "default_timeout_microseconds";
  }
  if (config.dynamic_batching().priority_queue_policy_size() > 0) field = "priority_queue_policy";
  if (field == nullptr) return Status::Ok();
  return Unimplemented(std::string(field) + " of model '" + config.name() +
                       "' is not supported yet");
}

bool TokenizerFlag(const ModelConfig& config, const std::string& key, bool fallback) {
  const auto text = FindParameter(config, key);
  const auto value = text ? contract::TokenizerBool(*text) : std::nullopt;
  if (!value) {
    logging::Warning("parameter is not set or not a boolean; the default is used",
                     {{"model", config.name()}, {"key", key}, {"default", fallback}});
  }
  return value.value_or(fallback);
}

void WarnUnfilled(const ParsedModelConfig& parsed) {
  for (const std::string& field : parsed.unfilled) {
    logging::Warning("field of config.pbtxt was left unfilled; the default is used",
                     {{"model", parsed.config.name()}, {"field", field}});
  }
  for (const auto& [key, value] : AllParameters(parsed.config)) {
    if (value.find("${") == std::string::npos) continue;
    logging::Warning("parameter of config.pbtxt was left unfilled; the default is used",
                     {{"model", parsed.config.name()}, {"key", key}});
  }
}

}  // namespace

std::string ReasonText(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return "Invalid argument: " + status.message();
    case StatusCode::kNotFound:
      return "Not found: " + status.message();
    case StatusCode::kUnimplemented:
      return "Unsupported: " + status.message();
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted:
      return "Unavailable: " + status.message();
    case StatusCode::kAlreadyExists:
      return "Already exists: " + status.message();
    default:
      return "Internal: " + status.message();
  }
}

Repository::Repository(const ServerOptions& options, EngineLoader load,
                       std::shared_ptr<WorkerPool> text_pool)
    : options_(options), load_(std::move(load)), text_pool_(std::move(text_pool)) {}

bool Repository::IsRepository(const fs::path& dir) {
  const std::vector<fs::path> subs = Subdirectories(dir);
  return std::any_of(subs.begin(), subs.end(),
                     [](const fs::path& sub) { return Exists(sub / kConfigFile); });
}

Repository::Kind Repository::KindOf(const ModelConfig& config) {
  if (config.platform() == "ensemble" || config.has_ensemble_scheduling()) return Kind::kEnsemble;
  if (HasInput(config, "input_ids") && HasOutput(config, "output_ids")) return Kind::kLlm;
  if (HasInput(config, "QUERY") && HasOutput(config, "INPUT_ID")) return Kind::kPreprocessing;
  if (HasInput(config, "TOKENS_BATCH") && HasOutput(config, "OUTPUT")) return Kind::kPostprocessing;
  if (HasInput(config, "text_input") && HasOutput(config, "text_output")) return Kind::kBls;
  return Kind::kUnknown;
}

Result<Repository::Candidate> Repository::Poll(const fs::path& dir) const {
  Candidate candidate;
  candidate.dir = dir;
  const std::string name = dir.filename().string();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(dir / kConfigFile, kMaxConfigBytes));
  auto parsed = ParseModelConfig(text);
  if (!parsed.ok()) {
    return InvalidArgument("Poll failed for model directory '" + name + "': " +
                           parsed.status().message() + " in " + (dir / kConfigFile).string());
  }
  candidate.parsed = std::move(*parsed);
  ModelConfig& config = candidate.parsed.config;
  if (config.name().empty()) config.set_name(name);
  if (config.name() != name) {
    return InvalidArgument("unexpected directory name '" + name + "' for model '" + config.name() +
                           "', directory name must equal model name");
  }
  candidate.kind = KindOf(config);
  candidate.versions = SelectVersions(config, dir);
  return candidate;
}

void Repository::LoadRepository(const fs::path& dir) {
  fs::path root = dir;
  if (!IsRepository(root)) {
    const std::vector<fs::path> subs = Subdirectories(root);
    if (subs.size() == 1 && IsRepository(subs.front())) {
      root = subs.front();
      logging::Warning("models lie one level deeper", {{"repository", root.string()}});
    }
  }
  std::vector<Candidate> candidates;
  for (const fs::path& sub : Subdirectories(root)) {
    if (!Exists(sub / kConfigFile)) {
      logging::Warning("directory without config.pbtxt is not a model", {{"path", sub.string()}});
      continue;
    }
    auto candidate = Poll(sub);
    if (candidate.ok()) {
      WarnUnfilled(candidate->parsed);
      candidates.push_back(std::move(*candidate));
    } else {
      Add({.name = sub.filename().string(), .status = candidate.status()});
    }
  }
  if (candidates.empty() && entries_.empty()) {
    Add({.name = root.string(), .status = NotFound("no models found in " + root.string())});
  }
  // Engines first, since they know what the others leave open; ensembles last.
  for (const Kind kind : {Kind::kLlm, Kind::kPreprocessing, Kind::kPostprocessing, Kind::kEnsemble,
                          Kind::kBls, Kind::kUnknown}) {
    for (Candidate& candidate : candidates) {
      if (candidate.kind == kind) Load(candidate);
    }
  }
}

void Repository::Load(Candidate& candidate) {
  const std::string& name = candidate.parsed.config.name();
  if (candidate.versions.empty()) {
    Add({.name = name,
         .status = InvalidArgument("at least one version must be available under the version "
                                   "policy of model '" +
                                   name + "'")});
    return;
  }
  for (const std::string& version : candidate.versions) {
    auto model = LoadVersion(candidate, version);
    ModelEntry entry{.name = name, .version = version};
    if (model.ok()) entry.model = std::move(*model);
    entry.status = model.status();
    entry.required = candidate.kind != Kind::kBls;
    Add(std::move(entry));
  }
}

Result<std::shared_ptr<Model>> Repository::LoadVersion(const Candidate& candidate,
                                                       const std::string& version) {
  const ModelConfig& config = candidate.parsed.config;
  ModelConfig filled = config;  // the engine's batch size is not known yet; any will do
  if (candidate.parsed.IsUnfilled("max_batch_size")) filled.set_max_batch_size(kAnyBatchSize);
  RETURN_IF_ERROR(ValidateModelConfig(filled));
  RETURN_IF_ERROR(CheckBuilt(config));
  switch (candidate.kind) {
    case Kind::kLlm:
      return LoadLlm(candidate, version);
    case Kind::kPreprocessing:
      return LoadPreprocessing(candidate, version);
    case Kind::kPostprocessing:
      return LoadPostprocessing(candidate, version);
    case Kind::kEnsemble:
      return LoadEnsemble(candidate, version);
    case Kind::kBls:
      return Unimplemented("model '" + config.name() +
                           "' (tensorrt_llm_bls) is not supported yet; use the ensemble");
    case Kind::kUnknown:
      break;
  }
  return Unimplemented("model '" + config.name() + "' of backend '" +
                       (config.backend().empty() ? config.platform() : config.backend()) +
                       "' is none of preprocessing, tensorrt_llm, postprocessing and ensemble, "
                       "which are recognised by their tensors");
}

// Fields that a template left open, from the engine; then the usual normalisation.
ModelConfig Repository::Complete(const Candidate& candidate) const {
  ModelConfig config = candidate.parsed.config;
  if (candidate.parsed.IsUnfilled("max_batch_size")) {
    const auto llm = llms_.empty() ? nullptr : llms_.front();
    config.set_max_batch_size(llm ? llm->config().max_batch_size() : 1);
  }
  if (candidate.kind == Kind::kLlm && contract::IsUnfilled(config.backend())) {
    config.set_backend("tensorrtllm");
  }
  NormalizeModelConfig(config);
  return config;
}

Result<std::shared_ptr<Model>> Repository::LoadLlm(const Candidate& candidate,
                                                   const std::string& version) {
  ModelConfig config = candidate.parsed.config;
  ExecutorOptions base = options_.executor;
  const auto max_queue = config.dynamic_batching().default_queue_policy().max_queue_size();
  if (max_queue > 0) base.max_queue_size = static_cast<int>(std::min(max_queue, 1U << 20));
  ASSIGN_OR_RETURN(auto parameters, contract::ParseLlmParameters(AllParameters(config), base));
  for (const std::string& warning : parameters.warnings) {
    logging::Warning(warning, {{"model", config.name()}});
  }
  fs::path engine_dir = parameters.engine_dir;
  if (engine_dir.empty()) {
    engine_dir = candidate.dir / version;
  } else if (engine_dir.is_relative() && !Exists(engine_dir) &&
             Exists(candidate.dir / engine_dir)) {
    engine_dir = candidate.dir / engine_dir;
  }
  if (!Exists(engine_dir)) {
    return NotFound("gpt_model_path: '" + engine_dir.string() + "' does not exist");
  }
  engine_dir = ResolveEngineDir(engine_dir);
  ASSIGN_OR_RETURN(LoadedEngine engine, load_(engine_dir, parameters.executor));
  RETURN_IF_ERROR(contract::CheckAttentionWindows(parameters, engine.backend.executor->limits()));
  if (engine_tokenizer_dir_.empty()) engine_tokenizer_dir_ = engine.tokenizer_dir;

  if (candidate.parsed.IsUnfilled("max_batch_size")) {
    config.set_max_batch_size(engine.backend.executor->limits().max_batch_size);
  }
  if (contract::IsUnfilled(config.backend())) config.set_backend("tensorrtllm");
  NormalizeModelConfig(config);
  const contract::LlmRequestDefaults defaults = {
      .decoupled = config.model_transaction_policy().decoupled(),
      .exclude_input_in_output = parameters.exclude_input_in_output,
      .normalize_log_probs = parameters.normalize_log_probs};
  auto model =
      std::make_shared<LlmModel>(std::move(config), version, std::move(engine.backend), defaults);
  llms_.push_back(model);
  return std::shared_ptr<Model>(std::move(model));
}

Result<std::shared_ptr<const tokenizer::Tokenizer>> Repository::LoadTokenizer(
    const ModelConfig& config) {
  const auto named = FindParameter(config, "tokenizer_dir");
  const fs::path dir = named ? fs::path(*named) : engine_tokenizer_dir_;
  if (dir.empty()) {
    return InvalidArgument("tokenizer_dir of model '" + config.name() +
                           "' is not set, and no engine was loaded whose directory could have one");
  }
  std::error_code error;
  const std::string key = fs::weakly_canonical(dir, error).string();
  if (const auto found = tokenizers_.find(key); found != tokenizers_.end()) return found->second;
  auto tokenizer = tokenizer::Tokenizer::Load(dir);
  if (!tokenizer.ok()) return tokenizer.status().WithPrefix("tokenizer_dir '" + dir.string() + "'");
  tokenizers_[key] = *tokenizer;
  return tokenizer;
}

Result<std::shared_ptr<Model>> Repository::LoadPreprocessing(const Candidate& candidate,
                                                             const std::string& version) {
  const ModelConfig& config = candidate.parsed.config;
  ASSIGN_OR_RETURN(auto tokenizer, LoadTokenizer(config));
  // Decoder tensors came with 0.11, and with them the defaults changed.
  const bool since_0_11 = HasInput(config, "DECODER_QUERY");
  PreprocessingOptions options = {
      .tokenizer = std::move(tokenizer),
      .text_pool = text_pool_,
      .add_special_tokens = TokenizerFlag(config, "add_special_tokens", since_0_11),
      .pad_is_eos = !since_0_11};
  return std::shared_ptr<Model>(
      std::make_shared<PreprocessingModel>(Complete(candidate), version, std::move(options)));
}

Result<std::shared_ptr<Model>> Repository::LoadPostprocessing(const Candidate& candidate,
                                                              const std::string& version) {
  const ModelConfig& config = candidate.parsed.config;
  ASSIGN_OR_RETURN(auto tokenizer, LoadTokenizer(config));
  PostprocessingOptions options = {
      .tokenizer = std::move(tokenizer),
      .text_pool = text_pool_,
      .skip_special_tokens = TokenizerFlag(config, "skip_special_tokens", /*fallback=*/true)};
  return std::shared_ptr<Model>(
      std::make_shared<PostprocessingModel>(Complete(candidate), version, std::move(options)));
}

Result<std::shared_ptr<Model>> Repository::LoadEnsemble(const Candidate& candidate,
                                                        const std::string& version) const {
  ModelConfig config = Complete(candidate);
  PipelineMembers members;
  for (const auto& step : config.ensemble_scheduling().step()) {
    const std::shared_ptr<Model> model = Find(step.model_name());
    if (model == nullptr) {
      return InvalidArgument("ensemble '" + config.name() + "' depends on '" + step.model_name() +
                             "' which has no loaded version");
    }
    if (auto pre = std::dynamic_pointer_cast<PreprocessingModel>(model)) {
      members.preprocessing = std::move(pre);
    } else if (auto llm = std::dynamic_pointer_cast<LlmModel>(model)) {
      members.llm = std::move(llm);
    } else if (auto post = std::dynamic_pointer_cast<PostprocessingModel>(model)) {
      members.postprocessing = std::move(post);
    }
  }
  if (!members.preprocessing || !members.llm || !members.postprocessing) {
    return Unimplemented("ensemble '" + config.name() +
                         "': only preprocessing -> tensorrt_llm -> postprocessing is supported "
                         "yet");
  }
  config.mutable_model_transaction_policy()->set_decoupled(members.llm->decoupled());
  ASSIGN_OR_RETURN(auto ensemble, PipelineModel::Create(PipelineModel::Kind::kEnsemble,
                                                        std::move(config), version, members));
  return std::shared_ptr<Model>(std::move(ensemble));
}

void Repository::LoadModelDir(const fs::path& dir) {
  GeneratedConfigOptions generated = {.model_dir = dir.string(),
                                      .decoupled = options_.decoupled,
                                      .exclude_input_in_output = !options_.include_input_in_output};
  const auto load = [&](ModelConfig config, Kind kind) {
    Candidate candidate{.dir = dir, .parsed = {}, .kind = kind, .versions = {"1"}};
    candidate.parsed.config = std::move(config);
    Load(candidate);
  };
  // The engine knows the batch size that the configurations state.
  ModelConfig llm = LlmConfig(generated);
  Candidate candidate{.dir = dir, .parsed = {}, .kind = Kind::kLlm, .versions = {"1"}};
  candidate.parsed.config = std::move(llm);
  candidate.parsed.unfilled = {"max_batch_size"};
  Load(candidate);
  if (const auto loaded = Find("tensorrt_llm")) {
    generated.max_batch_size = loaded->config().max_batch_size();
    generated.model_dir = engine_tokenizer_dir_.string();
  }
  load(PreprocessingConfig(generated), Kind::kPreprocessing);
  load(PostprocessingConfig(generated), Kind::kPostprocessing);
  load(EnsembleConfig(generated), Kind::kEnsemble);
}

void Repository::Add(ModelEntry entry) {
  const bool duplicate = std::any_of(entries_.begin(), entries_.end(), [&](const ModelEntry& e) {
    return e.name == entry.name && e.version == entry.version;
  });
  if (duplicate) {
    entry.model = nullptr;
    entry.status = InvalidArgument("model '" + entry.name +
                                   "' appears in two or more repositories or directories");
  }
  if (entry.status.ok()) {
    logging::Info("model loaded", {{"model", entry.name}, {"version", entry.version}});
  } else {
    logging::Log(
        entry.required ? logging::Level::kError : logging::Level::kWarning, "model not loaded",
        {{"model", entry.name}, {"version", entry.version}, {"reason", ReasonText(entry.status)}});
  }
  entries_.push_back(std::move(entry));
}

std::shared_ptr<Model> Repository::Find(const std::string& name) const {
  std::shared_ptr<Model> latest;
  for (const ModelEntry& entry : entries_) {
    if (entry.name == name && entry.model != nullptr) latest = entry.model;
  }
  return latest;
}

}  // namespace inflight::serving
