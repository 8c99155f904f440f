// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/repository.h"

#include <algorithm>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/log_table.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "serving/configuration/generated_config.h"
#include "serving/ensemble/ensemble_graph.h"
#include "serving/repository/auto_complete.h"
#include "serving/repository/repository_layout.h"
#include "serving/repository/validate_config.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelConfig;

constexpr uint64_t kMaxConfigBytes = 16 << 20;

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

// Empty without a file, where that may be.
Result<ParsedModelConfig> ReadConfig(const fs::path& file, const LoadOverride& override,
                                     bool may_be_absent) {
  if (override.config_json) return ParseModelConfigJson(*override.config_json);
  if (may_be_absent && !Exists(file)) return ParsedModelConfig{};
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxConfigBytes));
  auto parsed = ParseModelConfig(text);
  if (!parsed.ok()) {
    return InvalidArgument(parsed.status().message() + " in " + file.string());
  }
  return parsed;
}

void LogReport(const ModelReport& report) {
  logging::Table("configuration of model " + report.model + " version " + report.version,
                 contract::ToTable(report.keys));
}

void LogEntry(const ModelEntry& entry) {
  if (entry.status.ok()) {
    logging::Info("model loaded", {{"model", entry.name}, {"version", entry.version}});
  } else {
    logging::Log(
        entry.required ? logging::Level::kError : logging::Level::kWarning, "model not loaded",
        {{"model", entry.name}, {"version", entry.version}, {"reason", ReasonText(entry.status)}});
  }
}

}  // namespace

Repository::Repository(ServerOptions options, EngineLoader load,
                       std::shared_ptr<WorkerPool> text_pool, std::string name_space)
    : options_(std::move(options)),
      name_space_(std::move(name_space)),
      claims_(options_.model_load_threads),
      loader_(
          options_, std::move(load), std::move(text_pool), name_space_, control_mutex_,
          [this](const std::string& model, int64_t version) { return Find(model, version); },
          published_),
      places_(options_.model_config_name, options_.auto_complete) {
  Publish();
}

Repository::~Repository() {
  published_->Set({});
  entries_.clear();
  retirement_->Close();
}

Result<Candidate> Repository::Poll(const std::string& name, const fs::path& dir,
                                   const LoadOverride& override) const {
  Candidate candidate;
  candidate.dir = dir;
  const std::string directory = dir.filename().string();
  auto parsed = ReadConfig(ConfigFile(dir, options_.model_config_name), override,
                           options_.auto_complete && NeedsNoConfig(directory));
  if (!parsed.ok()) {
    return InvalidArgument("Poll failed for model directory '" + directory +
                           "': " + parsed.status().message());
  }
  candidate.parsed = std::move(*parsed);
  if (override.config_json) {
    candidate.is_from_request = true;
    candidate.own_values = ValuesInFile(name);
  }
  candidate.changed = NewestChange(dir);
  candidate.data_files = DataFiles(dir);
  ModelConfig& config = candidate.parsed.config;
  if (config.name().empty() || config.name() == directory) config.set_name(name);
  if (options_.auto_complete) RETURN_IF_ERROR(AutoComplete(name, dir, candidate.parsed));
  const ModelConfig checked = WithAnyBatchSize(candidate.parsed);
  RETURN_IF_ERROR(ValidateModelConfig(checked));
  // Else the model may complete them once it is loaded.
  if (!options_.auto_complete) RETURN_IF_ERROR(ValidateTensors(checked));
  if (config.name() != name) {
    return InvalidArgument("unexpected directory name '" + directory + "' for model '" +
                           config.name() + "', directory name must equal model name");
  }
  candidate.kind = KindOf(config);
  candidate.versions = SelectVersions(config, dir);
  return candidate;
}

void Repository::LoadRepository(const fs::path& dir) {
  const std::lock_guard lock(control_mutex_);
  const fs::path root = FindRepository(dir).value_or(dir);
  if (root != dir) {
    logging::Warning("models lie one level deeper", {{"repository", root.string()}});
  }
  if (!places_.HasRoot(root)) places_.AddRoot(root);
  std::vector<Candidate> candidates;
  bool has_models = false;
  const std::vector<fs::path> subdirectories = Subdirectories(root);
  for (const fs::path& sub : subdirectories) {
    if (!IsModel(sub)) {
      logging::Warning("directory without config.pbtxt is not a model", {{"path", sub.string()}});
      continue;
    }
    has_models = true;
    const std::string name = sub.filename().string();
    if (places_.IsAmbiguous(name)) {
      AddAmbiguous(name);
      continue;
    }
    scanned_[sub] = NewestChange(sub);  // before it is read: a change meanwhile is one
    auto candidate = Poll(name, sub, {});
    if (candidate.ok()) {
      WarnUnfilled(candidate->parsed);
      candidates.push_back(std::move(*candidate));
    } else {
      Add({.name = name, .version = {}, .status = candidate.status(), .is_registered = false});
    }
  }
  if (subdirectories.empty()) {
    logging::Warning("the repository has no models", {{"repository", root.string()}});
  } else if (!has_models) {
    Add({.name = root.string(),
         .version = {},
         .status = NotFound("no models found in " + root.string()),
         .is_registered = false});
  }
  LoadCandidates(std::move(candidates));
  Publish();
}

void Repository::AddRepository(const fs::path& dir) {
  const std::lock_guard lock(control_mutex_);
  places_.AddRoot(FindRepository(dir).value_or(dir));
}

// Once for all repositories that have it.
void Repository::AddAmbiguous(const std::string& name) {
  const bool is_known = std::any_of(entries_.begin(), entries_.end(),
                                    [&](const ModelEntry& entry) { return entry.name == name; });
  if (!is_known) Add({.name = name, .version = {}, .status = InvalidArgument(kAmbiguous)});
}

void Repository::LoadCandidates(std::vector<Candidate> candidates) {
  loader_.FindPartners(candidates);
  // Engines first, since they know what the others leave open; pipelines last, each behind its
  // steps.
  for (const ModelKind kind :
       {ModelKind::kLlm, ModelKind::kPreprocessing, ModelKind::kPostprocessing,
        ModelKind::kConformance, ModelKind::kLlmApi, ModelKind::kEnsemble, ModelKind::kBls,
        ModelKind::kUnknown}) {
    const std::vector<Candidate*> ordered = InStepOrder(candidates, kind);
    if (kind == ModelKind::kConformance) {  // they need nobody
      LoadSideBySide(ordered);
      continue;
    }
    for (Candidate* candidate : ordered) {
      if (const Status found = FindSteps(*candidate); !found.ok()) {
        Add({.name = candidate->parsed.config.name(),
             .version = {},
             .status = found,
             .is_registered = false});
        continue;
      }
      for (ModelEntry& entry : LoadVersions(*candidate)) Add(std::move(entry));
      Remember(*candidate);
    }
  }
}

// Whether the steps of an ensemble have models, of which none leads back to it.
Status Repository::FindSteps(const Candidate& ensemble) const {
  if (ensemble.kind != ModelKind::kEnsemble || ensemble.is_generated) return Status::Ok();
  const std::string& name = ensemble.parsed.config.name();
  std::string missing;
  for (const auto& step : ensemble.parsed.config.ensemble_scheduling().step()) {
    const std::string& model = step.model_name();
    if (IsKnown(model) || missing.find(model) != std::string::npos) continue;
    missing += (missing.empty() ? "" : ", ") + model;
  }
  if (missing.empty()) return CheckNoCycle(ensemble.parsed.config);
  return InvalidArgument("ensemble " + name +
                         " contains models that are not available or ambiguous: " + missing);
}

Status Repository::CheckNoCycle(const ModelConfig& ensemble) const {
  std::set<std::string> seen;
  std::vector<std::string> left;
  for (const auto& step : ensemble.ensemble_scheduling().step()) {
    if (step.model_name() == ensemble.name()) {
      return CircularEnsembles(ensemble.name(), ensemble.name());
    }
    left.push_back(step.model_name());
  }
  while (!left.empty()) {
    const std::string current = std::move(left.back());
    left.pop_back();
    if (!seen.insert(current).second) continue;
    for (std::string& member : MembersInFile(current, {})) {
      if (member == ensemble.name()) return CircularEnsembles(ensemble.name(), current);
      left.push_back(std::move(member));
    }
  }
  return Status::Ok();
}

void Repository::LoadSideBySide(const std::vector<Candidate*>& candidates) {
  std::vector<std::vector<ModelEntry>> loaded(candidates.size());
  size_t next = 0;
  const auto load = [&] {
    const std::lock_guard lock(control_mutex_);
    while (next < candidates.size()) {
      const size_t index = next++;
      Candidate& candidate = *candidates[index];
      try {
        loaded[index] = LoadVersions(candidate);
      } catch (const std::exception& e) {  // threads, files
        loaded[index] = {{.name = candidate.parsed.config.name(),
                          .version = {},
                          .status = Internal(e.what()),
                          .dir = candidate.dir}};
      }
    }
  };
  {
    const Unlocked unlocked(control_mutex_);
    const size_t num_threads =
        std::min(candidates.size(), static_cast<size_t>(options_.model_load_threads));
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < num_threads; ++i) {
      threads.emplace_back([&load] {
        NameThisThread("load");
        load();
      });
    }
    load();
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    for (ModelEntry& entry : loaded[i]) Add(std::move(entry));
    Remember(*candidates[i]);
  }
}

// Those of one kind; of ensembles each behind those that its steps name.
std::vector<Candidate*> Repository::InStepOrder(std::vector<Candidate>& candidates,
                                                ModelKind kind) {
  std::vector<Candidate*> ordered;
  std::set<std::string> seen;
  const std::function<void(Candidate&)> add = [&](Candidate& candidate) {
    const ModelConfig& config = candidate.parsed.config;
    if (candidate.kind != kind || !seen.insert(config.name()).second) return;
    for (const auto& step : config.ensemble_scheduling().step()) {
      for (Candidate& other : candidates) {
        if (other.parsed.config.name() == step.model_name()) add(other);
      }
    }
    ordered.push_back(&candidate);
  };
  for (Candidate& candidate : candidates) add(candidate);
  return ordered;
}

std::set<std::string> Repository::ValuesInFile(const std::string& name) const {
  std::set<std::string> values;
  const auto dir = places_.Find(name);
  if (!dir) return values;
  const auto parsed = ReadConfig(ConfigFile(*dir, options_.model_config_name), {},
                                 /*may_be_absent=*/true);
  if (!parsed.ok()) return values;
  for (const auto& [key, value] : AllParameters(parsed->config)) values.insert(value);
  return values;
}

std::vector<std::string> Repository::MembersInFile(const std::string& name,
                                                   const LoadOverride& override) const {
  if (!CheckModelName(name).ok()) return {};  // it would lead elsewhere
  const auto dir = places_.Find(name);
  if (!dir && !override.config_json) return {};
  const auto parsed = ReadConfig(ConfigFile(dir.value_or(fs::path()), options_.model_config_name),
                                 override, /*may_be_absent=*/true);
  return parsed.ok() ? MembersOf(parsed->config) : std::vector<std::string>();
}

std::vector<ModelEntry> Repository::LoadVersions(Candidate& candidate) {
  const std::string& name = candidate.parsed.config.name();
  if (candidate.versions.empty()) {
    return {{.name = name,
             .version = {},
             .status = InvalidArgument("at least one version must be available under the version "
                                       "policy of model '" +
                                       name + "'"),
             .dir = candidate.dir}};
  }
  if (candidate.kind == ModelKind::kBls) Publish();  // its warm-up finds its members there
  std::vector<ModelEntry> entries;
  for (const std::string& version : candidate.versions) {
    contract::KeyReport keys;
    const int open_shares = candidate.open_shares ? *candidate.open_shares : 0;
    auto model = loader_.Load(candidate, version, keys);
    for (int retry = 1; !model.ok() && retry <= options_.model_load_retries; ++retry) {
      logging::Warning("model is loaded once more after a failure",
                       {{"model", name},
                        {"version", version},
                        {"retry", retry},
                        {"of", options_.model_load_retries},
                        {"reason", ReasonText(model.status())}});
      keys.clear();
      if (candidate.open_shares) *candidate.open_shares = open_shares;
      model = loader_.Load(candidate, version, keys);
    }
    ModelEntry entry{.name = name,
                     .version = version,
                     .status = {},
                     .is_from_repository = !candidate.is_generated,
                     .dir = candidate.is_generated ? fs::path() : candidate.dir};
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
      report.keys = ReportFields(candidate.kind, candidate.parsed, completed,
                                 options_.rate_limiter != nullptr);
      report.keys.insert(report.keys.end(), keys.begin(), keys.end());
      LogReport(report);
      std::erase_if(reports_, [&](const ModelReport& old) {
        return old.model == report.model && old.version == report.version;
      });
      reports_.push_back(std::move(report));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

void Repository::Remember(const Candidate& candidate) {
  const bool has_members = !MembersOf(candidate.parsed.config).empty();
  sources_[candidate.parsed.config.name()] = {.dir = candidate.dir,
                                              .parsed = candidate.parsed,
                                              .changed = candidate.changed,
                                              .data_files = candidate.data_files,
                                              .files = has_members ? candidate.files : nullptr};
}

void Repository::LoadModelDir(const fs::path& dir) {
  const std::lock_guard lock(control_mutex_);
  // Without a tokenizer the key stays unset: what lacks one does not end the start then.
  const auto tokenizer_of = [](const fs::path& place) {
    return HasTokenizer(place) ? place.string() : std::string();
  };
  GeneratedConfigOptions generated = {.model_dir = dir.string(),
                                      .tokenizer_dir = tokenizer_of(dir),
                                      .decoupled = options_.decoupled,
                                      .exclude_input_in_output = !options_.include_input_in_output};
  const auto load = [&](ModelConfig config, ModelKind kind) {
    Candidate candidate{
        .dir = dir, .parsed = {}, .kind = kind, .versions = {"1"}, .is_generated = true};
    candidate.parsed.config = std::move(config);
    // The engine knows the batch size that the configurations state.
    if (kind == ModelKind::kLlm) candidate.parsed.unfilled = {"max_batch_size"};
    for (ModelEntry& entry : LoadVersions(candidate)) Add(std::move(entry));
  };
  load(LlmConfig(generated), ModelKind::kLlm);
  if (const LoadedLlm* loaded = loader_.LlmOf("tensorrt_llm")) {
    generated.max_batch_size = loaded->max_batch_size;
    generated.tokenizer_dir = tokenizer_of(loaded->tokenizer_dir);
  }
  load(PreprocessingConfig(generated), ModelKind::kPreprocessing);
  load(PostprocessingConfig(generated), ModelKind::kPostprocessing);
  load(EnsembleConfig(generated), ModelKind::kEnsemble);
  Publish();
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
  entry.name_space = name_space_;
  LogEntry(entry);
  Guard(entry);
  entries_.push_back(std::move(entry));
}

}  // namespace inflight::serving
