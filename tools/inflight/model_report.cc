// SPDX-License-Identifier: Apache-2.0
#include "model_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "executor/kv_storage.h"
#include "inflight/chat_template.h"
#include "inflight/tokenizer.h"
#include "model/rope.h"

namespace inflight::tool {
namespace {

using model::QuantAlgo;

constexpr double kGiB = 1 << 30;

const char* KindName(builder::SourceKind kind) {
  switch (kind) {
    case builder::SourceKind::kHuggingFace:
      return "Hugging Face directory";
    case builder::SourceKind::kGguf:
      return "GGUF file";
    case builder::SourceKind::kCheckpoint:
      return "checkpoint";
    case builder::SourceKind::kEngine:
      return "engine";
  }
  return "";
}

std::string DescribeRope(const model::ModelConfig& config) {
  using Kind = model::RopeScaling::Kind;
  if (config.position == model::PositionKind::kLearnedAbsolute) return "learned";
  std::string text = fmt::format("rope theta {}", config.rope_theta);
  if (config.rope_scaling.kind == Kind::kLinear)
    text += fmt::format(", linear factor {}", config.rope_scaling.factor);
  if (config.rope_scaling.kind == Kind::kLlama3)
    text += fmt::format(", llama3 factor {}", config.rope_scaling.factor);
  if (config.rope_scaling.kind == Kind::kDynamic)
    text += fmt::format(", dynamic factor {}", config.rope_scaling.factor);
  if (config.rope_scaling.kind == Kind::kYarn)
    text += fmt::format(", yarn factor {}", config.rope_scaling.factor);
  if (config.rope_scaling.kind == Kind::kLongRope)
    text += fmt::format(", longrope over {}", model::OriginalLength(config));
  return text;
}

uint64_t KvBytesPerToken(const model::ModelConfig& config) {
  constexpr int kBlock = 64;
  return executor::KvBytesPerBlock(executor::KvShape(config, kBlock, DeviceKind::kCpu)) / kBlock;
}

// Of a sequence of so many tokens: layers with a window keep no more than that.
uint64_t SequenceKvBytes(const model::ModelConfig& config, int num_tokens) {
  const uint64_t layer_bytes = KvBytesPerToken(config) / static_cast<uint64_t>(config.num_layers);
  uint64_t bytes = 0;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const int window = WindowOf(config, layer);
    bytes +=
        layer_bytes * static_cast<uint64_t>(window > 0 ? std::min(window, num_tokens) : num_tokens);
  }
  return bytes;
}

// "8.03 billion"
std::string Rounded(int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.3g} billion", value * 1e-9);
  return fmt::format("{:.3g} million", value * 1e-6);
}

TypeSize SizeAs(const model::ModelConfig& config, DeviceKind device, const ModelReport& report) {
  TypeSize size;
  size.type = config.quant_algo == QuantAlgo::kNone ? DTypeName(config.dtype)
                                                    : model::QuantAlgoName(config.quant_algo);
  size.device = device;
  size.weight_bytes = builder::EngineBytes(config, device);
  size.kv_bytes_per_token = KvBytesPerToken(config);
  if (report.max_seq_len) size.sequence_kv_bytes = SequenceKvBytes(config, *report.max_seq_len);
  if (report.memory_bytes > size.weight_bytes)
    size.kv_tokens =
        static_cast<int64_t>(static_cast<double>(report.memory_bytes - size.weight_bytes) *
                             report.kv_fraction / static_cast<double>(size.kv_bytes_per_token));
  return size;
}

std::vector<TypeSize> SizesOf(const ModelReport& report) {
  model::ModelConfig config = report.description.config;
  const DeviceKind device = report.description.target;
  const bool is_16_bit = config.dtype != DType::kF32;
  std::vector<TypeSize> sizes;
  config.quant_algo = QuantAlgo::kNone;
  config.quantize_lm_head = false;
  if (device == DeviceKind::kCpu) {
    model::ModelConfig wide = config;
    wide.dtype = DType::kF32;
    sizes.push_back(SizeAs(wide, device, report));
  }
  if (!is_16_bit) config.dtype = DType::kBF16;
  sizes.push_back(SizeAs(config, device, report));
  for (const QuantAlgo algo :
       {QuantAlgo::kW8A16, QuantAlgo::kFp8PerChannelPerToken, QuantAlgo::kW4A16}) {
    config.quant_algo = algo;
    if (algo == QuantAlgo::kFp8PerChannelPerToken && device == DeviceKind::kCpu) continue;
    if (model::Validate(config).ok()) sizes.push_back(SizeAs(config, device, report));
  }
  const model::ModelConfig& own = report.description.config;
  if (HasGroups(own.quant_algo) || own.quant_algo == QuantAlgo::kMixedPrecision)
    sizes.push_back(SizeAs(own, device, report));
  return sizes;
}

}  // namespace

ModelReport ReportOf(const std::filesystem::path& dir, builder::Description description,
                     uint64_t memory_bytes, double kv_fraction, std::optional<int> max_seq_len) {
  ModelReport report{.dir = dir,
                     .description = std::move(description),
                     .parameters = {},
                     .max_seq_len = max_seq_len,
                     .memory_bytes = memory_bytes,
                     .kv_fraction = kv_fraction,
                     .sizes = {}};
  const builder::Description& model = report.description;
  report.parameters = builder::CountParameters(model.config);
  report.kv_bytes_per_token = KvBytesPerToken(model.config);
  report.sizes = SizesOf(report);
  if (model.tokenizer_dir.empty()) return report;
  if (const auto tokenizer = Tokenizer::Load(model.tokenizer_dir); tokenizer.ok()) {
    report.tokenizer_size = (*tokenizer)->vocab_size();
    report.tokenizer_kind = (*tokenizer)->kind();
    report.tokenizer_file = (*tokenizer)->origin();
  }
  if (const auto chat = ChatTemplate::Load(model.tokenizer_dir); chat.ok())
    report.chat_template = chat->origin();
  return report;
}

std::string ToText(const ModelReport& report) {
  const builder::Description& description = report.description;
  const model::ModelConfig& c = description.config;
  const bool is_engine = description.kind == builder::SourceKind::kEngine;
  const char* const target = description.target == DeviceKind::kCuda ? "cuda" : "cpu";
  std::string text;
  text += fmt::format("{}: {}{}\n", report.dir.string(), KindName(description.kind),
                      is_engine            ? fmt::format(", built for {}", target)
                      : report.has_weights ? ""
                                           : ", of which only config.json is there");
  const artifact::RankMapping& ranks = description.ranks;
  if (ranks.num_ranks() > 1)
    text += fmt::format(
        "ranks         {}, each with a file: tensor parallel {}, pipeline parallel {}{}\n",
        ranks.num_ranks(), ranks.tp_size, ranks.pp_size,
        ranks.moe_ep_size == 1 ? ""
                               : fmt::format(", of experts: tensor parallel {}, expert parallel {}",
                                             ranks.moe_tp_size(), ranks.moe_ep_size));
  text += fmt::format("architecture  {}, {}\n", c.architecture, DTypeName(c.dtype));
  text += fmt::format(
      "parameters    {} ({}){}\n", Rounded(report.parameters.total), report.parameters.total,
      report.parameters.active == report.parameters.total
          ? ""
          : fmt::format(", {} of them active for a token", Rounded(report.parameters.active)));
  if (!description.stored_quantization.empty())
    text += fmt::format("stored as     {}\n", description.stored_quantization);
  if (const std::string note = model::QuantizationNote(c); !note.empty())
    text += fmt::format("quantization  {}: {}\n", model::QuantAlgoName(c.quant_algo), note);
  text += fmt::format(
      "layers {}, hidden {}, heads {} (kv {}), head_dim {}, intermediate {}, vocabulary {}\n",
      c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim, c.intermediate_size,
      c.vocab_size);
  if (c.num_experts > 0) {
    const auto num_dense = std::ranges::count(c.dense_layers, true);
    text += fmt::format("experts       {} of {}, of intermediate {}, in {} of {} layers\n",
                        c.experts_per_token, c.num_experts, c.expert_intermediate_size,
                        c.num_layers - num_dense, c.num_layers);
  }
  text += fmt::format("positions     {}, up to {}; embeddings {}\n", DescribeRope(c),
                      c.max_position_embeddings, c.tied_embeddings ? "tied" : "untied");
  if (c.sliding_window > 0) {
    const auto num_sliding =
        c.sliding_layers.empty() ? c.num_layers : std::ranges::count(c.sliding_layers, true);
    text += fmt::format("window        {} tokens, of {} of {} layers\n", c.sliding_window,
                        num_sliding, c.num_layers);
  }
  if (HasQuantizedHead(c))
    text += fmt::format("lm_head       {}\n", DTypeName(FormOfTable(c, StemOfHead(c)).dtype));
  text += fmt::format("KV cache      {}, {} bytes a token\n", DTypeName(KvDType(c)),
                      report.kv_bytes_per_token);
  text +=
      fmt::format("tokenizer     {}\n",
                  report.tokenizer_size ? fmt::format("{} of {}, {} tokens", report.tokenizer_kind,
                                                      report.tokenizer_file, *report.tokenizer_size)
                                        : std::string("none"));
  text += fmt::format("template      {}\n",
                      report.chat_template.empty() ? "none" : report.chat_template);
  text += fmt::format("end ids       {}\n", fmt::join(c.end_ids, " "));
  return text;
}

std::string SizesText(const ModelReport& report) {
  std::string text = fmt::format("{:<28} {:>12} {:>17} {:>16}", "type", "weights",
                                 "KV bytes a token", "tokens that fit");
  if (report.max_seq_len)
    text += fmt::format(" {:>21}", fmt::format("with {} tokens", *report.max_seq_len));
  text += '\n';
  for (const TypeSize& size : report.sizes) {
    text += fmt::format("{:<28} {:>8.2f} GiB {:>17} {:>16}", size.type,
                        static_cast<double>(size.weight_bytes) / kGiB, size.kv_bytes_per_token,
                        size.kv_tokens > 0 ? std::to_string(size.kv_tokens) : "none");
    if (report.max_seq_len)
      text += fmt::format(" {:>17.2f} GiB",
                          static_cast<double>(size.weight_bytes + size.sequence_kv_bytes) / kGiB);
    text += '\n';
  }
  if (report.max_seq_len)
    text += fmt::format(
        "With {} tokens: the weights, and the KV cache of one sequence of that length.\n",
        *report.max_seq_len);
  return text + fmt::format(
                    "Of {:.1f} GiB, {:g} of what the weights leave for the KV cache; steps "
                    "need some of the rest.\n",
                    static_cast<double>(report.memory_bytes) / kGiB, report.kv_fraction);
}

nlohmann::ordered_json ToJson(const ModelReport& report, const loader::Plan* plan,
                              const std::string& why_no_plan) {
  using json = nlohmann::ordered_json;
  const builder::Description& description = report.description;
  const model::ModelConfig& c = description.config;
  const std::string_view algo = model::QuantAlgoName(c.quant_algo);
  json sizes = json::array();
  for (const TypeSize& size : report.sizes)
    sizes.push_back(
        {{"type", size.type},
         {"device", size.device == DeviceKind::kCuda ? "cuda" : "cpu"},
         {"weight_bytes", size.weight_bytes},
         {"kv_bytes_per_token", size.kv_bytes_per_token},
         {"sequence_kv_bytes", report.max_seq_len ? json(size.sequence_kv_bytes) : json()},
         {"kv_tokens", size.kv_tokens}});
  json out = {{"directory", report.dir.string()},
              {"kind", KindName(description.kind)},
              {"has_weights", report.has_weights},
              {"architecture", c.architecture},
              {"dtype", std::string(DTypeName(c.dtype))},
              {"quant_algo", algo.empty() ? "none" : std::string(algo)},
              {"stored_quantization", description.stored_quantization},
              {"parameters", report.parameters.total},
              {"active_parameters", report.parameters.active},
              {"num_layers", c.num_layers},
              {"hidden_size", c.hidden_size},
              {"num_heads", c.num_heads},
              {"num_kv_heads", c.num_kv_heads},
              {"head_dim", c.head_dim},
              {"intermediate_size", c.intermediate_size},
              {"vocab_size", c.vocab_size},
              {"num_experts", c.num_experts},
              {"experts_per_token", c.experts_per_token},
              {"sliding_window", c.sliding_window},
              {"max_position_embeddings", c.max_position_embeddings},
              {"tied_embeddings", c.tied_embeddings},
              {"tensor_parallel_size", description.ranks.tp_size},
              {"pipeline_parallel_size", description.ranks.pp_size},
              {"moe_ep_size", description.ranks.moe_ep_size},
              {"moe_tp_size", description.ranks.moe_tp_size()},
              {"end_ids", c.end_ids},
              {"tokenizer_size", report.tokenizer_size ? json(*report.tokenizer_size) : json()},
              {"tokenizer_kind", report.tokenizer_size ? json(report.tokenizer_kind) : json()},
              {"tokenizer_file", report.tokenizer_size ? json(report.tokenizer_file) : json()},
              {"has_chat_template", !report.chat_template.empty()},
              {"chat_template", report.chat_template.empty() ? json() : json(report.chat_template)},
              {"weight_bytes", description.weight_bytes},
              {"kv_dtype", std::string(DTypeName(KvDType(c)))},
              {"kv_bytes_per_token", report.kv_bytes_per_token},
              {"max_seq_len", report.max_seq_len ? json(*report.max_seq_len) : json()},
              {"memory_bytes", report.memory_bytes},
              {"sizes", std::move(sizes)}};
  if (plan == nullptr) {
    out["plan"] = nullptr;
    out["why_no_plan"] = why_no_plan;
    return out;
  }
  const ExecutorLimits& limits = plan->info.limits;
  out["plan"] = {{"device", plan->info.device},
                 {"weight_bytes", plan->info.memory.weight_bytes},
                 {"kv_cache_bytes", plan->info.memory.kv_cache_bytes},
                 {"total_bytes", plan->info.memory.total_bytes},
                 {"kv_tokens", plan->memory.kv_tokens()},
                 {"max_batch_size", limits.max_batch_size},
                 {"max_num_tokens", limits.max_num_tokens},
                 {"max_seq_len", limits.max_seq_len},
                 {"max_input_len", limits.max_input_len}};
  return out;
}

}  // namespace inflight::tool
