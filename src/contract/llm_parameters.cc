// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_parameters.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "base/letter_case.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "contract/medusa_choices.h"
#include "contract/parameter_table.h"
#include "contract/parameter_values.h"

namespace inflight::contract {
namespace {

using Context = ParameterContext<LlmParameters>;
using Entry = ParameterEntry<LlmParameters>;

constexpr auto* Accept = &AcceptParameter<LlmParameters>;
constexpr auto* RefuseIfSet = &RefuseParameter<LlmParameters>;

void Ignore(std::string why, Context& context) { context.ignored = std::move(why); }

Status RefuseIfTrue(const std::string& value, Context& context) {
  return StrictBool(value).value_or(false) ? NotSupported(value, context) : Status::Ok();
}

Status RefuseUnlessZero(const std::string& value, Context& context) {
  return LeadingInt(value).value_or(0) == 0 ? Status::Ok() : NotSupported(value, context);
}

Status RefuseUnlessOne(const std::string& value, Context& context) {
  return LeadingDouble(value).value_or(1) == 1 ? Status::Ok() : NotSupported(value, context);
}

Status ModelType(const std::string& value, Context& context) {
  if (value == "inflight_batching" || value == "inflight_fused_batching") return Status::Ok();
  if (value == "V1" || value == "v1") {  // its batches run to their end, whatever the policy says
    context.out.executor.scheduler_policy = SchedulerPolicy::kStaticBatch;
    return Status::Ok();
  }
  return InvalidArgument("Invalid gpt_model_type '" + value +
                         "'. Must be v1/inflight_batching/inflight_fused_batching.");
}

Status ModelPath(const std::string& value, Context& context) {
  context.out.engine_dir = value;
  return Status::Ok();
}

Status TokenizerPath(const std::string& value, Context& context) {
  context.out.tokenizer_dir = value;
  return Status::Ok();
}

Status BeamWidth(const std::string& value, Context& context) {
  const int64_t width = LeadingInt(value).value_or(1);
  if (width < 1) {
    return InvalidArgument("max_beam_width: got " + value + ", must be at least 1");
  }
  constexpr int64_t kMany = 1 << 20;  // the engine has less
  context.out.max_beam_width = static_cast<int>(std::min(width, kMany));
  return Status::Ok();
}

constexpr auto kPolicies = std::to_array<std::string_view>(
    {"max_utilization", "guaranteed_no_evict", "static_batch"});  // in the order of the enum
constexpr auto kChunkings =
    std::to_array<std::string_view>({"first_come_first_served", "equal_progress"});

// `value` among `names`, whatever its case, as the enum of that order.
template <typename Enum, auto kMember>
Status Choice(std::span<const std::string_view> names, const std::string& value, Context& context) {
  const std::string lower = AsciiLower(value);
  const auto found = std::find(names.begin(), names.end(), lower);
  if (found == names.end()) {
    WarnDefault(value, context);
  } else {
    context.out.executor.*kMember = static_cast<Enum>(found - names.begin());
  }
  return Status::Ok();
}

Status Policy(const std::string& value, Context& context) {
  return Choice<SchedulerPolicy, &ExecutorOptions::scheduler_policy>(kPolicies, value, context);
}

Status Chunking(const std::string& value, Context& context) {
  return Choice<ChunkingPolicy, &ExecutorOptions::chunking_policy>(kChunkings, value, context);
}

Status FreeMemoryFraction(const std::string& value, Context& context) {
  const auto fraction = LeadingDouble(value);
  if (!fraction) {
    WarnDefault(value, context);
    return Status::Ok();
  }
  if (!(*fraction > 0 && *fraction < 1)) {
    return InvalidArgument("kv_cache_free_gpu_mem_fraction: got " + value +
                           ", must be between 0 and 1, both excluded");
  }
  context.out.executor.kv_cache_free_memory_fraction = *fraction;
  context.out.has_memory_share = true;
  return Status::Ok();
}

Status GpuWeightsFraction(const std::string& value, Context& context) {
  GpuWeights& weights = context.out.executor.gpu_weights;
  if (AsciiLower(value) == "auto") {  // ours
    weights = {.as_many_as_fit = true};
    return Status::Ok();
  }
  const auto fraction = LeadingDouble(value);
  if (!fraction) {
    WarnDefault(value, context);
    return Status::Ok();
  }
  if (!(*fraction >= 0 && *fraction <= 1)) {
    return InvalidArgument("gpu_weights_percent",
                           "got " + value +
                               ", must be between 0 and 1 (the part of the layers' weights that "
                               "stays in the GPU's memory), or auto");
  }
  weights = {.fraction = *fraction};
  return Status::Ok();
}

Status MaxKvTokens(const std::string& value, Context& context) {
  const auto tokens = LeadingInt(value);
  if (!tokens) {
    WarnDefault(value, context);
    return Status::Ok();
  }
  if (*tokens < 1) {
    return InvalidArgument("max_tokens_in_paged_kv_cache: got " + value + ", must be at least 1");
  }
  context.out.executor.max_kv_tokens = *tokens;
  context.out.has_memory_share = true;
  return Status::Ok();
}

Status MaxNumSequences(const std::string& value, Context& context) {
  const auto count = LeadingInt(value);
  if (!count) {
    WarnDefault(value, context);
    return Status::Ok();
  }
  if (*count < 1 || *count > 1'000'000) {
    return InvalidArgument("max_num_sequences: got " + value + ", must be at least 1");
  }
  context.out.executor.max_batch_size = static_cast<int>(*count);
  return Status::Ok();
}

Status IntWithin(const std::string& value, int min, int max, int& out, Context& context) {
  const auto number = LeadingInt(value);
  if (!number) {
    WarnDefault(value, context);
    return Status::Ok();
  }
  if (*number < min || *number > max) {
    return InvalidArgument(std::string(context.key) + ": got " + value + ", must be in [" +
                           std::to_string(min) + ", " + std::to_string(max) + "]");
  }
  out = static_cast<int>(*number);
  return Status::Ok();
}

Status StatsPeriod(const std::string& value, Context& context) {
  constexpr int kMaxMs = 3'600'000;
  return IntWithin(value, 1, kMaxMs, context.out.stats_check_period_ms, context);
}

template <int ExecutorOptions::*kField>
Status NumRecords(const std::string& value, Context& context) {
  constexpr int kMaxRecords = 1 << 20;
  return IntWithin(value, 0, kMaxRecords, context.out.executor.*kField, context);
}

Status DecodingMode(const std::string& value, Context& context) {
  if (const auto mode = FindDecodingMode(value)) {
    context.out.decoding_mode = *mode;
    return Status::Ok();
  }
  for (const std::string_view mode : {"redrafter", "lookahead", "eagle", "explicit_draft_tokens"}) {
    if (value == mode) return NotSupported(value, context, "use top_k_top_p");
  }
  WarnDefault(value, context);
  return Status::Ok();
}

Status MedusaChoices(const std::string& value, Context& context) {
  ASSIGN_OR_RETURN(context.out.executor.medusa_choices, ParseMedusaChoices(value));
  return Status::Ok();
}

// One window for all layers, or a comma list that repeats over them.
Status AttentionWindows(const std::string& value, Context& context) {
  std::vector<int> windows;
  std::string_view rest = value;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (IsUnfilled(part)) continue;  // after the last comma
    const auto window = LeadingInt(part);
    if (!window || *window < 0) {
      WarnDefault(value, context);
      return Status::Ok();
    }
    constexpr int64_t kMany = 1 << 30;  // no sequence is as long
    windows.push_back(static_cast<int>(std::min(*window, kMany)));
  }
  context.out.executor.attention_windows = std::move(windows);
  return Status::Ok();
}

Status SinkTokens(const std::string& value, Context& context) {
  constexpr int kMany = 1 << 30;
  return IntWithin(value, 0, kMany, context.out.executor.sink_tokens, context);
}

Status HostMemory(const std::string& value, Context& context) {
  const auto bytes = LeadingInt(value);
  if (!bytes) {
    WarnDefault(value, context);
    return Status::Ok();
  }
  if (*bytes < 0) {
    return InvalidArgument("kv_cache_host_memory_bytes: got " + value + ", must be at least 0");
  }
  context.out.executor.kv_cache_host_bytes = static_cast<uint64_t>(*bytes);
  return Status::Ok();
}

Status AdapterFraction(const std::string& value, Context& context) {
  const auto fraction = LeadingDouble(value);
  if (!fraction) {
    WarnDefault(value, context);
    return Status::Ok();
  }
  if (!(*fraction >= 0 && *fraction < 1))
    return InvalidArgument("lora_cache_gpu_memory_fraction: got " + value + ", must be in [0, 1)");
  context.out.executor.adapter_memory_fraction = *fraction;
  return Status::Ok();
}

Status AdapterHostMemory(const std::string& value, Context& context) {
  const auto bytes = LeadingInt(value);
  if (!bytes) {
    WarnDefault(value, context);
    return Status::Ok();
  }
  if (*bytes < 0)
    return InvalidArgument("lora_cache_host_memory_bytes: got " + value + ", must be at least 0");
  context.out.executor.adapter_host_bytes = static_cast<uint64_t>(*bytes);
  return Status::Ok();
}

Status MaxAdapterRank(const std::string& value, Context& context) {
  constexpr int kMaxRank = 256;
  return IntWithin(value, 1, kMaxRank, context.out.executor.max_adapter_rank, context);
}

// Blocks of the host pool are only of use in the KV cache.
Status OnboardBlocks(const std::string& value, Context& context) {
  const auto flag = StrictBool(value);
  if (!flag) WarnDefault(value, context);
  context.out.onboards_blocks = flag.value_or(true);
  return Status::Ok();
}

Status Overlap(const std::string& value, Context& context) {
  Ignore(std::string(context.note), context);
  if (StrictBool(value).value_or(false)) {
    context.out.warnings.push_back("enable_trt_overlap has no effect: " + context.ignored);
  }
  return Status::Ok();
}

// "0", "0,1", "0;1,"; none where a part is no id. Upstream's list is the ranks of one engine, and
// of several instances behind each ';'.
std::optional<std::vector<int>> IdList(std::string_view rest) {
  std::vector<int> ids;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of(",;"), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (IsUnfilled(part)) continue;  // after the last comma
    constexpr int64_t kMany = 1 << 20;
    const auto id = LeadingInt(part);
    if (!id || *id < 0 || *id > kMany) return std::nullopt;
    ids.push_back(static_cast<int>(*id));
  }
  return ids;
}

Status DeviceIds(const std::string& value, Context& context) {
  auto ids = IdList(value);
  if (!ids) WarnDefault(value, context);
  if (ids) context.out.gpu_device_ids = *std::move(ids);
  return Status::Ok();
}

Status ParticipantIds(const std::string& value, Context& context) {
  auto ids = IdList(value);
  if (!ids || ids->empty())
    return InvalidArgument(context.key, "got '" + value + "', must be numbers, as 1,2");
  context.out.participant_ids = *std::move(ids);
  return Status::Ok();
}

// Upstream's workers, which its templates name wherever they are or are not, mean the server's own.
Status WorkerPath(const std::string& value, Context& context) {
  constexpr auto kUpstreams =
      std::to_array<std::string_view>({"trtllmExecutorWorker", "triton_tensorrtllm_worker"});
  const std::string_view name = std::string_view(value).substr(value.rfind('/') + 1);
  if (std::ranges::find(kUpstreams, name) != kUpstreams.end()) return Status::Ok();
  std::string& program = context.out.worker_program;
  if (!program.empty() && program != value)
    return InvalidArgument(context.key, "got '" + value + "' beside executor_worker_path '" +
                                            program + "'; leave one of both out");
  program = value;
  return Status::Ok();
}

template <bool LlmParameters::*kField>
Status Flag(const std::string& value, Context& context) {
  const auto flag = StrictBool(value);
  if (!flag) WarnDefault(value, context);
  if (flag) context.out.*kField = *flag;
  return Status::Ok();
}

template <bool ExecutorOptions::*kField>
Status ExecutorFlag(const std::string& value, Context& context) {
  const auto flag = StrictBool(value);
  if (!flag) WarnDefault(value, context);
  if (flag) context.out.executor.*kField = *flag;
  return Status::Ok();
}

// --- values in effect where the file is silent, for the report ---

std::string BoolText(bool value) { return value ? "true" : "false"; }
std::string ShowChunking(const LlmParameters& p) {
  return BoolText(p.executor.enable_chunked_prefill);
}
std::string ShowReuse(const LlmParameters& p) { return BoolText(p.executor.enable_prefix_reuse); }
std::string ShowExclude(const LlmParameters& p) { return BoolText(p.exclude_input_in_output); }
std::string ShowNormalize(const LlmParameters& p) { return BoolText(p.normalize_log_probs); }
std::string ShowPath(const LlmParameters&) { return "the version directory"; }
std::string ShowType(const LlmParameters&) { return "inflight_fused_batching"; }
std::string ShowPolicy(const LlmParameters& p) {
  return std::string(kPolicies.at(static_cast<size_t>(p.executor.scheduler_policy)));
}
std::string ShowMode(const LlmParameters&) { return "auto"; }
std::string ShowBeamWidth(const LlmParameters& p) {
  return p.max_beam_width ? std::to_string(*p.max_beam_width) : "the engine's";
}
std::string ShowMedusaChoices(const LlmParameters&) {
  return "of a model with Medusa heads, 63 nodes";
}
std::string ShowUnset(const LlmParameters&) { return "unset"; }
std::string ShowFraction(const LlmParameters& p) {
  std::string text = std::to_string(p.executor.kv_cache_free_memory_fraction);
  return text.substr(0, text.find_last_not_of('0') + 1);
}
std::string ShowGpuWeights(const LlmParameters& p) {
  if (p.executor.gpu_weights.as_many_as_fit) return "auto";
  std::string text = std::to_string(p.executor.gpu_weights.fraction);
  text.erase(text.find_last_not_of('0') + 1);
  return text.ends_with('.') ? text + "0" : text;
}
std::string ShowKvTokens(const LlmParameters& p) {
  return p.executor.max_kv_tokens ? std::to_string(*p.executor.max_kv_tokens) : "unlimited";
}
std::string ShowSequences(const LlmParameters& p) {
  return p.executor.max_batch_size ? std::to_string(*p.executor.max_batch_size) : "the engine's";
}

std::string ShowHostMemory(const LlmParameters& p) {
  return std::to_string(p.executor.kv_cache_host_bytes);
}
std::string ShowAdapterFraction(const LlmParameters& p) {
  return p.executor.adapter_memory_fraction ? std::to_string(*p.executor.adapter_memory_fraction)
                                            : "0.05, taken when an adapter comes";
}
std::string ShowAdapterHostMemory(const LlmParameters& p) {
  return p.executor.adapter_host_bytes ? std::to_string(*p.executor.adapter_host_bytes)
                                       : "at most 1073741824, taken when an adapter comes";
}
std::string ShowOnboard(const LlmParameters& p) { return BoolText(p.onboards_blocks); }
std::string ShowSinks(const LlmParameters& p) { return std::to_string(p.executor.sink_tokens); }
std::string ShowStatsPeriod(const LlmParameters& p) {
  return std::to_string(p.stats_check_period_ms);
}
template <int ExecutorOptions::*kField>
std::string ShowNumRecords(const LlmParameters& p) {
  return std::to_string(p.executor.*kField);
}

constexpr auto kEntries = std::to_array<Entry>({
    {"FORCE_CPU_ONLY_INPUT_TENSORS", Accept, "tensors are always in host memory"},
    {"batch_scheduler_policy", Policy, {}, ShowPolicy},
    {"cancellation_check_period_ms", Accept,
     "a cancel takes effect at the next step, without polling"},
    {"context_chunking_policy", Chunking},
    {"cross_kv_cache_fraction", RefuseIfSet},
    {"cuda_graph_cache_size", Accept,
     "graphs are recorded per number of rows, within memory planned at load"},
    {"cuda_graph_mode", Accept, "decode steps on a GPU always run as CUDA graphs"},
    {"decoding_mode", DecodingMode, {}, ShowMode},
    {"eagle_choices", RefuseIfSet},
    {"enable_chunked_context",
     ExecutorFlag<&ExecutorOptions::enable_chunked_prefill>,
     {},
     ShowChunking},
    {"enable_context_fmha_fp32_acc", Accept, "attention always accumulates in float32"},
    {"enable_kv_cache_reuse", ExecutorFlag<&ExecutorOptions::enable_prefix_reuse>, {}, ShowReuse},
    {"enable_trt_overlap", Overlap, "steps overlap where the device allows"},
    {"encoder_model_path", RefuseIfSet},
    {"engine_dir", ModelPath},
    {"exclude_input_in_output", Flag<&LlmParameters::exclude_input_in_output>, {}, ShowExclude},
    {"executor_worker_path", WorkerPath},
    {"gpt_model_path", ModelPath, {}, ShowPath},
    {"gpt_model_type", ModelType, {}, ShowType},
    {"gpu_device_ids", DeviceIds},
    {"gpu_weights_percent", GpuWeightsFraction, {}, ShowGpuWeights},
    {"guided_decoding_backend", Accept, "answers are guided by the server's own compiler"},
    {"iter_stats_max_iterations",
     NumRecords<&ExecutorOptions::iter_stats_max_iterations>,
     {},
     ShowNumRecords<&ExecutorOptions::iter_stats_max_iterations>},
    {"kv_cache_free_gpu_mem_fraction", FreeMemoryFraction, {}, ShowFraction},
    {"kv_cache_host_memory_bytes", HostMemory, {}, ShowHostMemory},
    {"kv_cache_onboard_blocks", OnboardBlocks, {}, ShowOnboard},
    {"logits_datatype", Accept, "the datatypes that the outputs declare decide"},
    {"lookahead_ngram_size", RefuseUnlessZero},
    {"lookahead_verification_set_size", RefuseUnlessZero},
    {"lookahead_window_size", RefuseUnlessZero},
    {"lora_cache_gpu_memory_fraction", AdapterFraction, {}, ShowAdapterFraction},
    {"lora_cache_host_memory_bytes", AdapterHostMemory, {}, ShowAdapterHostMemory},
    {"lora_cache_max_adapter_size", MaxAdapterRank, {}, ShowUnset},
    {"lora_cache_optimal_adapter_size", Accept,
     "memory of adapters is given out by bytes, without pages"},
    {"lora_prefetch_dir", RefuseIfSet},
    {"max_attention_window_size", AttentionWindows, {}, ShowUnset},
    {"max_beam_width", BeamWidth, {}, ShowBeamWidth},
    {"max_kv_cache_length", AttentionWindows},
    {"max_num_sequences", MaxNumSequences, {}, ShowSequences},
    {"max_tokens_in_paged_kv_cache", MaxKvTokens, {}, ShowKvTokens},
    {"medusa_choices", MedusaChoices, {}, ShowMedusaChoices},
    {"multi_block_mode", Accept, "kernels are chosen at load"},
    {"normalize_log_probs", Flag<&LlmParameters::normalize_log_probs>, {}, ShowNormalize},
    {"num_nodes", RefuseUnlessOne},
    {"participant_ids", ParticipantIds},
    {"recv_poll_period_ms", Accept, "nothing is polled"},
    {"request_stats_max_iterations",
     NumRecords<&ExecutorOptions::request_stats_max_iterations>,
     {},
     ShowNumRecords<&ExecutorOptions::request_stats_max_iterations>},
    {"sink_token_length", SinkTokens, {}, ShowSinks},
    {"speculative_decoding_fast_logits", RefuseIfTrue},
    {"stats_check_period_ms", StatsPeriod, {}, ShowStatsPeriod},
    {"tokenizer_dir", TokenizerPath},
    {"worker_path", WorkerPath},
    {"xgrammar_tokenizer_info_path", Accept, "guides are made of the tokenizer's own files"},
});

}  // namespace

Result<LlmParameters> ParseLlmParameters(const std::map<std::string, std::string>& parameters,
                                         const ExecutorOptions& base, KeyReport* report) {
  LlmParameters out;
  out.executor = base;
  RETURN_IF_ERROR(ParseParameters<LlmParameters>(kEntries, parameters, out, report));
  if (out.executor.kv_cache_host_bytes > 0 && !out.onboards_blocks) {
    const Status status = Unimplemented(
        "kv_cache_onboard_blocks",
        "got false with a kv_cache_host_memory_bytes of " +
            std::to_string(out.executor.kv_cache_host_bytes) +
            "; blocks of the host pool are only used once they are back (set it to true)");
    NoteRefusal(status, report);
    return status;
  }
  return out;
}

void NoteRefusal(const Status& status, KeyReport* report) {
  if (report == nullptr || status.ok()) return;
  static const std::string kWindowKey = "max_attention_window_size";
  for (KeyLine& line : *report) {
    const bool is_old_name = line.key == "max_kv_cache_length" && line.source == KeySource::kFile;
    const std::string& key = is_old_name ? kWindowKey : line.key;
    if (status.field() != key) continue;
    line.effect = KeyEffect::kRefused;
    line.reason = status.message();
  }
}

void NoteIgnored(std::string_view key, std::string_view reason, KeyReport* report) {
  if (report == nullptr) return;
  for (KeyLine& line : *report) {
    if (line.key != key) continue;
    line.effect = KeyEffect::kIgnored;
    line.reason = reason;
  }
}

int MaxBeamWidth(const LlmParameters& parameters, const ExecutorLimits& limits) {
  const int engine = limits.max_beam_width;
  const int width = parameters.max_beam_width.value_or(engine);
  if (width > engine) {
    logging::Warning("max_beam_width is above the engine's, which is taken",
                     {{"max_beam_width", width}, {"engine", engine}});
  }
  return std::min(width, engine);
}

}  // namespace inflight::contract
