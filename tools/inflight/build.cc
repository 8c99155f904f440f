// SPDX-License-Identifier: Apache-2.0
// inflight build: checkpoint or Hugging Face directory -> engine directory. Takes the flags of
// trtllm-build and of the older per-model build.py, too (upstream_flags.h).
#include <cstdio>

#include "base/log.h"
#include "base/status_macros.h"
#include "build_report.h"
#include "builder/builder.h"
#include "builder/model_files.h"
#include "command_line.h"
#include "commands.h"
#include "expert_rank_options.h"
#include "lora_options.h"
#include "model/supported.h"
#include "model_directory.h"
#include "model_options.h"
#include "model_sizes.h"
#include "object_store/address.h"
#include "output_folder.h"
#include "progress.h"
#include "quantization_options.h"
#include "scheduler/step_plan.h"
#include "upstream_flags.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {
    "inflight build --checkpoint-dir CHECKPOINT --output-dir ENGINE [--target cuda] "
    "[--use-weight-only | --use-fp8-rowwise] [--report]",
    "Builds an engine directory from a checkpoint or a Hugging Face model directory; without one, "
    "from sizes, of random weights."};

struct Options {
  builder::BuildOptions build;
  std::string dtype = "auto";
  std::string target = "cpu";
  QuantizationOptions quantization;
  LoraOptions lora;
  ModelSizes sizes;
  std::optional<std::string> architecture;
  bool download = false;
  bool report = false;
  std::filesystem::path report_text;
  std::optional<int> max_output_len;
  std::optional<int> world_size;
  std::string speculative_decoding_mode = "none";
  std::string log_level = "info";
  bool force = false;
};

constexpr char kMedusa[] = "medusa";

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Build");
  schema.Add(
      "checkpoint_dir", [](Options& o) -> auto& { return o.build.checkpoint_dir; },
      "Checkpoint, or a Hugging Face model directory, or org/name in the hub's local cache.");
  AddDownload(schema, [](Options& o) -> auto& { return o.download; });
  schema.Add(
      "output_dir", [](Options& o) -> auto& { return o.build.output_dir; },
      "Directory of the engine; engine_outputs where it is not given. It appears when it is "
      "complete.");
  schema.Add(
      "force", [](Options& o) -> auto& { return o.force; },
      "Replace a checkpoint or an engine that is there.", config::Switch());
  AddDType(
      schema, [](Options& o) -> auto& { return o.dtype; },
      "Weights and KV cache; auto keeps the checkpoint's.");
  schema.Add(
      "target", [](Options& o) -> auto& { return o.target; },
      "Kind of device whose kernels will read the engine; no GPU is needed to build for cuda. "
      "There float32 becomes bfloat16 unless --dtype names it.",
      config::OneOf({"cpu", "cuda"}));
  schema.Add(
      "tune", [](Options& o) -> auto& { return o.build.tune; },
      "With target cuda on a machine with a GPU: time the products of the model's steps there and "
      "keep the fastest kernels as hints, which other kinds of GPU ignore.",
      config::OptionalValue());
  schema.Add(
      "tokenizer_dir", [](Options& o) -> auto& { return o.build.tokenizer_dir; },
      "Directory of the tokenizer's files; empty is the checkpoint's.");
  schema.Add(
      "dry_run", [](Options& o) -> auto& { return o.build.dry_run; },
      "Check everything and write nothing.", config::OptionalValue());
  schema.Add(
      "log_level", [](Options& o) -> auto& { return o.log_level; }, "What is logged.",
      config::OneOf(LogLevels()));
  schema.Add(
      "report", [](Options& o) -> auto& { return o.report; },
      "Print perplexity and logit error of the model as float32, float16, bfloat16, int8 and int4, "
      "and of quantised files as they are stored, before building; without output_dir, that alone. "
      "Takes the memory of float32 and one more.",
      config::Switch());
  schema.Add(
      "report_text", [](Options& o) -> auto& { return o.report_text; },
      "Text of the report: a .jsonl file with a document a line in \"text\", or in \"text_input\" "
      "(read) "
      "and \"expected\" (scored), or any other text; default: heldout_text.jsonl of "
      "checkpoint_dir.");
  schema.Section("Limits");
  schema.Add(
      "max_batch_size", [](Options& o) -> auto& { return o.build.limits.max_batch_size; },
      "Sequences in one step; a step of this server holds at most 1024 of them.",
      config::AtLeast(1));
  schema.Add(
      "max_num_tokens", [](Options& o) -> auto& { return o.build.limits.max_num_tokens; },
      "Packed tokens in one step.", config::AtLeast(1));
  schema.Add(
      "max_seq_len", [](Options& o) -> auto& { return o.build.limits.max_seq_len; },
      "Prompt and output of one sequence; 0 is the model's max_position_embeddings.",
      config::AtLeast(0));
  schema.Add(
      "max_input_len", [](Options& o) -> auto& { return o.build.limits.max_input_len; },
      "Prompt of one sequence; 0 is max_seq_len.", config::AtLeast(0));
  schema.Add(
      "max_beam_width", [](Options& o) -> auto& { return o.build.limits.max_beam_width; },
      "Beams of a request, at most.", config::Range(1, 256));
  schema.Add(
      "max_draft_len", [](Options& o) -> auto& { return o.build.limits.max_draft_len; },
      "Draft tokens of a sequence that a step verifies, at most.", config::Range(0, 127));
  schema.Add(
      "speculative_decoding_mode", [](Options& o) -> auto& { return o.speculative_decoding_mode; },
      "Who proposes draft tokens: with draft_tokens_external clients do, or the BLS model, which "
      "needs max_draft_len; with medusa the checkpoint's heads.",
      config::OneOf({"none", "draft_tokens_external", kMedusa}));
  schema.Add(
      "max_prompt_embedding_table_size",
      [](Options& o) -> auto& { return o.build.limits.max_prompt_embedding_table_size; },
      "Rows of a request's prompt table, at most; 0 refuses such tables.",
      config::Range(0, 1048576));
  schema.Add(
      "max_output_len", [](Options& o) -> auto& { return o.max_output_len; },
      "Releases up to 0.11: max_seq_len is max_input_len and this.", config::AtLeast(1));
  AddLoraOptions(schema, [](Options& o) -> auto& { return o.lora; });
  schema.Section("Ranks");
  for (const auto& [name, what] : {std::pair{"tp_size", "Tensor-parallel ranks"},
                                   {"pp_size", "Pipeline stages"},
                                   {"world_size", "Ranks"}}) {
    const std::string_view which = name;
    schema.Add(
        name,
        [which](Options& o) -> auto& {
          return which == "tp_size"   ? o.build.tp_size
                 : which == "pp_size" ? o.build.pp_size
                                      : o.world_size;
        },
        std::string(what) +
            " that a checkpoint must have, and that a Hugging Face model is split for.",
        config::AtLeast(1));
  }
  AddExpertRanks(
      schema, [](Options& o) -> auto& { return o.build.moe_ep_size; },
      [](Options& o) -> auto& { return o.build.moe_tp_size; },
      "a checkpoint's own, and of a Hugging Face model tp_size / moe_tp_size, or 1: each rank has "
      "a "
      "part of every expert.");
  schema.Add(
      "merge_ranks", [](Options& o) -> auto& { return o.build.merge_ranks; },
      "One engine for one rank, of a checkpoint of several. By default each rank has a file of its "
      "own.",
      config::Switch());
  schema.Section("Quantization");
  AddQuantizationOfUpstream(schema, [](Options& o) -> auto& { return o.quantization; });
  schema.Section("Sizes of the model");
  schema.Add(
      "architecture", [](Options& o) -> auto& { return o.architecture; },
      "Family of a model of random weights, which is built where there is no checkpoint_dir and "
      "this or a size is given; GPT2LMHeadModel where it is not. With a checkpoint_dir this and "
      "the sizes have to be the checkpoint's.");
  AddModelSizes(schema, [](Options& o) -> auto& { return o.sizes; });
  schema.Section("Other flags of trtllm-build and build.py");
  AddUpstreamFlags(BuildFlags(), schema);
  for (const auto& [alias, name] : {std::pair{"model_dir", "checkpoint_dir"},
                                    {"ft_model_dir", "checkpoint_dir"},
                                    {"max_decoder_seq_len", "max_seq_len"},
                                    {"max_multimodal_len", "max_prompt_embedding_table_size"}})
    schema.Alias(alias, name);
  return schema;
}

// What several flags say together.
Status Combine(Options& options) {
  model::EngineLimits& limits = options.build.limits;
  if (options.max_output_len) {
    if (limits.max_input_len == 0)
      return InvalidArgument(
          "--max-output-len: needs --max-input-len, whose sum is the longest sequence; or give "
          "--max-seq-len alone");
    const int64_t sum = int64_t{limits.max_input_len} + *options.max_output_len;
    if (sum > INT32_MAX || (limits.max_seq_len != 0 && limits.max_seq_len != sum))
      return InvalidArgument("--max-output-len: got " + std::to_string(*options.max_output_len) +
                             ", with --max-input-len that is a sequence of " + std::to_string(sum) +
                             ", but --max-seq-len is " + std::to_string(limits.max_seq_len) +
                             "; leave one of them out");
    limits.max_seq_len = static_cast<int>(sum);
  }
  const int64_t world_size =
      int64_t{options.build.tp_size.value_or(1)} * options.build.pp_size.value_or(1);
  if (options.world_size && !options.build.tp_size && !options.build.pp_size)
    options.build.tp_size = options.world_size;
  else if (options.world_size.value_or(static_cast<int>(world_size)) != world_size)
    return InvalidArgument("--world-size: got " + std::to_string(*options.world_size) +
                           ", tp_size * pp_size is " + std::to_string(world_size));
  // A tree of heads has its own size.
  if (options.speculative_decoding_mode != "none" && options.speculative_decoding_mode != kMedusa &&
      limits.max_draft_len == 0)
    return InvalidArgument("--speculative-decoding-mode: " + options.speculative_decoding_mode +
                           " needs --max-draft-len of at least 1");
  if (limits.max_batch_size > scheduler::StepPlan::kMaxRows)
    logging::Warning("a step holds fewer sequences than max_batch_size allows",
                     {{"max_batch_size", limits.max_batch_size},
                      {"most_in_a_step", scheduler::StepPlan::kMaxRows}});
  if (options.target == "cuda") options.build.target = DeviceKind::kCuda;
  if (options.dtype != "auto") options.build.dtype = DTypeFromName(options.dtype);
  ASSIGN_OR_RETURN(options.build.quant_algo, options.quantization.Algo());
  ASSIGN_OR_RETURN(options.build.group_size, options.quantization.GroupSize());
  options.build.fp8_kv_cache = options.quantization.Fp8KvCache();
  options.build.quantize_lm_head = options.quantization.QuantizeLmHead();
  return Status::Ok();
}

bool SaysSizes(const Options& options) { return options.architecture || options.sizes.any(); }

// What is said beside a checkpoint.
Status CheckAgainstModel(const Options& options) {
  const bool wants_heads = options.speculative_decoding_mode == kMedusa;
  if (!SaysSizes(options) && !wants_heads) return Status::Ok();
  ASSIGN_OR_RETURN(const builder::Description model,
                   builder::Describe(options.build.checkpoint_dir));
  if (wants_heads && model.config.num_medusa_heads == 0)
    return InvalidArgument("--speculative-decoding-mode: got medusa, " +
                           options.build.checkpoint_dir.string() +
                           " has no Medusa heads; convert the model with --medusa-model-dir");
  const std::string& own = model.config.architecture;
  if (options.architecture.value_or(own) != own)
    return InvalidArgument("--architecture: got " + *options.architecture + ", the model has " +
                           own + "; leave it out");
  return CheckSizes(options.sizes, model.config);
}

// Calls `write` with options that write to a folder which gets its name when all is in it.
template <typename Write>
Status WriteEngine(const Options& options, const Write& write) {
  builder::BuildOptions build = options.build;
  if (build.output_dir.empty()) build.output_dir = "engine_outputs";
  if (build.dry_run) return write(build);
  const std::filesystem::path output_dir = build.output_dir;
  if (!build.checkpoint_dir.empty())
    RETURN_IF_ERROR(builder::CheckDistinct(build.checkpoint_dir, output_dir));
  ASSIGN_OR_RETURN(const auto folder, OutputFolder::Create(output_dir, options.force));
  build.output_dir = folder->temporary();
  RETURN_IF_ERROR(write(build));
  RETURN_IF_ERROR(folder->Publish());
  std::printf("Wrote the engine %s; next: inflight serve %s\n", output_dir.c_str(),
              output_dir.c_str());
  return Status::Ok();
}

Status BuildFromSizes(Options& options) {
  if (options.report) return UsageError(kUsage, "--report: needs --checkpoint-dir");
  if (options.speculative_decoding_mode == kMedusa)
    return UsageError(kUsage, "--speculative-decoding-mode medusa: needs --checkpoint-dir");
  RETURN_IF_ERROR(Combine(options));
  SetLogLevel(options.log_level);
  ASSIGN_OR_RETURN(model::ModelConfig config,
                   ConfigOfSizes(options.sizes, options.architecture.value_or("GPT2LMHeadModel"),
                                 options.build.dtype.value_or(DType::kF16)));
  const builder::BuildOptions& build = options.build;
  config.quant_algo = build.quant_algo.value_or(config.quant_algo);
  if (HasGroups(config.quant_algo))
    config.group_size = build.group_size.value_or(model::kDefaultGroupSize);
  else if (build.group_size)
    return InvalidArgument("--group-size: got " + std::to_string(*build.group_size) +
                           ", only beside --quant-algo W4A16_GPTQ and W8A16_GPTQ");
  config.fp8_kv_cache = build.fp8_kv_cache.value_or(config.fp8_kv_cache);
  model::SetHead(config, build.quantize_lm_head, model::FactsOf(build.target));
  if (build.moe_ep_size.value_or(-1) > 1 || build.moe_tp_size.value_or(-1) > 1)
    return InvalidArgument(
        "--moe-ep-size, --moe-tp-size: random weights make an engine of one rank; leave them out");
  if (build.tp_size.value_or(1) * build.pp_size.value_or(1) > 1)
    logging::Warning(
        "random weights make an engine of one rank",
        {{"tp_size", build.tp_size.value_or(1)}, {"pp_size", build.pp_size.value_or(1)}});
  return WriteEngine(options, [&](const builder::BuildOptions& to) {
    return builder::BuildRandom(config, to, /*seed=*/1);
  });
}

Status Run(Options& options, std::span<const std::string> positionals) {
  builder::BuildOptions& build = options.build;
  if (options.lora.target_modules.empty()) RETURN_IF_ERROR(NoPositionals(kUsage, positionals));
  ASSIGN_OR_RETURN(build.limits.lora, options.lora.Limits(positionals));
  if (build.checkpoint_dir.empty() && SaysSizes(options)) return BuildFromSizes(options);
  if (build.checkpoint_dir.empty()) return UsageError(kUsage, "--checkpoint-dir is needed");
  const auto checkpoint_dir = ModelDirectory(build.checkpoint_dir, {}, options.download);
  if (!checkpoint_dir.ok()) return checkpoint_dir.status().WithPrefix("--checkpoint-dir");
  build.checkpoint_dir = *checkpoint_dir;
  if (!build.tokenizer_dir.empty()) {
    auto tokenizer_dir = ModelDirectory(build.tokenizer_dir, {}, options.download);
    if (!tokenizer_dir.ok()) return tokenizer_dir.status().WithPrefix("--tokenizer-dir");
    build.tokenizer_dir = *std::move(tokenizer_dir);
  }
  RETURN_IF_ERROR(Combine(options));
  SetLogLevel(options.log_level);
  RETURN_IF_ERROR(CheckAgainstModel(options));
  if (options.report) {
    RETURN_IF_ERROR(PrintAccuracy(build, options.report_text));
    if (build.output_dir.empty()) return Status::Ok();
  } else if (!options.report_text.empty()) {
    return InvalidArgument("--report-text: needs --report");
  }
  return WriteEngine(options, [](const builder::BuildOptions& to) {
    ProgressBar bar("build");
    return builder::Build(
        to, [&bar](double fraction, std::string_view what) { bar.Update(fraction, what); });
  });
}

}  // namespace

int BuildMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual BuildManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
