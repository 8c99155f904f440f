// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_parameters.h"

#include <array>
#include <string_view>

#include "contract/parameter_values.h"

namespace inflight::contract {
namespace {

struct Context {
  std::string_view key;
  LlmParameters& out;
};

using Handler = Status (*)(const std::string& value, Context& context);

Status NotSupported(const std::string& value, const Context& context,
                    std::string_view remedy = {}) {
  std::string message = std::string(context.key) + " '" + value + "' is not supported yet";
  if (!remedy.empty()) message += " (" + std::string(remedy) + ")";
  return Unimplemented(std::move(message));
}

void WarnDefault(const std::string& value, Context& context) {
  context.out.warnings.push_back(std::string(context.key) + " '" + value +
                                 "' is not understood; the default is used");
}

// Takes effect on no answer here: polling periods of an event-driven server, sizes of rings and
// caches that do not exist, kernel choices of another runtime.
Status Accept(const std::string&, Context&) { return Status::Ok(); }

Status RefuseIfSet(const std::string& value, Context& context) {
  return NotSupported(value, context);
}

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
  if (value == "V1" || value == "v1") {
    return NotSupported(value, context, "use inflight_fused_batching");
  }
  return InvalidArgument("Invalid gpt_model_type '" + value +
                         "'. Must be v1/inflight_batching/inflight_fused_batching.");
}

Status ModelPath(const std::string& value, Context& context) {
  context.out.engine_dir = value;
  return Status::Ok();
}

Status BeamWidth(const std::string& value, Context& context) {
  const int64_t width = LeadingInt(value).value_or(1);
  if (width < 1) {
    return InvalidArgument("max_beam_width: got " + value + ", must be at least 1");
  }
  if (width > 1) {
    context.out.warnings.push_back("max_beam_width " + value +
                                   ": beam search is not supported yet; requests with a beam_width "
                                   "above 1 are refused");
  }
  return Status::Ok();
}

Status SchedulerPolicy(const std::string& value, Context& context) {
  if (value == "max_utilization" || value == "static_batch") {
    return NotSupported(value, context, "use guaranteed_no_evict");
  }
  if (value != "guaranteed_no_evict") WarnDefault(value, context);
  return Status::Ok();
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

Status DecodingMode(const std::string& value, Context& context) {
  for (const std::string_view mode : {"auto", "top_k", "top_p", "top_k_top_p"}) {
    if (value == mode) return Status::Ok();
  }
  for (const std::string_view mode :
       {"beam_search", "medusa", "redrafter", "lookahead", "eagle", "explicit_draft_tokens"}) {
    if (value == mode) return NotSupported(value, context, "use top_k_top_p");
  }
  WarnDefault(value, context);
  return Status::Ok();
}

Status Overlap(const std::string& value, Context& context) {
  if (StrictBool(value).value_or(false)) {
    context.out.warnings.emplace_back(
        "enable_trt_overlap has no effect: steps overlap where the device allows");
  }
  return Status::Ok();
}

Status DeviceIds(const std::string& value, Context& context) {
  context.out.warnings.push_back("gpu_device_ids '" + value +
                                 "' has no effect: this server runs on the CPU");
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

struct Entry {
  std::string_view key;
  Handler handler;
};

constexpr auto kEntries = std::to_array<Entry>({
    {"FORCE_CPU_ONLY_INPUT_TENSORS", Accept},
    {"batch_scheduler_policy", SchedulerPolicy},
    {"cancellation_check_period_ms", Accept},
    {"cross_kv_cache_fraction", RefuseIfSet},
    {"cuda_graph_cache_size", Accept},
    {"cuda_graph_mode", Accept},
    {"decoding_mode", DecodingMode},
    {"eagle_choices", RefuseIfSet},
    {"enable_chunked_context", ExecutorFlag<&ExecutorOptions::enable_chunked_prefill>},
    {"enable_context_fmha_fp32_acc", Accept},
    {"enable_kv_cache_reuse", ExecutorFlag<&ExecutorOptions::enable_prefix_reuse>},
    {"enable_trt_overlap", Overlap},
    {"encoder_model_path", RefuseIfSet},
    {"exclude_input_in_output", Flag<&LlmParameters::exclude_input_in_output>},
    {"executor_worker_path", Accept},
    {"gpt_model_path", ModelPath},
    {"gpt_model_type", ModelType},
    {"gpu_device_ids", DeviceIds},
    {"gpu_weights_percent", RefuseUnlessOne},
    {"guided_decoding_backend", RefuseIfSet},
    {"iter_stats_max_iterations", Accept},
    {"kv_cache_free_gpu_mem_fraction", FreeMemoryFraction},
    {"kv_cache_host_memory_bytes", RefuseUnlessZero},
    {"kv_cache_onboard_blocks", Accept},
    {"logits_datatype", Accept},
    {"lookahead_ngram_size", RefuseUnlessZero},
    {"lookahead_verification_set_size", RefuseUnlessZero},
    {"lookahead_window_size", RefuseUnlessZero},
    {"lora_cache_gpu_memory_fraction", Accept},
    {"lora_cache_host_memory_bytes", Accept},
    {"lora_cache_max_adapter_size", Accept},
    {"lora_cache_optimal_adapter_size", Accept},
    {"lora_prefetch_dir", RefuseIfSet},
    {"max_attention_window_size", RefuseUnlessZero},
    {"max_beam_width", BeamWidth},
    {"max_kv_cache_length", RefuseUnlessZero},
    {"max_num_sequences", MaxNumSequences},
    {"max_tokens_in_paged_kv_cache", MaxKvTokens},
    {"medusa_choices", RefuseIfSet},
    {"multi_block_mode", Accept},
    {"normalize_log_probs", Flag<&LlmParameters::normalize_log_probs>},
    {"num_nodes", RefuseUnlessOne},
    {"participant_ids", RefuseIfSet},
    {"recv_poll_period_ms", Accept},
    {"request_stats_max_iterations", Accept},
    {"sink_token_length", RefuseUnlessZero},
    {"speculative_decoding_fast_logits", RefuseIfTrue},
    {"stats_check_period_ms", Accept},
    {"tokenizer_dir", Accept},
    {"worker_path", Accept},
    {"xgrammar_tokenizer_info_path", Accept},
});

}  // namespace

Result<LlmParameters> ParseLlmParameters(const std::map<std::string, std::string>& parameters,
                                         const ExecutorOptions& base) {
  LlmParameters out;
  out.executor = base;
  for (const auto& [key, value] : parameters) {
    const Entry* found = nullptr;
    for (const Entry& entry : kEntries) {
      if (entry.key == key) found = &entry;
    }
    if (found == nullptr) {
      out.warnings.push_back("parameter '" + key + "' is not known; it has no effect");
      continue;
    }
    if (IsUnfilled(value)) continue;
    Context context{.key = found->key, .out = out};
    RETURN_IF_ERROR(found->handler(value, context));
  }
  return out;
}

}  // namespace inflight::contract
