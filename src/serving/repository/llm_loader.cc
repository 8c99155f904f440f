// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/llm_loader.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "contract/llm_parameters.h"
#include "contract/parameter_values.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelConfig;

// Where several LLMs leave their share of the device's memory open, they get equal ones: each takes
// its part of what the earlier ones left.
void ShareMemory(const Candidate& candidate, contract::LlmParameters& parameters,
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

// The queue of the executor is the one that `dynamic_batching` describes.
void SetQueue(const ModelConfig& config, ExecutorOptions& options) {
  const auto& batching = config.dynamic_batching();
  const auto max_queue = batching.default_queue_policy().max_queue_size();
  if (max_queue > 0) options.max_queue_size = static_cast<int>(std::min(max_queue, 1U << 20));
  const auto max_delay = batching.max_queue_delay_microseconds();
  if (max_delay > 0)
    options.max_queue_delay_us = static_cast<int64_t>(std::min<uint64_t>(max_delay, INT64_MAX));
}

// Where the configuration leads, or its version's directory.
Result<fs::path> EngineDirOf(const Candidate& candidate, const std::string& version,
                             const std::string& named, const LlmLoadOptions& options) {
  if (named.empty()) return FindEngine(candidate.dir / version, /*is_named=*/false);
  ASSIGN_OR_RETURN(fs::path dir, ResolveNamed(candidate, "gpt_model_path", named));
  if (options.fetch) {
    ASSIGN_OR_RETURN(dir, options.fetch(dir));
  }
  return FindEngine(dir, /*is_named=*/true);
}

// Whose texts guides are made of: the tokenizer beside the engine, else that of the key; empty:
// neither is there.
Result<fs::path> TokenizerOf(const Candidate& candidate, const std::string& named,
                             const LoadedEngine& engine, contract::KeyReport& keys) {
  const bool is_beside = HasTokenizer(engine.tokenizer_dir);
  if (is_beside || named.empty()) {
    if (is_beside)
      contract::NoteIgnored("tokenizer_dir", "the engine has a tokenizer beside it", &keys);
    return is_beside ? engine.tokenizer_dir : fs::path();
  }
  ASSIGN_OR_RETURN(const fs::path dir, ResolveNamed(candidate, "tokenizer_dir", named));
  if (HasTokenizer(dir)) return dir;
  contract::NoteIgnored("tokenizer_dir", "no tokenizer is there", &keys);
  return fs::path();
}

void NoteDevice(const contract::LlmParameters& parameters, LoadedEngine& engine,
                contract::KeyReport& keys) {
  if (const auto& gpus = parameters.gpu_device_ids;
      !gpus.empty() && engine.device != "cuda:" + std::to_string(gpus.front())) {
    contract::NoteIgnored("gpu_device_ids", "--device says where models run", &keys);
  }
  if (!engine.backend.has_processes) {
    for (const char* key : {"executor_worker_path", "worker_path"})
      contract::NoteIgnored(key, "there are no worker processes", &keys);
    if (!parameters.participant_ids.empty())
      contract::NoteIgnored("participant_ids", "the server computes the model alone", &keys);
  }
  constexpr std::string_view kCuda = "cuda:";
  if (engine.device.starts_with(kCuda)) {
    engine.backend.gpu = std::strtoll(engine.device.c_str() + kCuda.size(), nullptr, 10);
  }
}

}  // namespace

Result<LoadedLlmModel> LoadLlmModel(const Candidate& candidate, const std::string& version,
                                    LlmLoadOptions options, const EngineLoader& load,
                                    contract::KeyReport& keys) {
  ModelConfig config = candidate.parsed.config;
  SetQueue(config, options.executor);
  ASSIGN_OR_RETURN(auto parameters,
                   contract::ParseLlmParameters(AllParameters(config), options.executor, &keys));
  for (const std::string& warning : parameters.warnings) {
    logging::Warning(warning, {{"model", config.name()}});
  }
  ASSIGN_OR_RETURN(const fs::path engine_dir,
                   EngineDirOf(candidate, version, parameters.engine_dir, options));
  ShareMemory(candidate, parameters, keys);
  auto loaded = load(engine_dir, config.name() + "/" + version, parameters.executor,
                     {.gpus = parameters.gpu_device_ids,
                      .participants = parameters.participant_ids,
                      .worker_program = parameters.worker_program});
  contract::NoteRefusal(loaded.status(), &keys);
  ASSIGN_OR_RETURN(LoadedEngine engine, std::move(loaded));
  NoteDevice(parameters, engine, keys);

  const ExecutorLimits& limits = engine.backend.executor->limits();
  if (candidate.parsed.IsUnfilled("max_batch_size")) {
    config.set_max_batch_size(limits.max_batch_size);
  }
  if (contract::IsUnfilled(config.backend())) config.set_backend("tensorrtllm");
  NormalizeModelConfig(config);
  ASSIGN_OR_RETURN(const LogitsTypes logits_types, LogitsTypesOf(config));
  const int max_beam_width = contract::MaxBeamWidth(parameters, limits);
  // Ids were judged from 0.16 on, end ids from 0.18 on.
  const int release = ProfileOf(config).release;
  const bool is_upstreams = !candidate.is_generated && IsUpstreams(config);
  contract::LlmRequestDefaults defaults = {
      .decoupled = config.model_transaction_policy().decoupled(),
      .exclude_input_in_output = parameters.exclude_input_in_output,
      .normalize_log_probs = parameters.normalize_log_probs,
      .max_beam_width = max_beam_width,
      .decoding_mode = contract::ResolveDecodingMode(parameters.decoding_mode, max_beam_width,
                                                     engine.has_medusa, &keys),
      .end_ids = options.end_ids_are_alike ? engine.backend.end_ids : std::vector<TokenId>(),
      .clamps_input_ids = is_upstreams && release < 16,
      .takes_any_end_id = release < 18,
      .repeats_context_logits = is_upstreams};
  if (candidate.is_generated) {
    defaults.own = contract::OwnRules{parameters::ReadModelDefaultsOrWarn(engine.tokenizer_dir)};
    if (const std::string said = defaults.own->model.ToString(); !said.empty())
      logging::Info("generation_config.json says what requests leave open", {{"defaults", said}});
  }
  engine.backend.prompt_tables = options.prompt_tables;
  engine.backend.iterations = {
      .period_ms = parameters.stats_check_period_ms,
      .has_records = parameters.executor.iter_stats_max_iterations > 0,
      .has_request_records = parameters.executor.request_stats_max_iterations > 0};
  engine.backend.adapters = std::move(options.adapters);
  ASSIGN_OR_RETURN(const fs::path texts_dir,
                   TokenizerOf(candidate, parameters.tokenizer_dir, engine, keys));
  if (options.text_pool != nullptr && !texts_dir.empty()) {
    engine.backend.guides =
        std::make_shared<GuideCache>([texts_dir] { return Tokenizer::Load(texts_dir); });
  }
  engine.backend.text_pool = std::move(options.text_pool);
  return LoadedLlmModel{
      .model = std::make_shared<LlmModel>(std::move(config), version, std::move(engine.backend),
                                          defaults, logits_types),
      .tokenizer_dir = std::move(engine.tokenizer_dir),
      .stats_check_period_ms = parameters.stats_check_period_ms};
}

}  // namespace inflight::serving
