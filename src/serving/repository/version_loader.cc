// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/version_loader.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "artifact/hub_cache.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "contract/llm_parameters.h"
#include "contract/parameter_values.h"
#include "contract/text_parameters.h"
#include "object_store/address.h"
#include "object_store/fetch_model.h"
#include "serving/conformance/conformance.h"
#include "serving/instances/instance_model.h"
#include "serving/instances/rate_limiter.h"
#include "serving/repository/llm_loader.h"
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
                             std::mutex& mutex, FindModel find,
                             std::shared_ptr<const PublishedTable> published)
    : options_(options),
      load_(std::move(load)),
      text_pool_(std::move(text_pool)),
      name_space_(std::move(name_space)),
      mutex_(mutex),
      find_(std::move(find)),
      published_(std::move(published)) {}

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

Result<fs::path> VersionLoader::Fetch(const fs::path& path, std::string_view field) const {
  if (!object_store::IsAddress(path.string())) return path;
  const Unlocked unlocked(mutex_);
  auto fetched = object_store::FetchModel(path.string(), options_.remote);
  if (!fetched.ok()) return fetched.status().WithPrefix(field);
  return fetched;
}

Result<fs::path> VersionLoader::FindModelDir(const fs::path& named) const {
  if (!options_.find_model) return artifact::ResolveModelDir(named);
  const Unlocked unlocked(mutex_);
  return options_.find_model(named);
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
    case ModelKind::kLlmApi:
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
    case ModelKind::kLlmApi:
      return LoadLlmApi(candidate, version);
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

Result<std::shared_ptr<Model>> VersionLoader::LoadLlm(const Candidate& candidate,
                                                      const std::string& version,
                                                      contract::KeyReport& keys) {
  const EngineLoader load = [this](const fs::path& dir, const std::string& owner,
                                   const ExecutorOptions& options, const AskedPlace& place) {
    const Unlocked unlocked(mutex_);
    return load_(dir, owner, options, place);
  };
  const auto fetch = [this](const fs::path& path) { return Fetch(path, "gpt_model_path"); };
  ASSIGN_OR_RETURN(LoadedLlmModel loaded, LoadLlmModel(candidate, version,
                                                       {.executor = options_.open.executor,
                                                        .adapters = options_.adapters,
                                                        .prompt_tables = options_.prompt_tables,
                                                        .text_pool = text_pool_,
                                                        .fetch = fetch},
                                                       load, keys));
  LlmModel& model = *loaded.model;
  loaded_llms_[model.name()] = {.max_batch_size = model.config().max_batch_size(),
                                .vocab_size = model.executor().limits().vocab_size,
                                .max_input_len = model.executor().limits().max_input_len,
                                .tokenizer_dir = std::move(loaded.tokenizer_dir)};
  return std::shared_ptr<Model>(std::move(loaded.model));
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
