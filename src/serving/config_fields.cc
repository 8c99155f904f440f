// SPDX-License-Identifier: Apache-2.0
#include "serving/config_fields.h"

#include <string>
#include <string_view>
#include <utility>

#include "contract/parameter_values.h"

namespace inflight::serving {
namespace {

using contract::KeyEffect;
using contract::KeyLine;
using contract::KeyReport;
using contract::KeySource;
using ::inference::ModelConfig;
using ::inference::ModelInstanceGroup;

constexpr char kNoBatcher[] =
    "requests join the running batch between steps, none waits to fill one";
constexpr char kNoInstances[] = "requests run concurrently without instances";

// Collects the lines of one configuration.
class Lines {
 public:
  Lines(const ModelConfig& config, KeyReport& report) : config_(config), report_(report) {}

  void Honoured(std::string key, std::string value, KeySource source, std::string remark = {}) {
    Add(std::move(key), std::move(value), source, KeyEffect::kHonoured, std::move(remark));
  }
  void Ignored(std::string key, std::string value, std::string why,
               KeySource source = KeySource::kFile) {
    Add(std::move(key), std::move(value), source, KeyEffect::kIgnored, std::move(why));
  }
  void Refused(const std::string& key, std::string value, const std::string& remedy = {}) {
    std::string why = key + " of model '" + config_.name() + "' is not supported yet";
    if (!remedy.empty()) why += " (" + remedy + ")";
    Add(key, std::move(value), KeySource::kFile, KeyEffect::kRefused, std::move(why));
  }

 private:
  void Add(std::string key, std::string value, KeySource source, KeyEffect effect,
           std::string reason) {
    report_.push_back({std::move(key), std::move(value), source, effect, std::move(reason)});
  }

  const ModelConfig& config_;
  KeyReport& report_;
};

std::string BoolText(bool value) { return value ? "true" : "false"; }

void BatchSize(const ParsedModelConfig& parsed, const ModelConfig& completed, Lines& lines) {
  const std::string value = std::to_string(completed.max_batch_size());
  if (parsed.IsUnfilled("max_batch_size")) {
    lines.Honoured("max_batch_size", value, KeySource::kAuto, "left unfilled; the engine's");
  } else {
    lines.Honoured("max_batch_size", value,
                   parsed.config.max_batch_size() == 0 ? KeySource::kDefault : KeySource::kFile);
  }
}

void Decoupled(ModelKind kind, const ParsedModelConfig& parsed, const ModelConfig& completed,
               Lines& lines) {
  if (kind != ModelKind::kLlm && kind != ModelKind::kBls && kind != ModelKind::kEnsemble) return;
  const std::string value = BoolText(completed.model_transaction_policy().decoupled());
  const bool is_unfilled = parsed.IsUnfilled("decoupled");
  if (kind == ModelKind::kEnsemble) {
    lines.Honoured("decoupled", value, KeySource::kAuto, "the LLM's");
  } else if (parsed.config.has_model_transaction_policy() && !is_unfilled) {
    lines.Honoured("decoupled", value, KeySource::kFile);
  } else if (kind == ModelKind::kBls) {
    lines.Honoured("decoupled", value, KeySource::kAuto, "left unfilled; the LLM's");
  } else {
    lines.Honoured("decoupled", value, KeySource::kDefault, is_unfilled ? "left unfilled" : "");
  }
}

void Batching(ModelKind kind, const ParsedModelConfig& parsed, const ModelConfig& completed,
              Lines& lines) {
  const auto& batching = parsed.config.dynamic_batching();
  if (!parsed.config.has_dynamic_batching()) return;
  std::string sizes;
  for (const int size : completed.dynamic_batching().preferred_batch_size()) {
    sizes += (sizes.empty() ? "" : " ") + std::to_string(size);
  }
  lines.Ignored("preferred_batch_size", sizes, kNoBatcher,
                batching.preferred_batch_size_size() > 0 ? KeySource::kFile : KeySource::kAuto);
  if (batching.max_queue_delay_microseconds() > 0 && kind == ModelKind::kLlm) {
    lines.Honoured("max_queue_delay_microseconds",
                   std::to_string(batching.max_queue_delay_microseconds()), KeySource::kFile);
  } else if (batching.max_queue_delay_microseconds() > 0) {
    lines.Ignored("max_queue_delay_microseconds",
                  std::to_string(batching.max_queue_delay_microseconds()), kNoBatcher);
  } else if (parsed.IsUnfilled("max_queue_delay_microseconds")) {
    lines.Honoured("max_queue_delay_microseconds", "0", KeySource::kDefault, "left unfilled");
  }
  const auto& policy = batching.default_queue_policy();
  if (parsed.IsUnfilled("max_queue_size")) {
    lines.Honoured("max_queue_size", "the queue's own size", KeySource::kDefault, "left unfilled");
  } else if (policy.max_queue_size() > 0 && kind == ModelKind::kLlm) {
    lines.Honoured("max_queue_size", std::to_string(policy.max_queue_size()), KeySource::kFile);
  } else if (policy.max_queue_size() > 0) {
    lines.Ignored("max_queue_size", std::to_string(policy.max_queue_size()), kNoInstances);
  }
  if (batching.preserve_ordering()) lines.Refused("preserve_ordering", "true");
  if (batching.priority_queue_policy_size() > 0) lines.Refused("priority_queue_policy", "set");
  if (policy.default_timeout_microseconds() > 0) {
    lines.Refused("default_timeout_microseconds",
                  std::to_string(policy.default_timeout_microseconds()));
  }
}

void Instances(ModelKind kind, const ParsedModelConfig& parsed, Lines& lines) {
  if (parsed.IsUnfilled("count")) {
    lines.Honoured("instance_group.count", "1", KeySource::kDefault, "left unfilled");
  }
  for (const auto& group : parsed.config.instance_group()) {
    const std::string count = std::to_string(group.count());
    if (group.count() > 1 && kind == ModelKind::kLlm) {
      lines.Refused(
          "instance_group.count", count,
          "one executor batches all requests; set it to 1, or copy the model's directory");
    } else if (group.count() > 1) {
      lines.Ignored("instance_group.count", count, kNoInstances);
    }
    if (group.kind() == ModelInstanceGroup::KIND_GPU || group.gpus_size() > 0) {
      lines.Ignored("instance_group.kind", "KIND_GPU", "this server runs on the CPU");
    }
    if (group.has_rate_limiter()) {
      lines.Ignored("instance_group.rate_limiter", "set", "rate limiting is off");
    }
  }
}

// What other runtimes of Triton's models need.
void Others(const ModelConfig& config, Lines& lines) {
  if (config.has_sequence_batching()) lines.Refused("sequence_batching", "set");
  if (config.response_cache().enable()) lines.Refused("response_cache", "true");
  if (config.model_warmup_size() > 0) lines.Refused("model_warmup", "set");
  if (config.batch_input_size() > 0) lines.Refused("batch_input", "set");
  if (config.batch_output_size() > 0) lines.Refused("batch_output", "set");
  if (config.has_model_repository_agents()) lines.Refused("model_repository_agents", "set");
  constexpr char kOther[] = "for other runtimes only";
  if (!config.default_model_filename().empty()) {
    lines.Ignored("default_model_filename", config.default_model_filename(), kOther);
  }
  if (config.has_optimization()) lines.Ignored("optimization", "set", kOther);
  if (config.has_model_operations()) lines.Ignored("model_operations", "set", kOther);
  if (!config.runtime().empty()) lines.Ignored("runtime", config.runtime(), kOther);
  if (config.metric_tags_size() > 0) {
    lines.Ignored("metric_tags", "set", "the families of the metrics page are fixed");
  }
  if (config.has_model_metrics()) {
    lines.Ignored("model_metrics", "set", "the families of the metrics page are fixed");
  }
  if (config.ensemble_scheduling().max_inflight_requests() > 0) {
    lines.Ignored("max_inflight_requests",
                  std::to_string(config.ensemble_scheduling().max_inflight_requests()),
                  "steps of a request run one after the other");
  }
}

}  // namespace

ModelKind KindOf(const ModelConfig& config) {
  if (config.platform() == "ensemble" || config.has_ensemble_scheduling()) {
    return ModelKind::kEnsemble;
  }
  const auto maps = [&](const char* input, const char* output) {
    return HasInput(config, input) && HasOutput(config, output);
  };
  if (maps("input_ids", "output_ids")) return ModelKind::kLlm;
  if (maps("QUERY", "INPUT_ID")) return ModelKind::kPreprocessing;
  if (maps("TOKENS_BATCH", "OUTPUT")) return ModelKind::kPostprocessing;
  if (maps("text_input", "text_output")) return ModelKind::kBls;
  return ModelKind::kUnknown;
}

KeyReport ReportFields(ModelKind kind, const ParsedModelConfig& parsed,
                       const ModelConfig& completed) {
  KeyReport report;
  Lines lines(parsed.config, report);
  if (contract::IsUnfilled(parsed.config.backend()) && kind == ModelKind::kLlm) {
    lines.Honoured("backend", "tensorrtllm", KeySource::kAuto, "left unfilled");
  }
  BatchSize(parsed, completed, lines);
  Decoupled(kind, parsed, completed, lines);
  if (parsed.IsUnfilled("data_type")) {
    lines.Honoured("data_type", "the template's", KeySource::kDefault, "left unfilled");
  }
  Batching(kind, parsed, completed, lines);
  Instances(kind, parsed, lines);
  Others(parsed.config, lines);
  return report;
}

Status CheckFields(ModelKind kind, const ParsedModelConfig& parsed) {
  for (const KeyLine& line : ReportFields(kind, parsed, parsed.config)) {
    if (line.effect == KeyEffect::kRefused) return Unimplemented(line.reason);
  }
  return Status::Ok();
}

}  // namespace inflight::serving
