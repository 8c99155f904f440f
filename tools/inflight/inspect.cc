// SPDX-License-Identifier: Apache-2.0
// inflight inspect: what is in a model, checkpoint, engine or repository, and its memory plan.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/status_macros.h"
#include "builder/builder.h"
#include "command_line.h"
#include "commands.h"
#include "inspect_repository.h"
#include "loader/loader.h"
#include "model/rope.h"
#include "model_directory.h"
#include "model_options.h"
#include "tensor/device.h"

namespace inflight::tool {
namespace {

namespace fs = std::filesystem;

const Usage kUsage = {"inflight inspect DIR",
                      "Shows what is in a Hugging Face, checkpoint, engine or model-repository "
                      "directory, and the memory that serving it takes;\nof a repository also what "
                      "becomes of each key of its configurations."};

using Options = ModelOptions;

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Inspect");
  AddDevice(schema, [](Options& o) -> auto& { return o.device; });
  AddDType(
      schema, [](Options& o) -> auto& { return o.dtype; },
      "Plan for this dtype; for Hugging Face and checkpoint directories; auto is the model's own.");
  AddQuantization(schema, [](Options& o) -> auto& { return o.quantization; });
  schema.Add(
      "max_batch_size", [](Options& o) -> auto& { return o.executor.max_batch_size; },
      "Plan for so many sequences in a step.", config::AtLeast(1));
  schema.Add(
      "max_num_tokens", [](Options& o) -> auto& { return o.executor.max_num_tokens; },
      "Plan for so many tokens in a step.", config::AtLeast(1));
  schema.Add(
      "max_kv_tokens", [](Options& o) -> auto& { return o.executor.max_kv_tokens; },
      "Cap on tokens in the KV cache.", config::AtLeast(1));
  schema.Add(
      "kv_cache_free_memory_fraction",
      [](Options& o) -> auto& { return o.executor.kv_cache_free_memory_fraction; },
      "Share of free memory for the KV cache.", config::Range(0.001, 0.999));
  AddGpuWeights(schema, [](Options& o) -> auto& { return o.executor; });
  AddRanks(schema, [](Options& o) -> auto& { return o; });
  return schema;
}

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

std::string NameOf(Device& device) {
  if (device.kind() == DeviceKind::kCpu) return device.name();
  const cuda::DeviceProperties& gpu = device.cuda();
  return fmt::format("{}, {} of compute capability {}.{}", device.name(), gpu.name,
                     gpu.compute_major, gpu.compute_minor);
}

void PrintModel(const fs::path& dir, const builder::Description& description) {
  const model::ModelConfig& c = description.config;
  const bool is_engine = description.kind == builder::SourceKind::kEngine;
  const char* const target = description.target == DeviceKind::kCuda ? "cuda" : "cpu";
  fmt::print("{}: {}{}\n", dir.string(), KindName(description.kind),
             is_engine ? fmt::format(", built for {}", target) : "");
  const artifact::RankMapping& ranks = description.ranks;
  if (ranks.num_ranks() > 1)
    fmt::print("ranks         {}, each with a file: tensor parallel {}, pipeline parallel {}\n",
               ranks.num_ranks(), ranks.tp_size, ranks.pp_size);
  fmt::print("architecture  {}, {}\n", c.architecture, DTypeName(c.dtype));
  if (!description.stored_quantization.empty())
    fmt::print("stored as     {}\n", description.stored_quantization);
  if (const std::string_view note = model::QuantizationNote(c); !note.empty())
    fmt::print("quantization  {}: {}\n", model::QuantAlgoName(c.quant_algo), note);
  fmt::print(
      "layers {}, hidden {}, heads {} (kv {}), head_dim {}, intermediate {}, vocabulary {}\n",
      c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim, c.intermediate_size,
      c.vocab_size);
  if (c.num_experts > 0) {
    const auto num_dense = std::ranges::count(c.dense_layers, true);
    fmt::print("experts       {} of {}, of intermediate {}, in {} of {} layers\n",
               c.experts_per_token, c.num_experts, c.expert_intermediate_size,
               c.num_layers - num_dense, c.num_layers);
  }
  fmt::print("positions     {}, up to {}; embeddings {}\n", DescribeRope(c),
             c.max_position_embeddings, c.tied_embeddings ? "tied" : "untied");
  if (c.sliding_window > 0) {
    const auto num_sliding =
        c.sliding_layers.empty() ? c.num_layers : std::ranges::count(c.sliding_layers, true);
    fmt::print("window        {} tokens, of {} of {} layers\n", c.sliding_window, num_sliding,
               c.num_layers);
  }
  if (c.quantize_lm_head) fmt::print("lm_head       {}\n", DTypeName(LinearDType(c)));
  if (c.fp8_kv_cache) fmt::print("KV cache      {}\n", DTypeName(KvDType(c)));
  fmt::print("end ids       {}\n", fmt::join(c.end_ids, " "));
}

Status InspectModel(const fs::path& dir, OpenOptions options) {
  ASSIGN_OR_RETURN(options.devices, FindDevices(options.device));
  const Result<std::shared_ptr<Device>> device = loader::DeviceFor(dir, options);
  ASSIGN_OR_RETURN(builder::OpenOptions open, loader::BuilderOptions(dir, options));
  if (device.ok()) open.target = (*device)->kind();
  open.ranks = {};  // the whole model
  ASSIGN_OR_RETURN(const builder::Description description, builder::Describe(dir, open));
  PrintModel(dir, description);
  const Result<loader::Plan> plan =
      device.ok() ? loader::MakePlan(dir, options) : Result<loader::Plan>(device.status());
  // An engine for a device that this machine does not have, or for another than the one that is
  // asked for, or a model that the device cannot run.
  const StatusCode code = plan.status().code();
  if (!device.ok() || code == StatusCode::kFailedPrecondition ||
      code == StatusCode::kUnimplemented) {
    fmt::print("\nweights       {} bytes; no memory plan: {}\n", description.weight_bytes,
               plan.status().message());
    return Status::Ok();
  }
  RETURN_IF_ERROR(plan.status());
  fmt::print("\nMemory plan on {} ({:.1f} GiB free):\n{}", NameOf(**device),
             static_cast<double>((*device)->FreeBytes()) / (1 << 30), plan->ToString());
  return Status::Ok();
}

Status Run(const Options& options, std::span<const std::string> positionals) {
  ASSIGN_OR_RETURN(const std::string argument, OnlyPositional(kUsage, positionals, "directory"));
  ASSIGN_OR_RETURN(const fs::path dir, ModelDirectory(argument));
  ASSIGN_OR_RETURN(const OpenOptions open, options.ToOpenOptions());
  const auto repository = InspectRepository(dir, open);
  return repository ? *repository : InspectModel(dir, open);
}

}  // namespace

int InspectMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual InspectManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
