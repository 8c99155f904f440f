// SPDX-License-Identifier: Apache-2.0
// inflight convert: Hugging Face directory -> checkpoint. Takes the flags of upstream's converters,
// convert_checkpoint.py and the older hf_*_convert.py, too (upstream_flags.h).
#include <cstdio>

#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/model_files.h"
#include "command_line.h"
#include "commands.h"
#include "expert_rank_options.h"
#include "model_directory.h"
#include "model_sizes.h"
#include "output_folder.h"
#include "progress.h"
#include "quantization_options.h"
#include "upstream_flags.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {
    "inflight convert --model-dir HF --output-dir CHECKPOINT [--dtype auto] [--tp-size T] "
    "[--pp-size P] [--use-weight-only | --use-fp8-rowwise]",
    "Converts a Hugging Face model directory to a checkpoint: config.json and a rankN.safetensors "
    "for each rank."};

struct Options {
  builder::ConvertOptions convert{.output_dir = "tllm_checkpoint"};
  QuantizationOptions quantization;
  ModelSizes sizes;
  std::string out_dir;             // older flow: the checkpoint goes to a folder of it
  std::optional<int> moe_tp_mode;  // of 0.8 to 0.10
  std::string log_level = "info";
  bool force = false;
  bool download = false;
};

void AddMedusa(config::Schema<Options>& schema) {
  schema.Section("Medusa");
  schema.Add(
      "medusa_model_dir", [](Options& o) -> auto& { return o.convert.medusa.dir; },
      "Directory of Medusa's heads of the model: medusa_lm_head.safetensors or medusa_lm_head.pt, "
      "and config.json.");
  schema.Add(
      "num_medusa_heads", [](Options& o) -> auto& { return o.convert.medusa.num_heads; },
      "Heads, where that config.json does not say them; default 4.",
      config::Range(1, model::kMaxMedusaHeads));
  schema.Add(
      "num_medusa_layers", [](Options& o) -> auto& { return o.convert.medusa.num_layers; },
      "Blocks of a head, where that config.json does not say them; default 1.",
      config::Range(1, model::kMaxMedusaLayers));
  schema.Add(
      "fixed_num_medusa_heads",
      [](Options& o) -> auto& { return o.convert.medusa.fixed_num_heads; },
      "The first so many of the heads, whatever that config.json says.",
      config::Range(1, model::kMaxMedusaHeads));
}

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Convert");
  schema.Add(
      "model_dir", [](Options& o) -> auto& { return o.convert.model_dir; },
      "Hugging Face model directory, or org/name in the hub's local cache.");
  AddDownload(schema, [](Options& o) -> auto& { return o.download; });
  schema.Add(
      "output_dir", [](Options& o) -> auto& { return o.convert.output_dir; },
      "Directory of the checkpoint. It appears when it is complete.");
  schema.Add(
      "force", [](Options& o) -> auto& { return o.force; },
      "Replace a checkpoint or an engine that is there.", config::Switch());
  schema.Add(
      "dtype", [](Options& o) -> auto& { return o.convert.dtype; },
      "Stored dtype; auto is the model's own, float16 where that is float32 or not named.",
      config::OneOf({"auto", "float32", "bfloat16", "float16", "fp32", "fp16"}));
  schema.Add(
      "log_level", [](Options& o) -> auto& { return o.log_level; }, "What is logged.",
      config::OneOf(LogLevels()));
  schema.Section("Ranks");
  schema.Add(
      "tp_size", [](Options& o) -> auto& { return o.convert.tp_size; }, "Tensor-parallel ranks.",
      config::Range(1, 4096));
  schema.Add(
      "pp_size", [](Options& o) -> auto& { return o.convert.pp_size; },
      "Pipeline stages; layers that are left over go to the first ones.", config::Range(1, 4096));
  AddExpertRanks(
      schema, [](Options& o) -> auto& { return o.convert.moe_ep_size; },
      [](Options& o) -> auto& { return o.convert.moe_tp_size; },
      "tp_size / moe_tp_size, or 1: each rank has a part of every expert.");
  schema.Add(
      "moe_tp_mode", [](Options& o) -> auto& { return o.moe_tp_mode; },
      "Releases 0.8 to 0.10: 1 is --moe-tp-size 1, 2 is --moe-ep-size 1.", config::Range(1, 2));
  schema.Add(
      "use_parallel_embedding",
      [](Options& o) -> auto& { return o.convert.use_parallel_embedding; },
      "Split the embedding table over the tensor-parallel ranks.", config::OptionalValue());
  schema.Add(
      "embedding_sharding_dim",
      [](Options& o) -> auto& { return o.convert.embedding_sharding_dim; },
      "Along which it is split: 0 the vocabulary, 1 the hidden size.", config::Range(0, 1));
  schema.Add(
      "use_embedding_sharing", [](Options& o) -> auto& { return o.convert.use_embedding_sharing; },
      "Store a table that is also the head once; by default where the ranks allow it.",
      config::OptionalValue());
  schema.Add(
      "save_config_only", [](Options& o) -> auto& { return o.convert.save_config_only; },
      "Write config.json without weights.", config::OptionalValue());
  AddMedusa(schema);
  schema.Section("Quantization");
  AddQuantizationOfUpstream(schema, [](Options& o) -> auto& { return o.quantization; });
  schema.Add(
      "upstream_layout", [](Options& o) -> auto& { return o.convert.upstream_layout; },
      "Write quantised linears as TensorRT-LLM's own tools write and read them: FP8, W4A16_AWQ, "
      "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN, and int8 and int4 without groups as floats that are "
      "quantised where they are read.",
      config::Switch());
  schema.Section("Sizes of the model, which it says itself: given, they have to be the same");
  AddModelSizes(schema, [](Options& o) -> auto& { return o.sizes; });
  schema.Section("Other flags of TensorRT-LLM's converters");
  schema.Add(
      "out_dir", [](Options& o) -> auto& { return o.out_dir; },
      "As in hf_gpt_convert.py: the checkpoint goes to OUT_DIR/T-gpu.");
  AddUpstreamFlags(ConvertFlags(), schema);
  for (const auto& [alias, name] : {std::pair{"in_file", "model_dir"},
                                    {"-i", "model_dir"},
                                    {"-o", "out_dir"},
                                    {"storage_type", "dtype"},
                                    {"-t", "dtype"},
                                    {"tensor_parallelism", "tp_size"},
                                    {"-tp", "tp_size"},
                                    {"-p", "processes"},
                                    {"model", "gpt_variant"},
                                    {"-sq", "smoothquant"},
                                    {"calibrate_kv_cache", "int8_kv_cache"},
                                    {"-kv", "int8_kv_cache"}})
    schema.Alias(alias, name);
  return schema;
}

// The size that the mode of former releases stands for.
Status SetExpertMode(Options& options) {
  if (!options.moe_tp_mode) return Status::Ok();
  const bool has_own = *options.moe_tp_mode == 1;
  std::optional<int>& size = has_own ? options.convert.moe_tp_size : options.convert.moe_ep_size;
  if (size.value_or(-1) > 1)
    return InvalidArgument(std::string(has_own ? "--moe-tp-size" : "--moe-ep-size") + ": got " +
                           std::to_string(*size) + ", --moe-tp-mode " +
                           std::to_string(*options.moe_tp_mode) +
                           " stands for 1; leave one of both out");
  size = 1;
  return Status::Ok();
}

Status Run(Options& options, std::span<const std::string> positionals) {
  RETURN_IF_ERROR(NoPositionals(kUsage, positionals));
  builder::ConvertOptions& convert = options.convert;
  if (convert.model_dir.empty()) return UsageError(kUsage, "--model-dir is needed");
  const auto model_dir = ModelDirectory(convert.model_dir, {}, options.download);
  if (!model_dir.ok()) return model_dir.status().WithPrefix("--model-dir");
  convert.model_dir = *model_dir;
  builder::MedusaOptions& medusa = convert.medusa;
  if (!medusa.dir.empty()) {
    const auto medusa_dir = ModelDirectory(medusa.dir, {}, options.download);
    if (!medusa_dir.ok()) return medusa_dir.status().WithPrefix("--medusa-model-dir");
    medusa.dir = *medusa_dir;
  } else if (medusa.num_heads || medusa.num_layers || medusa.fixed_num_heads) {
    return InvalidArgument("--medusa-model-dir: is needed beside the number of Medusa's heads");
  }
  ASSIGN_OR_RETURN(const auto algo, options.quantization.Algo());
  convert.quant_algo = algo;
  ASSIGN_OR_RETURN(convert.group_size, options.quantization.GroupSize());
  convert.fp8_kv_cache = options.quantization.Fp8KvCache().value_or(false);
  convert.quantize_lm_head = options.quantization.quantize_lm_head;
  if (convert.dtype == "fp32") convert.dtype = "float32";
  if (convert.dtype == "fp16") convert.dtype = "float16";
  if (!options.out_dir.empty())
    convert.output_dir =
        std::filesystem::path(options.out_dir) / (std::to_string(convert.tp_size) + "-gpu");
  SetLogLevel(options.log_level);
  RETURN_IF_ERROR(SetExpertMode(options));
  if (options.sizes.any()) {
    ASSIGN_OR_RETURN(const builder::Description model, builder::Describe(convert.model_dir));
    RETURN_IF_ERROR(CheckSizes(options.sizes, model.config));
  }
  const std::filesystem::path output_dir = convert.output_dir;
  RETURN_IF_ERROR(builder::CheckDistinct(convert.model_dir, output_dir));
  ASSIGN_OR_RETURN(const auto folder, OutputFolder::Create(output_dir, options.force));
  convert.output_dir = folder->temporary();
  {
    ProgressBar bar("convert");
    RETURN_IF_ERROR(builder::Convert(
        convert, [&bar](double fraction, std::string_view what) { bar.Update(fraction, what); }));
  }
  RETURN_IF_ERROR(folder->Publish());
  std::printf(
      "Wrote the checkpoint %s; next: inflight serve %s, or for a faster start\n"
      "  inflight build --checkpoint-dir %s --output-dir ENGINE\n",
      output_dir.c_str(), output_dir.c_str(), output_dir.c_str());
  return Status::Ok();
}

}  // namespace

int ConvertMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual ConvertManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
