// SPDX-License-Identifier: Apache-2.0
#include "serving/repository.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "contract/llm_parameters.h"
#include "contract/parameter_values.h"
#include "contract/text_parameters.h"
#include "serving/generated_config.h"
#include "serving/repository_layout.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelConfig;

constexpr char kConfigFile[] = "config.pbtxt";
constexpr uint64_t kMaxConfigBytes = 16 << 20;
constexpr int kAnyBatchSize = 1 << 20;

// One line for all that a template left open; the report says what it became.
void WarnUnfilled(const ParsedModelConfig& parsed) {
  std::string keys;
  const auto add = [&](const std::string& key) { keys += (keys.empty() ? "" : " ") + key; };
  for (const std::string& field : parsed.unfilled) add(field);
  for (const auto& [key, value] : AllParameters(parsed.config)) {
    if (value.find("${") != std::string::npos) add(key);
  }
  if (keys.empty()) return;
  logging::Warning("keys of config.pbtxt left unfilled take their defaults",
                   {{"model", parsed.config.name()}, {"keys", keys}});
}

void LogReport(const ModelReport& report) {
  logging::Info("configuration", {{"model", report.model}, {"version", report.version}});
  std::istringstream table(contract::ToTable(report.keys));
  for (std::string line; std::getline(table, line);) logging::Info(line);
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
    case StatusCode::kFailedPrecondition:
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
  const fs::path root = FindRepository(dir).value_or(dir);
  if (root != dir) {
    logging::Warning("models lie one level deeper", {{"repository", root.string()}});
  }
  std::vector<Candidate> candidates;
  bool has_models = false;
  for (const fs::path& sub : Subdirectories(root)) {
    if (!Exists(sub / kConfigFile)) {
      logging::Warning("directory without config.pbtxt is not a model", {{"path", sub.string()}});
      continue;
    }
    has_models = true;
    auto candidate = Poll(sub);
    if (candidate.ok()) {
      WarnUnfilled(candidate->parsed);
      candidates.push_back(std::move(*candidate));
    } else {
      Add({.name = sub.filename().string(), .status = candidate.status()});
    }
  }
  if (!has_models) {
    Add({.name = root.string(), .status = NotFound("no models found in " + root.string())});
  }
  FindPartners(candidates);
  // Engines first, since they know what the others leave open; pipelines last.
  for (const ModelKind kind :
       {ModelKind::kLlm, ModelKind::kPreprocessing, ModelKind::kPostprocessing,
        ModelKind::kEnsemble, ModelKind::kBls, ModelKind::kUnknown}) {
    for (Candidate& candidate : candidates) {
      if (candidate.kind == kind) Load(candidate);
    }
  }
}

// Which LLM each text model and pipeline belongs to, and how many LLMs leave their memory open.
void Repository::FindPartners(const std::vector<Candidate>& candidates) {
  const auto is_llm = [&](const std::string& name) {
    return std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
      return c.kind == ModelKind::kLlm && c.parsed.config.name() == name;
    });
  };
  open_shares_ = 0;
  for (const Candidate& candidate : candidates) {
    const ModelConfig& config = candidate.parsed.config;
    std::vector<std::string> members;
    if (candidate.kind == ModelKind::kEnsemble) {
      for (const auto& step : config.ensemble_scheduling().step()) {
        members.push_back(step.model_name());
      }
    } else if (candidate.kind == ModelKind::kBls) {
      const auto names = contract::ParseBlsParameters(AllParameters(config));
      if (names.ok()) members = {names->preprocessing, names->llm, names->postprocessing};
    } else if (candidate.kind == ModelKind::kLlm) {
      const auto parsed = contract::ParseLlmParameters(AllParameters(config), options_.executor);
      if (parsed.ok() && !parsed->has_memory_share) {
        open_shares_ += static_cast<int>(candidate.versions.size());
      }
    }
    const auto llm = std::find_if(members.begin(), members.end(), is_llm);
    if (llm == members.end()) continue;
    llm_names_.emplace(config.name(), *llm);
    for (const std::string& member : members) llm_names_.emplace(member, *llm);
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
    contract::KeyReport keys;
    auto model = LoadVersion(candidate, version, keys);
    ModelEntry entry{.name = name, .version = version};
    if (model.ok()) entry.model = std::move(*model);
    entry.status = model.status();
    // Lacking a part is no fault of the files (an LLM has none); what a BLS alone asks for is in no
    // one else's way.
    entry.required =
        candidate.kind == ModelKind::kLlm ||
        (entry.status.code() != StatusCode::kFailedPrecondition &&
         !(candidate.kind == ModelKind::kBls && entry.status.code() == StatusCode::kUnimplemented));
    if (!candidate.is_generated) {
      const ModelConfig& completed = entry.model ? entry.model->config() : candidate.parsed.config;
      ModelReport report{.model = name, .version = version};
      report.keys = ReportFields(candidate.kind, candidate.parsed, completed);
      report.keys.insert(report.keys.end(), keys.begin(), keys.end());
      LogReport(report);
      reports_.push_back(std::move(report));
    }
    Add(std::move(entry));
  }
}

// The lines of a model that is not loaded because of its fields.
void Repository::ReportParameters(const Candidate& candidate, contract::KeyReport& keys) const {
  const auto parameters = AllParameters(candidate.parsed.config);
  switch (candidate.kind) {
    case ModelKind::kLlm:
      (void)contract::ParseLlmParameters(parameters, options_.executor, &keys);
      break;
    case ModelKind::kPreprocessing:
      (void)contract::ParsePreprocessingParameters(
          parameters, HasInput(candidate.parsed.config, "DECODER_QUERY"), &keys);
      break;
    case ModelKind::kPostprocessing:
      (void)contract::ParsePostprocessingParameters(parameters, &keys);
      break;
    case ModelKind::kBls:
      (void)contract::ParseBlsParameters(parameters, &keys);
      break;
    case ModelKind::kEnsemble:
    case ModelKind::kUnknown:
      break;
  }
}

Result<std::shared_ptr<Model>> Repository::LoadVersion(const Candidate& candidate,
                                                       const std::string& version,
                                                       contract::KeyReport& keys) {
  const ModelConfig& config = candidate.parsed.config;
  ModelConfig filled = config;  // the engine's batch size is not known yet; any will do
  if (candidate.parsed.IsUnfilled("max_batch_size")) filled.set_max_batch_size(kAnyBatchSize);
  Status fields = ValidateModelConfig(filled);
  if (fields.ok()) fields = CheckFields(candidate.kind, candidate.parsed);
  if (!fields.ok()) {
    ReportParameters(candidate, keys);
    return fields;
  }
  switch (candidate.kind) {
    case ModelKind::kLlm:
      return LoadLlm(candidate, version, keys);
    case ModelKind::kPreprocessing:
      return LoadPreprocessing(candidate, version, keys);
    case ModelKind::kPostprocessing:
      return LoadPostprocessing(candidate, version, keys);
    case ModelKind::kEnsemble:
      return LoadEnsemble(candidate, version);
    case ModelKind::kBls:
      return LoadBls(candidate, version, keys);
    case ModelKind::kUnknown:
      break;
  }
  return Unimplemented("model '" + config.name() + "' of backend '" +
                       (config.backend().empty() ? config.platform() : config.backend()) +
                       "' is none of preprocessing, tensorrt_llm, postprocessing, ensemble and "
                       "tensorrt_llm_bls, which are recognised by their tensors");
}

// Where several LLMs leave their share of the device's memory open, they get equal ones: each takes
// its part of what the earlier ones left.
void Repository::ShareMemory(contract::LlmParameters& parameters, contract::KeyReport& keys) {
  if (parameters.has_memory_share || open_shares_ == 0) return;
  const int models = open_shares_--;
  if (models == 1) return;
  double& fraction = parameters.executor.kv_cache_free_memory_fraction;
  fraction /= models;
  for (contract::KeyLine& line : keys) {
    if (line.key != "kv_cache_free_gpu_mem_fraction") continue;
    std::ostringstream text;
    text << fraction;
    line.value = text.str();
    line.source = contract::KeySource::kAuto;
    line.reason = "left open by this model and " + std::to_string(models - 1) + " to come";
  }
}

Result<std::shared_ptr<Model>> Repository::LoadLlm(const Candidate& candidate,
                                                   const std::string& version,
                                                   contract::KeyReport& keys) {
  ModelConfig config = candidate.parsed.config;
  ExecutorOptions base = options_.executor;
  const auto max_queue = config.dynamic_batching().default_queue_policy().max_queue_size();
  if (max_queue > 0) base.max_queue_size = static_cast<int>(std::min(max_queue, 1U << 20));
  const auto max_delay = config.dynamic_batching().max_queue_delay_microseconds();
  if (max_delay > 0)
    base.max_queue_delay_us = static_cast<int64_t>(std::min<uint64_t>(max_delay, INT64_MAX));
  ASSIGN_OR_RETURN(auto parameters,
                   contract::ParseLlmParameters(AllParameters(config), base, &keys));
  for (const std::string& warning : parameters.warnings) {
    logging::Warning(warning, {{"model", config.name()}});
  }
  ASSIGN_OR_RETURN(const fs::path engine_dir,
                   FindEngine(parameters.engine_dir, candidate.dir, version));
  ShareMemory(parameters, keys);
  ASSIGN_OR_RETURN(LoadedEngine engine,
                   load_(engine_dir, config.name() + "/" + version, parameters.executor));
  const ExecutorLimits& limits = engine.backend.executor->limits();
  RETURN_IF_ERROR(contract::CheckAttentionWindows(parameters, limits, &keys));

  if (candidate.parsed.IsUnfilled("max_batch_size")) {
    config.set_max_batch_size(limits.max_batch_size);
  }
  if (contract::IsUnfilled(config.backend())) config.set_backend("tensorrtllm");
  NormalizeModelConfig(config);
  const contract::LlmRequestDefaults defaults = {
      .decoupled = config.model_transaction_policy().decoupled(),
      .exclude_input_in_output = parameters.exclude_input_in_output,
      .normalize_log_probs = parameters.normalize_log_probs};
  const fs::path tokenizer_dir = engine.tokenizer_dir;
  engine.backend.iterations = {.period_ms = parameters.stats_check_period_ms,
                               .has_records = parameters.executor.iter_stats_max_iterations > 0};
  auto model =
      std::make_shared<LlmModel>(std::move(config), version, std::move(engine.backend), defaults);
  llms_.push_back(model);
  loaded_llms_[model->name()] = {model, tokenizer_dir};
  return std::shared_ptr<Model>(std::move(model));
}

void Repository::LoadModelDir(const fs::path& dir) {
  GeneratedConfigOptions generated = {.model_dir = dir.string(),
                                      .decoupled = options_.decoupled,
                                      .exclude_input_in_output = !options_.include_input_in_output};
  const auto load = [&](ModelConfig config, ModelKind kind) {
    Candidate candidate{
        .dir = dir, .parsed = {}, .kind = kind, .versions = {"1"}, .is_generated = true};
    candidate.parsed.config = std::move(config);
    // The engine knows the batch size that the configurations state.
    if (kind == ModelKind::kLlm) candidate.parsed.unfilled = {"max_batch_size"};
    Load(candidate);
  };
  load(LlmConfig(generated), ModelKind::kLlm);
  if (const LoadedLlm* loaded = LlmOf("tensorrt_llm")) {
    generated.max_batch_size = loaded->model->config().max_batch_size();
    generated.model_dir = loaded->tokenizer_dir.string();
  }
  load(PreprocessingConfig(generated), ModelKind::kPreprocessing);
  load(PostprocessingConfig(generated), ModelKind::kPostprocessing);
  load(EnsembleConfig(generated), ModelKind::kEnsemble);
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

}  // namespace inflight::serving
