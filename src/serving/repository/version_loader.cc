// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/version_loader.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "contract/llm_parameters.h"
#include "contract/parameter_values.h"
#include "contract/text_parameters.h"
#include "serving/conformance/conformance.h"
#include "serving/instances/instance_model.h"
#include "serving/instances/rate_limiter.h"
#include "serving/repository/model_claims.h"
#include "serving/repository/prepare_model.h"
#include "serving/repository/validate_config.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelConfig;

}  // namespace

VersionLoader::VersionLoader(const ServerOptions& options, EngineLoader load,
                             std::shared_ptr<WorkerPool> text_pool, std::string name_space,
                             std::mutex& mutex, FindModel find)
    : options_(options),
      load_(std::move(load)),
      text_pool_(std::move(text_pool)),
      name_space_(std::move(name_space)),
      mutex_(mutex),
      find_(std::move(find)) {}

// Which LLM each text model and pipeline belongs to, and how many LLMs leave their memory open.
void VersionLoader::FindPartners(std::vector<Candidate>& candidates) {
  const auto is_llm = [&](const std::string& name) {
    return std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
      return c.kind == ModelKind::kLlm && c.parsed.config.name() == name;
    });
  };
  const auto open_shares = std::make_shared<int>(0);
  for (Candidate& candidate : candidates) {
    const ModelConfig& config = candidate.parsed.config;
    candidate.open_shares = open_shares;
    if (candidate.kind == ModelKind::kLlm) {
      const auto parsed =
          contract::ParseLlmParameters(AllParameters(config), options_.open.executor);
      if (parsed.ok() && !parsed->has_memory_share) {
        *open_shares += static_cast<int>(candidate.versions.size());
      }
      continue;
    }
    if (candidate.kind != ModelKind::kEnsemble && candidate.kind != ModelKind::kBls) continue;
    const std::vector<std::string> members = MembersOf(config);
    const auto llm = std::find_if(members.begin(), members.end(), is_llm);
    if (llm == members.end()) continue;
    llm_names_.emplace(config.name(), *llm);
    for (const std::string& member : members) llm_names_.emplace(member, *llm);
  }
}

Status VersionLoader::CheckInstances(const ModelConfig& config) const {
  RETURN_IF_ERROR(ValidateInstances(config));
  return options_.rate_limiter == nullptr ? Status::Ok() : options_.rate_limiter->Check(config);
}

Result<std::shared_ptr<Model>> VersionLoader::Load(const Candidate& candidate,
                                                   const std::string& version,
                                                   contract::KeyReport& keys) {
  const int64_t started_ns = Clock::System().NowNs();
  ASSIGN_OR_RETURN(auto model, LoadVersion(candidate, version, keys));
  {
    const Unlocked unlocked(mutex_);
    RETURN_IF_ERROR(PrepareModel(candidate, options_, name_space_, *model));
  }
  model->SetLoadSeconds(static_cast<double>(Clock::System().NowNs() - started_ns) / 1e9);
  return model;
}

// The lines of a model that is not loaded because of its fields.
void VersionLoader::ReportParameters(const Candidate& candidate, contract::KeyReport& keys) const {
  const auto parameters = AllParameters(candidate.parsed.config);
  switch (candidate.kind) {
    case ModelKind::kLlm:
      (void)contract::ParseLlmParameters(parameters, options_.open.executor, &keys);
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
    case ModelKind::kConformance:
    case ModelKind::kEnsemble:
    case ModelKind::kUnknown:
      break;
  }
}

Result<std::shared_ptr<Model>> VersionLoader::LoadVersion(const Candidate& candidate,
                                                          const std::string& version,
                                                          contract::KeyReport& keys) {
  const ModelConfig& config = candidate.parsed.config;
  Status fields = ValidateTensors(WithAnyBatchSize(candidate.parsed));
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
    case ModelKind::kConformance:
      return LoadConformance(candidate, version);
    case ModelKind::kEnsemble:
      return LoadEnsemble(candidate, version);
    case ModelKind::kBls:
      return LoadBls(candidate, version, keys);
    case ModelKind::kUnknown:
      break;
  }
  // Only these bring models of ours, which their tensors tell apart.
  const std::string& backend = config.backend();
  if (!backend.empty() && backend != "python" && backend != "tensorrtllm") {
    return InvalidArgument("unable to find backend library for backend '" + backend +
                           "', try specifying runtime on the model configuration.");
  }
  return Unimplemented("model '" + config.name() + "' of backend '" +
                       (backend.empty() ? config.platform() : backend) +
                       "' is none of preprocessing, tensorrt_llm, postprocessing, ensemble and "
                       "tensorrt_llm_bls, which are recognised by their tensors");
}

// Where several LLMs leave their share of the device's memory open, they get equal ones: each takes
// its part of what the earlier ones left.
void VersionLoader::ShareMemory(const Candidate& candidate, contract::LlmParameters& parameters,
                                contract::KeyReport& keys) {
  if (parameters.has_memory_share || !candidate.open_shares || *candidate.open_shares == 0) return;
  const int models = (*candidate.open_shares)--;
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

Result<std::shared_ptr<Model>> VersionLoader::LoadLlm(const Candidate& candidate,
                                                      const std::string& version,
                                                      contract::KeyReport& keys) {
  ModelConfig config = candidate.parsed.config;
  ExecutorOptions base = options_.open.executor;
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
  fs::path dir = candidate.dir / version;
  const std::string& named = parameters.engine_dir;
  if (!named.empty()) {
    ASSIGN_OR_RETURN(dir, ResolveNamed(candidate, "gpt_model_path", named));
  }
  ASSIGN_OR_RETURN(const fs::path engine_dir, FindEngine(dir, !named.empty()));
  ShareMemory(candidate, parameters, keys);
  auto loaded = [&] {
    const Unlocked unlocked(mutex_);
    return load_(engine_dir, config.name() + "/" + version, parameters.executor,
                 parameters.gpu_device_id);
  }();
  contract::NoteRefusal(loaded.status(), &keys);
  ASSIGN_OR_RETURN(LoadedEngine engine, std::move(loaded));
  const ExecutorLimits& limits = engine.backend.executor->limits();
  if (const auto gpu = parameters.gpu_device_id;
      gpu && engine.device != "cuda:" + std::to_string(*gpu)) {
    contract::NoteIgnored("gpu_device_ids", "--device says where models run", &keys);
  }

  if (candidate.parsed.IsUnfilled("max_batch_size")) {
    config.set_max_batch_size(limits.max_batch_size);
  }
  if (contract::IsUnfilled(config.backend())) config.set_backend("tensorrtllm");
  NormalizeModelConfig(config);
  ASSIGN_OR_RETURN(const LogitsTypes logits_types, LogitsTypesOf(config));
  const int max_beam_width = contract::MaxBeamWidth(parameters, limits);
  const contract::LlmRequestDefaults defaults = {
      .decoupled = config.model_transaction_policy().decoupled(),
      .exclude_input_in_output = parameters.exclude_input_in_output,
      .normalize_log_probs = parameters.normalize_log_probs,
      .max_beam_width = max_beam_width,
      .decoding_mode =
          contract::ResolveDecodingMode(parameters.decoding_mode, max_beam_width, &keys)};
  const fs::path tokenizer_dir = engine.tokenizer_dir;
  constexpr std::string_view kCuda = "cuda:";
  if (engine.device.starts_with(kCuda)) {
    engine.backend.gpu = std::strtoll(engine.device.c_str() + kCuda.size(), nullptr, 10);
  }
  engine.backend.iterations = {
      .period_ms = parameters.stats_check_period_ms,
      .has_records = parameters.executor.iter_stats_max_iterations > 0,
      .has_request_records = parameters.executor.request_stats_max_iterations > 0};
  auto model = std::make_shared<LlmModel>(std::move(config), version, std::move(engine.backend),
                                          defaults, logits_types);
  loaded_llms_[model->name()] = {.max_batch_size = model->config().max_batch_size(),
                                 .vocab_size = model->executor().limits().vocab_size,
                                 .max_input_len = model->executor().limits().max_input_len,
                                 .tokenizer_dir = tokenizer_dir};
  return std::shared_ptr<Model>(std::move(model));
}

Result<std::shared_ptr<Model>> VersionLoader::LoadConformance(const Candidate& candidate,
                                                              const std::string& version) const {
  const Unlocked unlocked(mutex_);
  ModelConfig config = candidate.parsed.config;
  RateLimiter* const limiter = options_.rate_limiter.get();
  NormalizeModelConfig(config);
  RETURN_IF_ERROR(CheckInstances(config));
  ASSIGN_OR_RETURN(auto executable, MakeConformance(config));
  ASSIGN_OR_RETURN(auto states, SequenceStates::Make(config, candidate.dir));
  return std::shared_ptr<Model>(InstanceModel::Create(std::move(config), version,
                                                      std::move(executable), Clock::System(),
                                                      limiter, std::move(states)));
}

}  // namespace inflight::serving
