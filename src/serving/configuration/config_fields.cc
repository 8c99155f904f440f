// SPDX-License-Identifier: Apache-2.0
#include "serving/configuration/config_fields.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "contract/llm_api.h"
#include "contract/parameter_values.h"

namespace inflight::serving {
namespace {

using contract::KeyEffect;
using contract::KeyLine;
using contract::KeyReport;
using contract::KeySource;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::inference::ModelConfig;
using ::inference::ModelInstanceGroup;
using ::inference::ModelQueuePolicy;

constexpr std::string_view kNoBatcher =
    "requests join the running batch between steps, none waits to fill one";
constexpr std::string_view kNoInstances = "requests run concurrently without instances";
constexpr std::string_view kNoQueue = "requests of this model wait in no queue";
constexpr std::string_view kNoTimeout = "without default_timeout_microseconds nothing times out";
constexpr std::string_view kOther = "for other runtimes only";
constexpr std::string_view kByDevice = "--device says where models run";

// Fields whose line does not depend on their value: where the file has them, they are so.
struct PlainField {
  std::string_view path;
  KeyEffect effect = KeyEffect::kHonoured;
  std::string_view why = {};  // ignored
};

constexpr auto kPlain = std::to_array<PlainField>({
    {"name"},
    {"platform"},
    {"version_policy"},
    {"input"},
    {"output"},
    {"ensemble_scheduling.step"},
    {"ensemble_scheduling.max_inflight_requests"},
    {"cc_model_filenames", KeyEffect::kIgnored, kOther},
    {"model_operations", KeyEffect::kIgnored, kOther},
    {"optimization", KeyEffect::kIgnored, kOther},
    {"runtime", KeyEffect::kIgnored, kOther},
    {"metric_tags"},
    {"model_metrics"},
    {"model_warmup"},
    {"response_cache"},
    {"instance_group.name", KeyEffect::kIgnored, kNoInstances},
    {"instance_group.gpus", KeyEffect::kIgnored, kByDevice},
    {"instance_group.host_policy", KeyEffect::kIgnored, kNoInstances},
    {"instance_group.passive", KeyEffect::kIgnored, kNoInstances},
    {"instance_group.profile", KeyEffect::kIgnored, kOther},
    {"instance_group.secondary_devices", KeyEffect::kIgnored, kOther},
    {"batch_input", KeyEffect::kRefused},
    {"batch_output", KeyEffect::kRefused},
    {"dynamic_batching.priority_queue_policy", KeyEffect::kRefused},
    {"model_repository_agents", KeyEffect::kRefused},
    {"sequence_batching", KeyEffect::kRefused},
    {"sequence_batching.state", KeyEffect::kRefused},
    {"sequence_batching.direct.max_queue_delay_microseconds", KeyEffect::kIgnored, kNoBatcher},
    {"sequence_batching.direct.minimum_slot_utilization", KeyEffect::kIgnored, kNoBatcher},
    {"sequence_batching.oldest.max_queue_delay_microseconds", KeyEffect::kIgnored, kNoBatcher},
    {"sequence_batching.oldest.preferred_batch_size", KeyEffect::kIgnored, kNoBatcher},
    {"sequence_batching.oldest.preserve_ordering", KeyEffect::kIgnored, kNoBatcher},
});

// Keys stand in the report as files have them, but for those of instance groups, whose names alone
// say little.
std::string KeyOf(std::string_view path) {
  const bool is_group = path.starts_with("instance_group.");
  return std::string(is_group ? path : path.substr(path.rfind('.') + 1));
}

void AppendText(const Message& message, const FieldDescriptor* field, int index,
                std::string& text) {
  if (!text.empty()) text += " ";
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    const auto* reflection = message.GetReflection();
    text += index < 0 ? reflection->GetString(message, field)
                      : reflection->GetRepeatedString(message, field, index);
  } else {
    std::string value;
    google::protobuf::TextFormat::PrintFieldValueToString(message, field, index, &value);
    text += value;
  }
}

// The value of a field as the file has it; of several with blanks between, of messages their
// number.
void AppendValues(const Message& message, std::string_view path, std::string& text) {
  const size_t dot = std::min(path.find('.'), path.size());
  const auto* field = message.GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
  const auto* reflection = message.GetReflection();
  const int size = field->is_repeated() ? reflection->FieldSize(message, field) : -1;
  const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (dot < path.size() && size < 0) {
    return AppendValues(reflection->GetMessage(message, field), path.substr(dot + 1), text);
  }
  if (is_message && dot == path.size()) {
    text += size < 0 ? "set" : std::to_string(size);
    return;
  }
  if (size < 0) return AppendText(message, field, -1, text);
  for (int i = 0; i < size; ++i) {
    if (is_message) {
      AppendValues(reflection->GetRepeatedMessage(message, field, i), path.substr(dot + 1), text);
    } else {
      AppendText(message, field, i, text);
    }
  }
}

// What InstanceModel does with what the others refuse or ignore.
KeyEffect EffectOf(ModelKind kind, const PlainField& field) {
  const bool runs_on_instances = kind == ModelKind::kConformance;
  const bool is_scheduling = field.path.starts_with("sequence_batching") ||
                             field.path == "dynamic_batching.priority_queue_policy" ||
                             field.path == "instance_group.passive";
  return runs_on_instances && is_scheduling ? KeyEffect::kHonoured : field.effect;
}

// Collects the lines of one configuration.
class Lines {
 public:
  Lines(const ParsedModelConfig& parsed, KeyReport& report) : parsed_(parsed), report_(report) {}

  void Add(std::string key, std::string value, KeySource source, KeyEffect effect,
           std::string_view reason = {}) {
    std::string text(reason);
    if (effect == KeyEffect::kRefused) {
      text = key + " of model '" + parsed_.config.name() + "' is not supported; ";
      text += reason.empty() ? "leave it out" : reason;
    }
    report_.push_back({std::move(key), std::move(value), source, effect, std::move(text)});
  }
  void Honoured(std::string key, std::string value, KeySource source,
                std::string_view remark = {}) {
    Add(std::move(key), std::move(value), source, KeyEffect::kHonoured, remark);
  }
  // As the file has it, where it has it.
  void Field(std::string_view path, KeyEffect effect, std::string_view reason = {}) {
    if (!parsed_.IsWritten(path)) return;
    Add(KeyOf(path), Value(path), KeySource::kFile, effect, reason);
  }

  // What was left open and has no line yet has its default.
  void AddUnfilled() {
    for (const std::string& key : parsed_.unfilled) {
      const bool has_line = std::any_of(report_.begin(), report_.end(), [&](const KeyLine& line) {
        return line.key == key || line.key.ends_with("." + key);
      });
      if (!has_line) Honoured(key, "unset", KeySource::kDefault, "left unfilled");
    }
  }

 private:
  std::string Value(std::string_view path) const {
    std::string text;
    AppendValues(parsed_.config, path, text);
    return text;
  }

  const ParsedModelConfig& parsed_;
  KeyReport& report_;
};

std::string BoolText(bool value) { return value ? "true" : "false"; }

void Backend(ModelKind kind, const ParsedModelConfig& parsed, Lines& lines) {
  const bool has_backend = parsed.IsWritten("backend") || parsed.IsWritten("platform");
  lines.Field("default_model_filename", has_backend ? KeyEffect::kIgnored : KeyEffect::kHonoured,
              has_backend ? kOther : "");
  if (contract::IsUnfilled(parsed.config.backend()) && kind == ModelKind::kLlm) {
    lines.Honoured("backend", "tensorrtllm", KeySource::kAuto, "left unfilled");
  } else {
    lines.Field("backend", KeyEffect::kHonoured, "models are recognised by their tensors");
  }
}

void BatchSize(const ParsedModelConfig& parsed, const ModelConfig& completed, Lines& lines) {
  const std::string value = std::to_string(completed.max_batch_size());
  if (parsed.IsUnfilled("max_batch_size")) {
    lines.Honoured("max_batch_size", value, KeySource::kAuto, "left unfilled; the engine's");
  } else {
    lines.Honoured("max_batch_size", value,
                   parsed.IsWritten("max_batch_size") ? KeySource::kFile : KeySource::kDefault);
  }
}

void Decoupled(ModelKind kind, const ParsedModelConfig& parsed, const ModelConfig& completed,
               Lines& lines) {
  constexpr std::string_view kPath = "model_transaction_policy.decoupled";
  if (kind != ModelKind::kLlm && kind != ModelKind::kBls && kind != ModelKind::kEnsemble) {
    return lines.Field(kPath, KeyEffect::kHonoured);
  }
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

void QueuePolicy(ModelKind kind, const ParsedModelConfig& parsed, Lines& lines) {
  constexpr std::string_view kMaxSize = "dynamic_batching.default_queue_policy.max_queue_size";
  constexpr std::string_view kTimeout =
      "dynamic_batching.default_queue_policy.default_timeout_microseconds";
  constexpr std::string_view kAction = "dynamic_batching.default_queue_policy.timeout_action";
  constexpr std::string_view kOverride =
      "dynamic_batching.default_queue_policy.allow_timeout_override";
  if (kind == ModelKind::kConformance) {
    for (const std::string_view path : {kMaxSize, kTimeout, kAction, kOverride}) {
      lines.Field(path, KeyEffect::kHonoured);
    }
    return;
  }
  if (kind != ModelKind::kLlm) {
    lines.Field(kMaxSize, KeyEffect::kIgnored, kNoInstances);
    for (const std::string_view path : {kTimeout, kAction, kOverride}) {
      lines.Field(path, KeyEffect::kIgnored, kNoQueue);
    }
    return;
  }
  const ModelQueuePolicy& policy = parsed.config.dynamic_batching().default_queue_policy();
  if (parsed.IsUnfilled("max_queue_size")) {
    lines.Honoured("max_queue_size", "the queue's own size", KeySource::kDefault, "left unfilled");
  } else {
    lines.Field(kMaxSize, KeyEffect::kHonoured);
  }
  lines.Field(kTimeout, KeyEffect::kHonoured);
  if (policy.default_timeout_microseconds() == 0) {
    lines.Field(kAction, KeyEffect::kIgnored, kNoTimeout);
    lines.Field(kOverride, KeyEffect::kIgnored, kNoTimeout);
  } else {
    const bool delays = policy.timeout_action() == ModelQueuePolicy::DELAY;
    lines.Field(kAction, delays ? KeyEffect::kRefused : KeyEffect::kHonoured,
                delays ? "set it to REJECT" : "");
    lines.Field(kOverride, KeyEffect::kHonoured);
  }
}

void Batching(ModelKind kind, const ParsedModelConfig& parsed, const ModelConfig& completed,
              Lines& lines) {
  if (!parsed.config.has_dynamic_batching()) return;
  std::string sizes;
  for (const int size : completed.dynamic_batching().preferred_batch_size()) {
    sizes += (sizes.empty() ? "" : " ") + std::to_string(size);
  }
  const bool is_written = parsed.config.dynamic_batching().preferred_batch_size_size() > 0;
  const bool is_llm = kind == ModelKind::kLlm;
  const bool has_batcher = kind == ModelKind::kConformance;
  const bool has_queue = is_llm || has_batcher;
  lines.Add("preferred_batch_size", sizes, is_written ? KeySource::kFile : KeySource::kAuto,
            has_batcher ? KeyEffect::kHonoured : KeyEffect::kIgnored,
            has_batcher ? "" : kNoBatcher);
  const KeyEffect of_queue = has_queue ? KeyEffect::kHonoured : KeyEffect::kIgnored;
  if (parsed.IsUnfilled("max_queue_delay_microseconds")) {
    lines.Honoured("max_queue_delay_microseconds", "0", KeySource::kDefault, "left unfilled");
  } else {
    lines.Field("dynamic_batching.max_queue_delay_microseconds",
                has_queue ? KeyEffect::kHonoured : KeyEffect::kIgnored,
                has_queue ? "" : kNoBatcher);
  }
  const bool in_order = parsed.config.dynamic_batching().preserve_ordering();
  lines.Field("dynamic_batching.preserve_ordering",
              in_order && !has_batcher ? KeyEffect::kRefused : KeyEffect::kHonoured);
  lines.Field("dynamic_batching.priority_levels", of_queue, has_queue ? "" : kNoQueue);
  lines.Field("dynamic_batching.default_priority_level", of_queue, has_queue ? "" : kNoQueue);
  QueuePolicy(kind, parsed, lines);
}

// Responses of a test model are its own: none starts the model again.
void Sequences(const ParsedModelConfig& parsed, Lines& lines) {
  const auto& batching = parsed.config.sequence_batching();
  lines.Field("sequence_batching.iterative_sequence",
              batching.iterative_sequence() ? KeyEffect::kRefused : KeyEffect::kHonoured);
}

void Instances(ModelKind kind, const ParsedModelConfig& parsed, bool has_rate_limiter,
               Lines& lines) {
  bool has_more = false;
  bool has_gpu = false;
  for (const ModelInstanceGroup& group : parsed.config.instance_group()) {
    has_more |= group.count() > 1;
    has_gpu |= group.kind() == ModelInstanceGroup::KIND_GPU;
  }
  if (has_more && kind == ModelKind::kLlm) {
    lines.Field("instance_group.count", KeyEffect::kRefused,
                "one executor batches all requests; set it to 1, or copy the model's directory");
  } else if (has_more && kind != ModelKind::kConformance) {
    lines.Field("instance_group.count", KeyEffect::kIgnored, kNoInstances);
  } else if (parsed.IsUnfilled("count")) {
    lines.Honoured("instance_group.count", "1", KeySource::kDefault, "left unfilled");
  } else {
    lines.Field("instance_group.count", KeyEffect::kHonoured);
  }
  const bool has_instances = kind == ModelKind::kConformance;
  lines.Field("instance_group.rate_limiter",
              has_instances && has_rate_limiter ? KeyEffect::kHonoured : KeyEffect::kIgnored,
              !has_rate_limiter ? "--rate-limit is off"
              : has_instances   ? ""
                                : kNoInstances);
  lines.Field("instance_group.kind", has_gpu ? KeyEffect::kIgnored : KeyEffect::kHonoured,
              has_gpu ? kByDevice : "");
}

// Parameters of models that have none, or take them as they are; those of the others have their own
// table.
void Parameters(ModelKind kind, const ModelConfig& config, Lines& lines) {
  if (kind == ModelKind::kConformance) {
    for (const auto& [key, value] : AllParameters(config)) {
      lines.Honoured(key, value, KeySource::kFile);
    }
  }
  if (kind != ModelKind::kEnsemble && kind != ModelKind::kUnknown) return;
  for (const auto& [key, value] : AllParameters(config)) {
    lines.Add(
        key, value, KeySource::kFile, KeyEffect::kIgnored,
        kind == ModelKind::kEnsemble ? "an ensemble has no parameters" : "the model is not served");
  }
}

}  // namespace

ModelKind KindOf(const ModelConfig& config) {
  if (config.platform() == "ensemble" || config.has_ensemble_scheduling()) {
    return ModelKind::kEnsemble;
  }
  if (config.backend() == "conformance") return ModelKind::kConformance;
  const auto maps = [&](const char* input, const char* output) {
    return HasInput(config, input) && HasOutput(config, output);
  };
  if (maps("input_ids", "output_ids")) return ModelKind::kLlm;
  if (maps("QUERY", "INPUT_ID")) return ModelKind::kPreprocessing;
  if (maps("TOKENS_BATCH", "OUTPUT")) return ModelKind::kPostprocessing;
  const bool has_llm_api_names = std::ranges::any_of(config.input(), [](const auto& input) {
    return input.name().starts_with(contract::kLlmApiPrefix);
  });
  if (has_llm_api_names && maps("text_input", "text_output")) return ModelKind::kLlmApi;
  if (maps("text_input", "text_output")) return ModelKind::kBls;
  return ModelKind::kUnknown;
}

KeyReport ReportFields(ModelKind kind, const ParsedModelConfig& parsed,
                       const ModelConfig& completed, bool has_rate_limiter) {
  KeyReport report;
  Lines lines(parsed, report);
  for (const PlainField& field : kPlain) {
    const KeyEffect effect = EffectOf(kind, field);
    lines.Field(field.path, effect, effect == KeyEffect::kHonoured ? "" : field.why);
  }
  Backend(kind, parsed, lines);
  BatchSize(parsed, completed, lines);
  Decoupled(kind, parsed, completed, lines);
  if (parsed.IsUnfilled("data_type")) {
    lines.Honoured("data_type", "the template's", KeySource::kDefault, "left unfilled");
  }
  Batching(kind, parsed, completed, lines);
  Sequences(parsed, lines);
  Instances(kind, parsed, has_rate_limiter, lines);
  Parameters(kind, parsed.config, lines);
  lines.AddUnfilled();
  return report;
}

Status CheckFields(ModelKind kind, const ParsedModelConfig& parsed) {
  for (const KeyLine& line : ReportFields(kind, parsed, parsed.config)) {
    if (line.effect == KeyEffect::kRefused) return Unimplemented(line.reason);
  }
  return Status::Ok();
}

}  // namespace inflight::serving
